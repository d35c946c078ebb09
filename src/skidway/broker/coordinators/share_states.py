"""Questions of this node to share coordinators: leaders store what was settled, groups initialise and delete.

If the coordinator is on this node, no request is made. To every other node one request of a kind and about a group is
under way at a time; what comes meanwhile goes together in the next. No request has two questions about one
share-partition, because the answer names nothing else; so questions of a kind about one stay in order.

Every question is answered, once and in bounded time. A coordinator that moves, loads, does not answer or has not heard
of a topic or a leader yet is asked again after a pause that grows; when the time is over the answer is what it said
last, or COORDINATOR_NOT_AVAILABLE. A write whose answer is lost may have been stored, and may still be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from skidway.broker.cluster.peers import Peers
from skidway.broker.coordinators.share_messages import FORMS, answers_of, request_of
from skidway.broker.coordinators.shares import ShareCoordinators
from skidway.broker.world import World
from skidway.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    ProtocolError,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from skidway.runtime.timers import Timer
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.keys import ShareKey, text_of
from skidway.shares.coordinator.operations import (
    Answer,
    Ask,
    Delete,
    Done,
    Initialize,
    Question,
    Read,
    ReadSummary,
    State,
    Summary,
    Write,
)
from skidway.shares.letter_notes import NO_NOTES, LetterNotes
from skidway.shares.terms import NO_TERMS, TermNotes
from skidway.wire.message import Message

CHANNEL = "shares"
REQUEST_MS = 2_000
"""A node that has not answered by then is asked again, or leads no more."""
RETRY_MS_MIN, RETRY_MS_MAX = 20, 1_000
REQUESTS_MAX = 32
"""Under way to one node."""
QUESTIONS_MAX = 500
"""In one request."""
READS_MAX = 16
"""In one request: the answer has all that is stored of each."""
BATCHES_MAX = 50_000
"""In one request, unless a single question has more."""
TRANSIENT = (
    CoordinatorNotAvailable,
    CoordinatorLoadInProgress,
    NotCoordinator,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)

Respond = Callable[[Any], None]
Lane = tuple[type[Question], str]
"""A kind of question, and a group."""


class _Asked:
    __slots__ = ("alone", "last", "pause_ms", "question", "respond", "timer")

    def __init__(self, question: Question, respond: Respond) -> None:
        self.question = question
        self.respond = respond
        self.pause_ms = RETRY_MS_MIN
        self.last: ProtocolError = CoordinatorNotAvailable("the share coordinator does not answer: retry")
        self.alone = False
        """It was in a request without an answer: that may have been too large."""
        self.timer: Timer | None = None
        """Armed until it is answered."""

    @property
    def over(self) -> bool:
        return self.timer is None or not self.timer.armed

    @property
    def lane(self) -> Lane:
        return type(self.question), self.question.key.group_id

    @property
    def weight(self) -> int:
        asked = self.question
        return len(asked.batches) + len(asked.terms.terms) if isinstance(asked, Write) else 0

    def end(self, answer: Answer) -> None:
        assert self.timer is not None
        self.timer.cancel()
        self.respond(answer)

    def late(self) -> None:
        self.respond(self.last)


class _Node:
    """What is to be asked of another node."""

    __slots__ = ("lines", "under_way")

    def __init__(self) -> None:
        self.lines: dict[Lane, deque[_Asked]] = {}
        self.under_way: set[Lane] = set()


class ShareStates:
    __slots__ = ("_nodes", "_peers", "_world", "shares")

    def __init__(self, world: World, peers: Peers, shares: ShareCoordinators) -> None:
        self._world = world
        self._peers = peers
        self.shares = shares
        self._nodes: dict[int, _Node] = {}

    # --- what may be asked; `respond` is called once, at once or later ---

    def read(
        self, key: ShareKey, leader_epoch: int, now_ms: int, respond: Callable[[State | ProtocolError], None]
    ) -> None:
        """From then on leaders of older epochs are fenced."""
        self.ask(Read(key, leader_epoch), now_ms, respond)

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        complete_count: int,
        batches: Sequence[StateBatch],
        now_ms: int,
        respond: Callable[[Done | ProtocolError], None],
        letters: LetterNotes = NO_NOTES,
        terms: TermNotes = NO_TERMS,
    ) -> None:
        """In the state epoch that was read. FencedLeaderEpoch: another node leads. FencedStateEpoch, InvalidRequest:
        what was read does not count any more; read again."""
        write = Write(key, state_epoch, leader_epoch, start_offset, complete_count, batches, letters, terms)
        self.ask(write, now_ms, respond)

    def initialize(
        self,
        key: ShareKey,
        state_epoch: int,
        start_offset: int,
        now_ms: int,
        respond: Callable[[Done | ProtocolError], None],
    ) -> None:
        self.ask(Initialize(key, state_epoch, start_offset), now_ms, respond)

    def delete(self, key: ShareKey, now_ms: int, respond: Callable[[Done | ProtocolError], None]) -> None:
        self.ask(Delete(key), now_ms, respond)

    def read_summary(self, key: ShareKey, now_ms: int, respond: Callable[[Summary | ProtocolError], None]) -> None:
        self.ask(ReadSummary(key), now_ms, respond)

    def ask(self, question: Question, now_ms: int, respond: Respond, timeout_ms: int | None = None) -> None:
        asked = _Asked(question, respond)
        patience_ms = self._world.settings.shares.write_timeout_ms if timeout_ms is None else timeout_ms
        asked.timer = self._world.timers.at(now_ms + patience_ms, asked.late)
        self._put(asked, now_ms)

    # --- who is asked ---

    def _put(self, asked: _Asked, now_ms: int) -> None:
        if asked.over:
            return
        text = text_of(asked.question.key)
        if self.shares.place_of(text) < 0:
            self.shares.prepare(now_ms, partial(self._on_prepared, asked))
            return
        try:
            node_id = self.shares.find(text).id
        except ProtocolError as error:
            self._on_answer(asked, error.with_traceback(None))
            return
        if node_id == self._world.settings.node_id:
            self.shares.submit(text, Ask([asked.question]), now_ms, partial(self._on_decided, asked))
            return
        node = self._nodes.setdefault(node_id, _Node())
        node.lines.setdefault(asked.lane, deque()).append(asked)
        self._send(node_id, now_ms)

    def _on_prepared(self, asked: _Asked, error: ProtocolError | None) -> None:
        if error is not None:
            self._on_answer(asked, error)
        elif self.shares.place_of(text_of(asked.question.key)) < 0:
            # It is made; this node has not read of it.
            self._on_answer(asked, CoordinatorNotAvailable("the topic for share-partitions is being made: retry"))
        else:
            self._put(asked, self._world.clock.monotonic_ms())

    def _on_decided(self, asked: _Asked, reply: list[Answer] | ProtocolError) -> None:
        self._on_answer(asked, reply if isinstance(reply, ProtocolError) else reply[0])

    # --- other nodes ---

    def _send(self, node_id: int, now_ms: int) -> None:
        node = self._nodes[node_id]
        for lane in list(node.lines):
            if len(node.under_way) >= REQUESTS_MAX:
                break
            if lane in node.under_way or not (asked := _take(node.lines, lane)):
                continue
            node.under_way.add(lane)
            kind, group_id = lane
            request = request_of(FORMS[kind], group_id, [each.question for each in asked])
            respond = partial(self._on_response, node_id, lane, asked)
            self._peers.ask(node_id, CHANNEL, request, now_ms, REQUEST_MS, respond)

    def _on_response(self, node_id: int, lane: Lane, asked: list[_Asked], response: Message | None) -> None:
        self._nodes[node_id].under_way.discard(lane)
        form = FORMS[lane[0]]
        answers = answers_of(form, response) if type(response) is cast(type[Message], form.response) else {}
        for each in asked:
            key = each.question.key
            each.alone = response is None and len(asked) > 1
            self._on_answer(each, answers.get((key.topic_id, key.partition), each.last))
        self._send(node_id, self._world.clock.monotonic_ms())

    # --- what became of it ---

    def _on_answer(self, asked: _Asked, answer: Answer) -> None:
        if asked.over:
            return
        if not isinstance(answer, TRANSIENT):
            asked.end(answer)
            return
        asked.last = answer
        again_ms = self._world.clock.monotonic_ms() + asked.pause_ms
        asked.pause_ms = min(2 * asked.pause_ms, RETRY_MS_MAX)
        self._world.timers.at(again_ms, lambda: self._put(asked, again_ms))


def _take(lines: dict[Lane, deque[_Asked]], lane: Lane) -> list[_Asked]:
    """What the next request asks; the rest stays in line."""
    line, taken, left = lines.pop(lane), dict[ShareKey, _Asked](), deque[_Asked]()
    count_max = READS_MAX if lane[0] is Read else QUESTIONS_MAX
    weight, passed_over, is_alone = 0, set[ShareKey](), False
    for asked in line:
        if asked.over:
            continue
        key = asked.question.key
        is_full = is_alone or len(taken) >= count_max or weight + asked.weight > BATCHES_MAX or asked.alone
        if (taken and is_full) or key in taken or key in passed_over:
            left.append(asked)
            passed_over.add(key)
            continue
        taken[key] = asked
        weight += asked.weight
        is_alone = asked.alone
    if left:
        lines[lane] = left
    return list(taken.values())
