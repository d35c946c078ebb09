"""Who calls an API: one value that travels with every call, and in an Envelope when a node forwards the request.

There is no authentication yet: everybody who comes by a listener is anonymous, and may do what nodes do.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from skidway.errors import InvalidRequest
from skidway.ports import Buffer
from skidway.wire.message import Message, boolean, string
from skidway.wire.registry import codec, encoded
from skidway.wire.schema.envelope import EnvelopeRequest

USER = "User"
NODE = "Node"
"""The type of the principal that a node of this cluster has."""
PRINCIPAL_VERSION = 0
VERSION_BYTES = 2
ADDRESS_BYTES = (4, 16)


class Principal(NamedTuple):
    type: str
    name: str
    token_authenticated: bool = False
    """Logged in with a delegation token."""


ANONYMOUS = Principal(USER, "ANONYMOUS")


class Caller(msgspec.Struct, frozen=True):
    principal: Principal
    client_id: str | None
    host: str
    """The address the caller has, without a port; empty if nobody knows it."""
    listener: str | None
    """The name of the listener by which the caller came; None if this node asks itself."""
    is_node: bool = False
    """Whether it may call what only nodes of this cluster may."""

    @property
    def shown_host(self) -> str:
        """As Kafka shows it to people."""
        return "/" + self.host

    @property
    def is_this_node(self) -> bool:
        return self.listener is None

    def named(self, client_id: str | None) -> Caller:
        """The same caller under the client id of another request."""
        return replace(self, client_id=client_id)


def anonymous(peer: str, listener: str, *, is_node: bool) -> Caller:
    """`peer` is an address with its port, as `10.0.0.1:5000` or `[::1]:5000`."""
    return Caller(ANONYMOUS, None, peer.rpartition(":")[0].strip("[]"), listener, is_node)


def this_node(node_id: int) -> Caller:
    return Caller(Principal(NODE, str(node_id)), f"node-{node_id}", "", None, is_node=True)


# --- in an Envelope ---


class EnvelopedPrincipal(Message, versions="0", flexible="0+"):
    """Kafka's DefaultPrincipalData with the listener in a tagged field, which other readers skip."""

    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
    listener: str = string("0+", tag=0)


def to_envelope(caller: Caller, request: Buffer) -> EnvelopeRequest:
    """The request with its caller, for the controller; the client id is in the request's header."""
    principal = EnvelopedPrincipal(*caller.principal, caller.listener or "")
    whole = encoded(principal, PRINCIPAL_VERSION, PRINCIPAL_VERSION.to_bytes(VERSION_BYTES, "big"))
    return EnvelopeRequest(request, whole, _address(caller.host))


def from_envelope(envelope: EnvelopeRequest, client_id: str | None) -> Caller:
    """Raises InvalidRequest. A node of an older version names no principal: its client is anonymous. What a node
    forwards is never a request of a node."""
    address = bytes(envelope.client_host_address)
    if address and len(address) not in ADDRESS_BYTES:
        raise InvalidRequest(f"an address of {len(address)} bytes")
    host = str(ip_address(address)) if address else ""
    data = envelope.request_principal
    if data is None:
        return Caller(ANONYMOUS, client_id, host, "")
    if int.from_bytes(data[:VERSION_BYTES], "big") != PRINCIPAL_VERSION or len(data) < VERSION_BYTES:
        raise InvalidRequest("a principal of an unknown version")
    principal, end = codec(EnvelopedPrincipal).decoder(PRINCIPAL_VERSION)(data, VERSION_BYTES)
    if end != len(data):
        raise InvalidRequest(f"{len(data) - end} bytes more than a principal has")
    who = Principal(principal.type, principal.name, principal.token_authenticated)
    return Caller(who, client_id, host, principal.listener)


def _address(host: str) -> bytes:
    try:
        return ip_address(host).packed
    except ValueError:  # not known, or a name
        return b""
