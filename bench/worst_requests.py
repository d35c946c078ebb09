"""The worst legal request of every API, made from the API table: as many elements as a request may have.

Each request class is walked field by field. An array of structs is filled in two shapes: `deep` (one of everything on
the way to the innermost array, and that one full) and `broad` (the outermost array full, one element in each inner
one). Fields get values by their names, so that what is asked for exists wherever it can. What a count of elements does
not show (a few bytes that unpack to megabytes, one id that stands for thousands of producers) is in `SPECIAL`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from skidway.broker.api.table import SERVED
from skidway.records.record import Record, build_batch
from skidway.wire.headers import write_request_header
from skidway.wire.message import Field, Message
from skidway.wire.registry import api

CLIENT_ID = "worst"


@dataclass(slots=True)
class World:
    """What exists on the broker that is asked."""

    topic: str
    topic_id: bytes
    partitions: int
    names: list[str] = field(default_factory=list)
    """Small topics."""


@dataclass(slots=True)
class Worst:
    key: int
    version: int
    shape: str
    body: bytes

    @property
    def name(self) -> str:
        return f"{api(self.key).name} v{self.version} {self.shape}"

    def frame(self, correlation_id: int = 1) -> bytes:
        content = write_request_header(self.key, self.version, correlation_id, CLIENT_ID) + self.body
        return len(content).to_bytes(4, "big") + content


def worst_requests(world: World, elements: int, only: int | None = None) -> Iterator[Worst]:
    """Of every API that a broker serves, to clients and to other nodes, in the newest version that it serves; or only
    of the one with that key."""
    for key in SERVED if only is None else [only]:
        version = SERVED[key].versions[1]
        cls = api(key).request.message
        filler = _Filler(world, version, min(elements, (SERVED[key].elements_max or elements) - 10))
        arrays = [each for each in cls.__fields__ if each.kind == "array" and version in each.versions]
        yield Worst(key, version, "small", _encoded(key, version, filler.message(cls, None, 0)))
        for each in arrays:
            shapes = ("deep", "broad") if each.struct is not None and _has_array(each.struct, version) else ("broad",)
            for shape in shapes:
                message = filler.message(cls, each, 0, shape)
                yield Worst(key, version, f"{shape} {each.name}", _encoded(key, version, message))


def _encoded(key: int, version: int, message: Message) -> bytes:
    parts: list[Any] = []
    api(key).request.encoder(version)(message, parts)
    return b"".join(map(bytes, parts))


def _has_array(cls: type[Message], version: int) -> bool:
    return any(each.kind == "array" and version in each.versions for each in cls.__fields__)


class _Filler:
    def __init__(self, world: World, version: int, elements: int) -> None:
        self._world = world
        self._version = version
        self._elements = elements

    def message(self, cls: type[Message], full: Field | None, number: int, shape: str = "broad") -> Message:
        """Element `number` of its array; the array `full` of it gets all the elements, in the given shape."""
        values = {}
        for each in cls.__fields__:
            if self._version not in each.versions:
                continue
            values[each.name] = self._value(each, number, shape if full is each else "one")
        return cls(**values)

    def _value(self, each: Field, number: int, shape: str) -> Any:
        if each.kind == "struct":
            return each.default if each.struct is None or each.default is None else self.message(each.struct, None, 0)
        if each.kind != "array":
            return self._plain(each, number)
        count = self._elements if shape == "broad" else 1
        if each.name in NULL_ARRAYS:
            return None
        if each.struct is None:
            return [self._plain(each, at if shape == "broad" else number, each.element) for at in range(count)]
        inner = next((one for one in each.struct.__fields__ if one.kind == "array" and shape == "deep"), None)
        if shape == "broad":
            count = self._elements // (1 + sum(one.kind == "array" for one in each.struct.__fields__))
        inner_shape = (
            "deep" if inner is not None and inner.struct is not None and _has_array(inner.struct, 0) else "broad"
        )
        return [self.message(each.struct, inner, at, inner_shape) for at in range(count)]

    def _plain(self, each: Field, number: int, kind: str = "") -> Any:
        maker = VALUES.get(each.name)
        if maker is not None and (each.name != "transactional_id" or self._version in each.nullable):
            return maker(self._world, number)
        kind = kind or each.kind
        if kind == "string":
            return f"{each.name}-{number}"
        if kind in ("bytes", "records"):
            return b""
        if kind == "uuid":
            return number.to_bytes(16, "big")
        return each.default if not isinstance(each.default, tuple) else number


def _name(world: World, number: int) -> str:
    return world.names[number] if number < len(world.names) else f"unknown-{number}"


def _topic(world: World, number: int) -> str:
    return world.topic if number == 0 else _name(world, number)


def _batch(world: World, number: int) -> bytes:
    return SMALL_BATCH


SMALL_BATCH = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"x")]))
NULL_ARRAYS = {"configuration_keys"}
VALUES: dict[str, Callable[[World, int], Any]] = {
    "name": _topic,
    "topic": _topic,
    "topics": _topic,
    "topic_name": _topic,
    "topic_names": _topic,
    "topic_id": lambda world, number: world.topic_id if number == 0 else number.to_bytes(16, "big"),
    "partition_index": lambda world, number: number,
    "partition": lambda world, number: number,
    "index": lambda world, number: number % world.partitions,
    "partitions": lambda world, number: number,
    "partition_indexes": lambda world, number: number,
    "current_leader_epoch": lambda world, number: -1,
    "leader_epoch": lambda world, number: 0,
    "timestamp": lambda world, number: 1,
    "records": _batch,
    "resource_type": lambda world, number: 2,
    "resource_name": _name,
    "config_operation": lambda world, number: 0,
    "value": lambda world, number: "1",
    "acks": lambda world, number: 1,
    "acknowledge_types": lambda world, number: 1,
    "first_offset": lambda world, number: number,
    "last_offset": lambda world, number: number,
    "timeout_ms": lambda world, number: 10_000,
    "group_id": lambda world, number: f"group-{number}",
    "groups": lambda world, number: f"group-{number}",
    "groups_names": lambda world, number: f"group-{number}",
    "group_ids": lambda world, number: f"group-{number}",
    "coordinator_keys": lambda world, number: f"group-{number}",
    "member_id": lambda world, number: f"member-{number}",
    "num_partitions": lambda world, number: 1,
    "replication_factor": lambda world, number: 1,
    "count": lambda world, number: 2,
    "broker_ids": lambda world, number: 1,
    "replicas": lambda world, number: 1,
    "validate_only": lambda world, number: True,
    "max_bytes": lambda world, number: 1 << 20,
    "partition_max_bytes": lambda world, number: 1 << 20,
    "max_wait_ms": lambda world, number: 0,
    "session_epoch": lambda world, number: -1,
    "response_partition_limit": lambda world, number: 2_000,
    "include_synonyms": lambda world, number: True,
    "include_documentation": lambda world, number: True,
    "allow_auto_topic_creation": lambda world, number: False,
    "transactional_id": lambda world, number: None,
    "cluster_id": lambda world, number: "cluster",
    "resource_types": lambda world, number: number % 100,
    "generation_id_or_member_epoch": lambda world, number: -1,
}
