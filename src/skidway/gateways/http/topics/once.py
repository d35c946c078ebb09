"""The header `Idempotency-Key`: a request that is sent again with the same key and the same body is written once.

The key (with who sent it) decides the producer id of the request's batches, and the body their sequence number. So it
is the log of each partition that knows a batch which it has already, whichever node is asked, before and after a
restart or a fail-over, and answers with the offset of the first time. It also knows that a batch of the same producer
with another sequence is of another body. A partition remembers a producer for `limits.producer_expiry_ms`, unless more
come than it may remember.

Ids of this kind have the highest bit that an id may have, which those that brokers give to producers never reach.

A body that goes to other partitions than the first one did is not noticed there. So a node also remembers the bodies of
the last keys that it sent to leaders itself (`keys`).
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from skidway.gateways.http.problems import Problem
from skidway.limits import INT32_MAX
from skidway.steps import Job, Steps

if TYPE_CHECKING:
    from skidway.gateways.http.call import HttpCall

HEADER = b"idempotency-key"
KEY_BYTES_MAX = 255
ID_BITS = 62
FIRST_ID = 1 << ID_BITS
EPOCH = 0
HASHED_AT_ONCE = 64 << 10
_PERSON = b"skidway-http"


class Once:
    """What makes the batches of one request known again."""

    __slots__ = ("_scope", "body", "sequence")

    def __init__(self, scope: bytes, body: bytes) -> None:
        """`scope` is a hash of the key and of who sent it, `body` one of the body."""
        self._scope = scope
        self.body = body
        self.sequence = int.from_bytes(body[:4], "big") & INT32_MAX

    def producer_id(self, number: int) -> int:
        """Of a partition's batch of this number: each has a producer of its own, as five batches of one are known."""
        digest = blake2b(b"%d" % number, key=self._scope, digest_size=8).digest()
        return FIRST_ID | (int.from_bytes(digest, "big") & (FIRST_ID - 1))

    def place(self, partitions: int) -> int:
        """Where records without a key go: when they are sent again, to the same partition."""
        return int.from_bytes(self._scope[:8], "big") % partitions

    def check(self, call: HttpCall, topic: bytes) -> None:
        """It is about to be sent to the leaders of this topic. Raises Problem."""
        keys, now_ms = call.site.keys, call.site.node.clock.monotonic_ms()
        window_ms = call.site.node.world.limits.producer_expiry_ms
        if not keys.is_same(self._scope + topic, self.body, now_ms, window_ms):
            raise reused()


def once_of(call: HttpCall) -> Once | None:
    """Raises Problem."""
    key = call.head.headers.get(HEADER)
    if key is None:
        return None
    if not 0 < len(key) <= KEY_BYTES_MAX or not key.isascii():
        raise Problem(400, "bad_idempotency_key", f"an Idempotency-Key has 1 to {KEY_BYTES_MAX} ASCII characters")
    principal = call.caller.principal
    who = f"{principal.type}\0{principal.name}\0".encode()
    return Once(_hash(who + key), _hash(call.body))


def once_in_steps(call: HttpCall) -> Steps[Once | None]:
    """As `once_of`, for a body that is a copy and may be large. Raises Problem."""
    if HEADER not in call.head.headers or len(call.body) <= HASHED_AT_ONCE:
        return once_of(call)
    found: Once | None = yield Job(partial(once_of, call))
    return found


def _hash(data: bytes | memoryview) -> bytes:
    return blake2b(data, digest_size=32, person=_PERSON).digest()


def reused() -> Problem:
    return Problem(422, "key_reused", "this Idempotency-Key was used for another body: a new request needs a new key")
