"""Producer ids for this node, out of blocks that the controller hands out and never hands out again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from skidway.broker.asking import Ask
from skidway.errors import CoordinatorNotAvailable, ErrorCode, ProtocolError, StorageError
from skidway.wire.message import Message
from skidway.wire.schema.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

Answer = Callable[[int | ProtocolError], None]
Block = tuple[int, int] | ProtocolError
Allocate = Callable[[int, Callable[[Block], None]], None]
"""(now_ms, respond): asks for a block, answered as (first id, count)."""


class ProducerIds:
    __slots__ = ("_allocate", "_end", "_next", "_waiting")

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next = self._end = 0
        self._waiting: deque[Answer] = deque()

    def take(self, now_ms: int, answer: Answer) -> None:
        if self._next < self._end:
            self._next += 1
            answer(self._next - 1)
            return
        self._waiting.append(answer)
        if len(self._waiting) == 1:
            self._allocate(now_ms, lambda block: self._on_block(block, now_ms))

    def _on_block(self, block: Block, now_ms: int) -> None:
        waiting, self._waiting = self._waiting, deque()
        if isinstance(block, ProtocolError):
            for answer in waiting:
                answer(block)
            return
        first, count = block
        self._next, self._end = first, first + count
        for answer in waiting:
            self.take(now_ms, answer)


def blocks_from_controller(ask: Ask, node_id: int, broker_epoch: Callable[[], int]) -> Allocate:
    """Wherever the active controller is."""

    def allocate(now_ms: int, respond: Callable[[Block], None]) -> None:
        request = AllocateProducerIdsRequest(node_id, broker_epoch())
        ask(request, lambda response: respond(_block(response)), now_ms)

    return allocate


def _block(response: Message | None) -> Block:
    if not isinstance(response, AllocateProducerIdsResponse):
        return CoordinatorNotAvailable("no controller can be reached")
    if response.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
        return StorageError("the controller cannot write")
    if response.error_code:
        return CoordinatorNotAvailable(f"no producer ids: {ErrorCode(response.error_code).name}")
    return response.producer_id_start, response.producer_id_len
