"""The tasks that move dead letters out of a queue: what they are, and where that is kept.

The last tasks of a queue are one setting of its topic, `queue.move.tasks`, so every node can show and cancel them. The
node that was asked for a task runs it (`mover.py`). When that node starts again, or is fenced, the task has failed: it
is not taken over, and may be started again. Nothing is lost by that, because a letter is deleted after it was sent.

Two nodes that start a task for one queue in the same moment both write the setting. The one that was overwritten finds
out from the setting, and stops.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from skidway.gateways.http.call import HttpCall
from skidway.gateways.queues.catalog import MOVE_TASKS, keep_moves
from skidway.gateways.queues.errors import NoSuchQueue
from skidway.gateways.queues.types import Queue
from skidway.steps import Steps

KEPT_MAX = 10
"""Tasks that are remembered of a queue."""
LOST = "the node that ran it was restarted or lost its cluster: start the task again, no message is lost"


class Status(StrEnum):
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


ACTIVE = (Status.RUNNING, Status.CANCELLING)


class Move(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One task."""

    id: str
    queue_id: str
    """The topic id of its queue, in hex: one that is made anew under the name of a deleted queue has another."""
    node_id: int
    broker_epoch: int
    """Of the node when it began: a node that starts again has another."""
    started_ms: int
    status: Status = Status.RUNNING
    destination: str = ""
    """The topic of a queue; empty: each letter to the queue it came from."""
    rate: int = 0
    """Messages a second, at most; 0: as fast as it goes."""
    moved: int = 0
    to_move: int = 0
    """How many letters waited when it began. It moves no more, so letters that come back do not go round."""
    failure: str = ""

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Move]).decode


def moves_of(call: HttpCall, queue: Queue) -> list[Move]:
    """Newest first."""
    text = call.site.node.image.topic_config(queue.topic).get(MOVE_TASKS, "")
    try:
        moves = _decode(text) if text else []
    except msgspec.DecodeError:
        return []  # an admin wrote it
    moves = [move for move in moves if move.queue_id == queue.topic_id.hex()]
    for move in moves:
        if move.is_active and not _runs(call, move):
            cancelled = move.status is Status.CANCELLING
            move.status, move.failure = (Status.CANCELLED, "") if cancelled else (Status.FAILED, LOST)
    return moves


def _runs(call: HttpCall, move: Move) -> bool:
    """Whether the node is the one that began it."""
    broker = call.site.node.image.brokers.get(move.node_id)
    return broker is not None and broker.epoch == move.broker_epoch and not broker.fenced


def keep(call: HttpCall, queue: Queue, move: Move) -> Steps[None]:
    """Among the tasks of its queue, in its old place or as the newest. Raises QueueError."""
    if queue.topic_id not in call.site.node.image.topics_by_id:
        raise NoSuchQueue(f"{queue.key.name!r} was deleted")  # another one may have its name by now
    moves = moves_of(call, queue)
    if any(each.id == move.id for each in moves):
        moves = [move if each.id == move.id else each for each in moves]
    else:
        moves = [move, *moves][:KEPT_MAX]
    yield from keep_moves(call, queue, _encode(moves).decode())
