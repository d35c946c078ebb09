"""What nodes say of themselves over HTTP: whether they live (`/livez`), and are ready for clients (`/readyz`).

Kafka's protocol does not tell where nodes answer HTTP: who asks has to know.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException

import msgspec

from skidway.blocking_client.addresses import Address, parse_address
from skidway.blocking_client.errors import BadAddress
from skidway.limits import KIB

DEFAULT_PORT = 8082
ADDRESSES_MAX = 100
AT_ONCE = 16
ANSWER_BYTES_MAX = 64 * KIB
OK, UNAVAILABLE = 200, 503


@dataclass(slots=True)
class Silent:
    """Nobody answers there, or not in time."""

    why: str


@dataclass(slots=True)
class Stranger:
    """Somebody answers who is no node of Skidway."""

    why: str


@dataclass(slots=True)
class Ready:
    node: int


@dataclass(slots=True)
class NotReady:
    """It lives, and clients should go elsewhere."""

    node: int
    reasons: list[str] = field(default_factory=list)


NodeHealth = Silent | Stranger | Ready | NotReady


class _Readiness(msgspec.Struct):
    ready: bool
    node: int
    reasons: list[str]


_decode = msgspec.json.Decoder(_Readiness).decode


def parse_addresses(text: str) -> list[Address]:
    """`host[:port][,…]`, also as URLs without a path. Raises BadAddress."""
    parts = [part.strip().rstrip("/") for part in text.split(",") if part.strip()]
    if not 1 <= len(parts) <= ADDRESSES_MAX:
        raise BadAddress(
            f"{len(parts)} addresses of nodes; expected 1 to {ADDRESSES_MAX}, such as 127.0.0.1:{DEFAULT_PORT}"
        )
    return [parse_address(part, DEFAULT_PORT) for part in parts]


def ask_nodes(addresses: Sequence[Address], timeout_s: float) -> list[NodeHealth]:
    """In their order, and all at a time: one that hangs does not hold up the others."""
    with ThreadPoolExecutor(min(AT_ONCE, len(addresses))) as workers:
        return list(workers.map(lambda address: ask_node(address, timeout_s), addresses))


def ask_node(address: Address, timeout_s: float) -> NodeHealth:
    try:
        status, _ = _get(address, "/livez", timeout_s)
        if status != OK:
            return Stranger(f"/livez answers {status}")
        status, body = _get(address, "/readyz", timeout_s)
    except TimeoutError:
        return Silent(f"no answer within {timeout_s:g} s")
    except OSError as error:  # also where the connection is closed before an answer
        return Silent((error.strerror or str(error)).lower())
    except HTTPException:
        return Stranger("it does not speak HTTP")
    try:
        told = _decode(body)
    except msgspec.DecodeError:
        return Stranger(f"/readyz answers {status} and says nothing of a node")
    return Ready(told.node) if told.ready and status == OK else NotReady(told.node, told.reasons)


def _get(address: Address, path: str, timeout_s: float) -> tuple[int, bytes]:
    connection = HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        return response.status, response.read(ANSWER_BYTES_MAX)
    finally:
        connection.close()
