"""ShareFetch and ShareAcknowledge: sessions, acknowledgements, and records for those who wait.

A fetch looks at all partitions of its session, another one first each time, and is answered as soon as one has
something for it. Otherwise it waits in each of them, at most as long as it says, and looks again when something has
changed. It is answered when its acknowledgements are, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from skidway.broker.api.call import Call
from skidway.broker.coordinators.share_states import ShareStates
from skidway.broker.shares.acknowledging import NOT_HELD, AcknowledgedBatch, Answers, words
from skidway.broker.shares.group_rules import RulesOf
from skidway.broker.shares.share_fetch import Asked, ShareFetch
from skidway.broker.shares.share_partitions import SharePartitions
from skidway.broker.world import World
from skidway.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    NotLeaderOrFollower,
    ProtocolError,
    ShareSessionLimitReached,
)
from skidway.shares.acquiring import Wanted
from skidway.shares.queue_groups import check_group
from skidway.shares.sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, ShareSession, ShareSessions
from skidway.shares.states import AcquireMode
from skidway.steps import Steps
from skidway.wire.schema.share_acknowledge import ShareAcknowledgeRequest
from skidway.wire.schema.share_fetch import ShareFetchRequest

MEMBER_ID_LENGTH_MAX = 36
PLACES_PER_STEP = 50

Acknowledged = dict[Place, list[Any]]
"""Acknowledgement batches by partition."""


class ShareFetches:
    __slots__ = ("partitions", "rules", "sessions", "sessions_max", "states", "world")

    def __init__(self, world: World, states: ShareStates, partitions: SharePartitions, rules: RulesOf) -> None:
        self.world = world
        self.states = states
        self.partitions = partitions
        self.rules = rules
        self.sessions = ShareSessions()
        self.sessions_max = world.settings.groups.share_sessions_max

    # --- requests ---

    def fetch(self, call: Call, request: ShareFetchRequest, reply: Callable[[Any], None]) -> Steps[None]:
        """`reply` gets a ShareFetch with what was found, or a ProtocolError, once."""
        try:
            group, member = _names(request.group_id, request.member_id)
            epoch = request.share_session_epoch
            asked = yield from _places(request.topics)
            acknowledged = {place: batches for place, batches in asked.items() if batches}
            if epoch == INITIAL_EPOCH and acknowledged:
                raise InvalidRequest("the first request of a session acknowledges nothing")
            if request.is_renew_ack and (
                request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
            ):
                raise InvalidRequest("a request that renews locks fetches nothing")
            asked_for = _asked(request)
            session = self._session(call, (group, member), epoch)
        except ShareSessionLimitReached as error:
            # At once the client would ask again at once.
            self._reply_late(call, request.max_wait_ms, partial(reply, error))
            return
        except ProtocolError as error:
            reply(error)
            return
        answers = Answers()
        yield from self._acknowledge(session, acknowledged, request.is_renew_ack, call, answers)
        fetched = ShareFetch(self.world, self.partitions, session, answers, call, reply)
        if epoch == FINAL_EPOCH:
            self.end(session)
        elif not request.is_renew_ack:
            yield from self._change(session, asked, request.forgotten_topics_data)
            yield from fetched.begin(asked_for, session.rotated(epoch))
            return
        fetched.finish()

    def acknowledge(self, call: Call, request: ShareAcknowledgeRequest, reply: Callable[[Any], None]) -> Steps[None]:
        """`reply` gets what became of each partition, or a ProtocolError, once."""
        try:
            group, member = _names(request.group_id, request.member_id)
            epoch = request.share_session_epoch
            if epoch == INITIAL_EPOCH:
                raise InvalidShareSessionEpoch("only a fetch begins a session")
            asked = yield from _places(request.topics)
            acknowledged = {place: batches for place, batches in asked.items() if batches}
            session = self._session(call, (group, member), epoch)
        except ProtocolError as error:
            reply(error)
            return
        answers = Answers()
        yield from self._acknowledge(session, acknowledged, request.is_renew_ack, call, answers)
        if epoch == FINAL_EPOCH:
            self.end(session)
        call.on_gone = answers.give_up
        answers.when_all(lambda: reply(answers.errors))

    # --- sessions ---

    def _session(self, call: Call, key: tuple[str, str], epoch: int) -> ShareSession:
        connection = call.origin
        if epoch == INITIAL_EPOCH:
            session = self.sessions.begin(key, connection, self.sessions_max)
        else:
            session = self.sessions.go_on(key, epoch, connection)
        call.when_disconnected(partial(self._on_disconnected, connection))
        return session

    def _change(self, session: ShareSession, asked: Acknowledged, forgotten: Iterable[Any]) -> Steps[None]:
        self.sessions.add(session, asked)
        for topic in forgotten:
            yield None
            self.sessions.forget(session, [(topic.topic_id, index) for index in topic.partitions])

    def end(self, session: ShareSession) -> None:
        """What its member holds is available again."""
        if session.ended:
            return
        is_last = self.sessions.end(session)
        for share in self.partitions.of_group(session.group):
            share.release(session.member)
        if is_last:
            self.partitions.forget_group(session.group)

    def stop(self) -> None:
        """Share groups were turned off: sessions and leases are over, and who waits is answered."""
        for session in list(self.sessions.open.values()):
            self.sessions.end(session)
        self.partitions.close_all(NotLeaderOrFollower("share groups were turned off"))

    def _on_disconnected(self, connection: object) -> None:
        for session in self.sessions.on_disconnected(connection):
            self.end(session)

    # --- acknowledgements ---

    def _acknowledge(
        self, session: ShareSession, acknowledged: Acknowledged, renews: bool, call: Call, answers: Answers
    ) -> Steps[None]:
        for number, (place, batches) in enumerate(acknowledged.items(), 1):
            if not number % PLACES_PER_STEP:
                yield None
            answer = answers.expect(place)
            try:
                said = yield from words(batches, renews=renews)
                share = self.partitions.find(session.group, place)
                if share is None:
                    # Raises if this is the wrong place to ask.
                    self.partitions.check(place)
                    raise NOT_HELD
            except ProtocolError as error:
                answer(error.with_traceback(None))
                continue
            share.settle(session.member, said, call.now_ms, answer)

    def _reply_late(self, call: Call, wait_ms: int, reply: Callable[[], None]) -> None:
        at_ms = call.now_ms + min(max(wait_ms, 0), self.world.limits.fetch_wait_ms_max)
        timer = self.world.timers.at(at_ms, reply)
        call.on_gone = timer.cancel


def _names(group: str | None, member: str | None) -> tuple[str, str]:
    if not group:
        raise InvalidRequest("the group has no id")
    check_group(group)
    if not member or len(member) > MEMBER_ID_LENGTH_MAX:
        raise InvalidRequest(f"a member's id has 1 to {MEMBER_ID_LENGTH_MAX} characters")
    return group, member


def _places(topics: Sequence[Any]) -> Steps[Acknowledged]:
    """A client may name a topic several times."""
    found: Acknowledged = {}
    count = 0
    for topic in topics:
        for each in topic.partitions:
            count += 1
            if not count % PLACES_PER_STEP:
                yield None
            batches: list[AcknowledgedBatch] = each.acknowledgement_batches
            found.setdefault((topic.topic_id, each.partition_index), []).extend(batches)
    return found


def _asked(request: ShareFetchRequest) -> Asked:
    try:
        mode = AcquireMode(request.share_acquire_mode)
    except ValueError:
        raise InvalidRequest(f"there is no acquire mode {request.share_acquire_mode}") from None
    wanted = Wanted(request.max_records, mode, max(1, request.batch_size))
    return Asked(wanted, request.max_bytes, request.min_bytes, request.max_wait_ms)
