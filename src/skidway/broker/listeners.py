"""Where a node listens, as values: what it binds to, what it tells others to connect to, and how bytes travel.

A client hears the addresses of the listener it came by. Nodes speak to each other over one of them, the same name on
every node: `inter_broker`. Voters are reached there as well. Listeners for HTTP are no part of the cluster's metadata:
whoever knows one node's address needs no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import msgspec
from msgspec.structs import replace


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")


class Security(IntEnum):
    """Kafka's security protocols, by their numbers in metadata, and HTTP, which has none there."""

    HTTP = -1
    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


DEFAULT_NAME = Security.PLAINTEXT.name
"""Of a listener that was given none."""


class ListenerSpec(msgspec.Struct, frozen=True):
    name: str
    bind: Address
    advertised: Address
    """What others are told to connect to."""
    security: Security = Security.PLAINTEXT
    optional: bool = False
    """Nobody asked for it: if its address is taken, the node starts without it."""

    @property
    def is_kafka(self) -> bool:
        return self.security is not Security.HTTP

    def written(self, address: Address) -> str:
        """As an operator writes an address of this listener: with its name, unless it was given none."""
        return str(address) if self.name == DEFAULT_NAME else f"{self.name}={address}"

    def bound_to(self, port: int) -> ListenerSpec:
        """The same with the port that it got in the place of port 0."""
        bind = replace(self.bind, port=port)
        return replace(self, bind=bind, advertised=replace(self.advertised, port=self.advertised.port or port))


class Listeners(msgspec.Struct, frozen=True):
    """All listeners of a node, each with a name of its own."""

    specs: tuple[ListenerSpec, ...]
    inter_broker: ListenerSpec
    """The one that other nodes use."""

    def __post_init__(self) -> None:
        assert self.inter_broker in self.specs
        assert self.inter_broker.is_kafka
        assert len({spec.name for spec in self.specs}) == len(self.specs)

    def __iter__(self) -> Iterator[ListenerSpec]:
        return iter(self.specs)

    @property
    def kafka(self) -> Listeners:
        """Those that speak Kafka's protocol."""
        return Listeners(tuple(spec for spec in self.specs if spec.is_kafka), self.inter_broker)

    def without(self, left_out: ListenerSpec) -> Listeners:
        return Listeners(tuple(spec for spec in self.specs if spec is not left_out), self.inter_broker)

    def find(self, name: str | None) -> ListenerSpec | None:
        return next((spec for spec in self.specs if spec.name == name), None)

    def bound_to(self, ports: list[int]) -> Listeners:
        """The same with the ports that they got, in their order."""
        bound = tuple(spec.bound_to(port) for spec, port in zip(self.specs, ports, strict=True))
        return Listeners(bound, bound[self.specs.index(self.inter_broker)])


def only_listener(host: str, port: int) -> Listeners:
    """One for everybody, under the name it has by default."""
    spec = ListenerSpec(DEFAULT_NAME, Address(host, port), Address(host, port))
    return Listeners((spec,), spec)
