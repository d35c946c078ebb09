"""Members of share groups (KIP-932): they join, acquire records in sessions with leaders, and speak of each.

A member accepts, releases, rejects and renews; it forgets records until their lock is over, speaks too late, of what
is not its own or twice, crashes, leaves, and begins sessions anew by other connections. One request at a time is under
way to each leader. What it gets, says and hears goes to the laws.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from skidway.errors import ErrorCode
from skidway.records.batch import iter_headers
from skidway.shares.states import AcquireMode, Verb
from skidway.sim.clients.base import ROUTING_ERRORS, Client
from skidway.sim.clients.readers import open_batch
from skidway.sim.clients.share_holds import Hold, Place, ShareTold, Spoken
from skidway.sim.clients.share_membership import Membership
from skidway.sim.clients.wires import Wire
from skidway.sim.share_plan import ShareGroupPlan
from skidway.sim.world.events import MS, Violation, World
from skidway.sim.world.network import Address, Network
from skidway.wire.schema import share_acknowledge as acknowledging
from skidway.wire.schema import share_fetch as fetching
from skidway.wire.schema.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from skidway.wire.schema.share_fetch import ShareFetchRequest, ShareFetchResponse

RETRY_MS = 40
SILENCE_MS = 2_500
"""Longer than a leader waits for its store."""
BYTES = [300, 1 << 20, 1 << 20]
SESSION_OVER = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
SESSION_CODES = (*SESSION_OVER, ErrorCode.SHARE_SESSION_LIMIT_REACHED)
ACK_CODES = ROUTING_ERRORS | {
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NETWORK_EXCEPTION,
}
FETCH_CODES = ACK_CODES - {ErrorCode.INVALID_RECORD_STATE} | {ErrorCode.INVALID_REQUEST}
"""A share-partition that nobody has initialised yet is an INVALID_REQUEST of the store."""


class Session:
    """With one leader."""

    __slots__ = ("busy", "epoch", "node_id", "number", "places", "ready", "wire")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.epoch = 0
        self.number = 0
        """How often it was begun anew."""
        self.wire: Wire | None = None
        self.busy = False
        self.places: set[Place] = set()
        self.ready: list[tuple[Hold, list[Verb]]] = []
        """What is to be said with the next request, one word for all or one for each."""


class Speaker(Client):
    """What it says of records, in sessions with leaders, and what it hears."""

    def __init__(
        self,
        world: World,
        network: Network,
        place: str,
        seeds: list[Address],
        plan: ShareGroupPlan,
        laws: ShareTold,
    ) -> None:
        super().__init__(world, network, place, seeds, plan.topics)
        self.plan = plan
        self.laws = laws
        self.calm = False
        """It accepts all that it gets, and makes no mistakes."""
        self.sessions: dict[int, Session] = {}
        self.life = 0

    @property
    def member_id(self) -> str:
        return f"{self.place}.{self.life}"

    def _pump(self, node_id: int) -> None:
        raise NotImplementedError

    def _work_on(self, session: Session, hold: Hold) -> None:
        raise NotImplementedError

    # --- what it says ---

    def _take_ready(self, session: Session) -> list[tuple[Hold, list[Verb]]]:
        taken, session.ready = session.ready, []
        return taken

    def _spoken(self, session: Session, ready: list[tuple[Hold, list[Verb]]]) -> list[Spoken]:
        by_place: dict[Place, Spoken] = {}
        for hold, verbs in sorted(ready, key=lambda each: each[0].first):
            spoken = by_place.setdefault(
                hold.place,
                Spoken(self.member_id, self.plan.name, hold.place, hold.topic_id, session.node_id, []),
            )
            if spoken.words and spoken.words[-1][1] > hold.first:
                continue  # It was given out again: what was said of it before counts, or its lock is over.
            spoken.words.append((hold.first, hold.end, verbs))
            spoken.holds.append(hold)
        if not self.calm:
            for spoken in by_place.values():
                if self.random.random() < self.plan.wrong_chance:
                    self._make_wrong(spoken)
        return list(by_place.values())

    def _make_wrong(self, spoken: Spoken) -> None:
        """It also names what is another's, or the same twice."""
        first, end, _ = spoken.words[-1]
        theirs = self.laws.stranger(self.plan.name, spoken.place, self.member_id)
        if theirs is not None and theirs[0] >= end and self.random.random() < 0.7:
            spoken.words.append((*theirs, [Verb.ACCEPT]))
            spoken.foreign += range(*theirs)
        elif end - first >= 1:
            spoken.words.append((end - 1, end, [Verb.ACCEPT]))
            spoken.twice = True

    def _say(self, spoken: list[Spoken]) -> None:
        for each in spoken:
            each.sent_us = self.world.now_us
            self.laws.speaking(each)

    def _ask_acknowledge(self, session: Session, spoken: list[Spoken], epoch: int) -> None:
        self._say(spoken)
        renews = any(verb is Verb.RENEW for each in spoken for _, _, verbs in each.words for verb in verbs)
        topics: dict[bytes, list[acknowledging.AcknowledgePartition]] = {}
        for each in spoken:
            batches = [
                acknowledging.AcknowledgementBatch(first, end - 1, [int(verb) for verb in verbs])
                for first, end, verbs in each.words
            ]
            topics.setdefault(each.topic_id, []).append(acknowledging.AcknowledgePartition(each.place[1], batches))
        request = ShareAcknowledgeRequest(
            group_id=self.plan.name,
            member_id=self.member_id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[acknowledging.AcknowledgeTopic(topic_id, each) for topic_id, each in topics.items()],
        )
        if epoch > 0:
            session.epoch += 1
        self._ask(session, request, partial(self._on_acknowledged, session, spoken))

    def _on_acknowledged(self, session: Session, spoken: list[Spoken], reply: ShareAcknowledgeResponse | None) -> None:
        codes: dict[tuple[bytes, int], int] = {}
        if reply is not None and not reply.error_code:
            codes = {
                (topic.topic_id, each.partition_index): each.error_code
                for topic in reply.responses
                for each in topic.partitions
            }
        elif reply is not None:
            codes = {(each.topic_id, each.place[1]): reply.error_code for each in spoken}
            self._on_refused(session, reply.error_code)
        self._hear(spoken, codes)

    def _hear(self, spoken: list[Spoken], codes: dict[tuple[bytes, int], int]) -> None:
        for each in spoken:
            code = codes.get((each.topic_id, each.place[1]))
            self.laws.answered(each, code)
            if code in ROUTING_ERRORS:
                self.refresh()
            known = (None, ErrorCode.NONE, *SESSION_CODES)
            if code not in known and code not in ACK_CODES and not (code == ErrorCode.INVALID_REQUEST and each.twice):
                assert code is not None
                if code == ErrorCode.INVALID_REQUEST and self.laws.may_be_past(each):
                    continue
                raise Violation("client-errors", f"{self.place} got {ErrorCode(code).name} for {each.words}")
            if code == ErrorCode.NONE:
                self._go_on_with_renewed(each)

    def _go_on_with_renewed(self, spoken: Spoken) -> None:
        session = self.sessions.get(spoken.node_id)
        for hold, (_, _, verbs) in zip(spoken.holds, spoken.words, strict=False):
            if verbs == [Verb.RENEW] and session is not None:
                self._work_on(session, hold)

    # --- asking ---

    def _on_refused(self, session: Session, code: int) -> None:
        if code not in SESSION_CODES:
            raise Violation("client-errors", f"{self.place} got {ErrorCode(code).name} from {session.node_id}")
        if code in SESSION_OVER:
            self.laws.session_refused(self.place, session.node_id, ErrorCode(code).name)
        session.wire = None

    def _ask(self, session: Session, request: Any, respond: Any) -> None:
        """One at a time."""
        life, wire = self.life, session.wire
        assert wire is not None
        session.busy = True

        def answered(reply: Any) -> None:
            if self.stopped:
                return
            session.busy = False
            if reply is None:
                session.wire = None if session.wire is wire else session.wire
                self.refresh()
            respond(reply)
            if life == self.life:
                self.after(RETRY_MS if reply is None else 1, lambda: self._pump(session.node_id))

        wire.ask(request, answered, (SILENCE_MS + self.plan.wait_ms) * MS)


class ShareMember(Speaker):
    def __init__(
        self,
        world: World,
        network: Network,
        place: str,
        seeds: list[Address],
        plan: ShareGroupPlan,
        laws: ShareTold,
    ) -> None:
        super().__init__(world, network, place, seeds, plan, laws)
        self.membership = Membership(self, network, seeds, plan)

    def start(self) -> None:
        super().start()
        self.membership.join()

    def stop(self) -> None:
        super().stop()
        self.membership.drop()

    @property
    def assigned(self) -> set[Place]:
        return self.membership.assigned

    # --- life ---

    def on_assigned(self) -> None:
        for node_id in {self.leader_of(*place)[0] for place in self.assigned} - {-1}:
            self._pump(node_id)

    def on_metadata(self) -> None:
        self.membership.on_metadata()
        self.on_assigned()

    def crash(self) -> None:
        """Its connections close; another member takes its place."""
        self.world.mark("share member crashed")
        self._end_life()
        self.brokers.drop()
        self.after(50 + 400 * self.random.random(), self.membership.join)

    def leave(self) -> None:
        """It says what it has to say, closes its sessions and leaves the group."""
        self.world.mark("share member left")
        for session in self.sessions.values():
            if session.epoch > 0 and not session.busy and self._is_connected(session):
                words = self._spoken(session, session.ready)
                self._ask_acknowledge(session, words, -1)
        self.membership.leave()
        self._end_life()
        self.after(200 + 400 * self.random.random(), self.membership.join)

    def _end_life(self) -> None:
        self.life += 1
        for session in self.sessions.values():
            self._forget(session)
        self.sessions = {}
        self.membership.drop()

    def _forget(self, session: Session) -> None:
        for hold, _ in session.ready:
            hold.over = True
        session.ready = []

    # --- sessions ---

    def _pump(self, node_id: int) -> None:
        session = self.sessions.get(node_id)
        if session is None:
            session = self.sessions[node_id] = Session(node_id)
        if session.busy or self.stopped or node_id not in self.brokers.addresses:
            return
        if not self.membership.is_member:
            return
        if not self._is_connected(session):
            self._renew_session(session)
        if not self.calm and self._mistakes(session):
            return
        wanted = {place for place in self.assigned if self.leader_of(*place)[0] == node_id}
        if not wanted and not session.ready:
            return
        if session.epoch and session.ready and (self.random.random() < 0.5 or not wanted):
            self._ask_acknowledge(session, self._spoken(session, self._take_ready(session)), session.epoch)
        else:
            self._ask_fetch(session, wanted)

    def _is_connected(self, session: Session) -> bool:
        return session.wire is not None and not session.wire.broken

    def _renew_session(self, session: Session) -> None:
        """What was held by the one before is not ours to speak of any more."""
        self._forget(session)
        session.number += 1
        session.epoch, session.places = 0, set()
        session.wire = self.brokers.wire(self.brokers.addresses[session.node_id])

    def _mistakes(self, session: Session) -> bool:
        """Whether it does something else now."""
        drawn = self.random.random()
        if drawn < self.plan.crash_chance / 4:
            self.crash()
            return True
        drawn = self.random.random()
        if drawn < self.plan.leave_chance / 4:
            self.leave()
            return True
        if session.epoch and self.random.random() < self.plan.reconnect_chance:
            self._reconnect(session)
        elif session.epoch > 1 and self.random.random() < self.plan.wrong_chance / 4:
            self._ask_with_wrong_epoch(session)
            return True
        return False

    def _reconnect(self, session: Session) -> None:
        """By another connection; the first one is closed later."""
        old = session.wire
        assert old is not None
        self.world.mark("share session begun again")
        self.brokers.abandon(session.node_id)
        self._renew_session(session)
        self.after(400 * self.random.random(), old.give_up)

    def _ask_with_wrong_epoch(self, session: Session) -> None:
        epoch = session.epoch + self.random.choice([-1, 1, 7])
        request = ShareAcknowledgeRequest(
            group_id=self.plan.name, member_id=self.member_id, share_session_epoch=epoch, topics=[]
        )

        def answered(reply: ShareAcknowledgeResponse | None) -> None:
            if reply is not None and reply.error_code == ErrorCode.NONE:
                self.laws.wrong_epoch_taken(self.place, session.node_id, f"{epoch} instead of {session.epoch}")

        self._ask(session, request, answered)

    # --- what it gets ---

    def _ask_fetch(self, session: Session, wanted: set[Place]) -> None:
        spoken = self._spoken(session, self._take_ready(session)) if session.epoch else []
        renewing = any(verb is Verb.RENEW for each in spoken for _, _, verbs in each.words for verb in verbs)
        if renewing:
            self._ask_acknowledge(session, spoken, session.epoch)
            return
        self._say(spoken)
        plan, epoch = self.plan, session.epoch
        acked = {each.place: each for each in spoken}
        topics: dict[bytes, list[fetching.FetchPartition]] = {}
        for place in sorted({*(wanted - session.places), *acked}):
            words = acked[place].words if place in acked else []
            batches = [
                fetching.AcknowledgementBatch(first, end - 1, [int(verb) for verb in verbs])
                for first, end, verbs in words
            ]
            topic_id = acked[place].topic_id if place in acked else self.known[place[0]].topic_id
            topics.setdefault(topic_id, []).append(fetching.FetchPartition(place[1], acknowledgement_batches=batches))
        forgotten: dict[bytes, list[int]] = {}
        for topic, index in sorted(session.places - wanted):
            forgotten.setdefault(self.known[topic].topic_id, []).append(index)
        session.places = set(wanted)
        request = ShareFetchRequest(
            group_id=plan.name,
            member_id=self.member_id,
            share_session_epoch=epoch,
            max_wait_ms=plan.wait_ms,
            min_bytes=1,
            max_bytes=self.random.choice(BYTES),
            max_records=plan.records,
            batch_size=plan.records,
            share_acquire_mode=AcquireMode.RECORD_LIMIT if plan.strict else AcquireMode.BATCH_OPTIMIZED,
            topics=[fetching.FetchTopic(topic_id, each) for topic_id, each in topics.items()],
            forgotten_topics_data=[fetching.ForgottenTopic(topic_id, each) for topic_id, each in forgotten.items()],
        )
        session.epoch += 1
        reigns = {
            place: self.laws.sending(plan.name, place, self.known[place[0]].topic_id, session.node_id)
            for place in wanted
        }
        asked_us = self.world.now_us
        self._ask(session, request, lambda reply: self._on_fetched(session, spoken, reigns, asked_us, reply))

    def _on_fetched(
        self,
        session: Session,
        spoken: list[Spoken],
        reigns: dict[Place, Any],
        asked_us: int,
        reply: ShareFetchResponse | None,
    ) -> None:
        codes: dict[tuple[bytes, int], int] = {}
        if reply is not None and reply.error_code:
            codes = {(each.topic_id, each.place[1]): reply.error_code for each in spoken}
            self._on_refused(session, reply.error_code)
        elif reply is not None:
            names = {known.topic_id: name for name, known in self.known.items()}
            for topic in reply.responses:
                for data in topic.partitions:
                    codes[topic.topic_id, data.partition_index] = data.acknowledge_error_code
                    place = (names[topic.topic_id], data.partition_index)
                    self._take(session, place, topic.topic_id, data, reigns.get(place), asked_us, reply)
        self._hear(spoken, codes)

    def _take(
        self,
        session: Session,
        place: Place,
        topic_id: bytes,
        data: fetching.PartitionData,
        reign: Any,
        asked_us: int,
        reply: ShareFetchResponse,
    ) -> None:
        if data.error_code:
            if data.error_code not in FETCH_CODES:
                raise Violation("client-errors", f"{self.place} got {ErrorCode(data.error_code).name} for {place}")
            session.places.discard(place)
            self.refresh()
            return
        stored = bytes(data.records or b"")  # type: ignore[arg-type]
        values: dict[int, bytes] = {}
        for at, header in iter_headers(stored):
            values.update(open_batch(stored[at : at + header.size]) or [])
        for each in data.acquired_records:
            first, end = each.first_offset, each.last_offset + 1
            hold = Hold(
                self.member_id,
                self.plan.name,
                place,
                topic_id,
                first,
                end,
                each.delivery_count,
                session.node_id,
                asked_us,
                self.world.now_us,
                reply.acquisition_lock_timeout_ms * MS,
            )
            self.laws.delivered(hold, {at: value for at, value in values.items() if first <= at < end}, reign)
            if not self.calm and any(self._is_poison(value) for at, value in values.items() if first <= at < end):
                self.world.mark("poisonous record")
                self.after(0, self.crash)
                return
            self._work_on(session, hold)

    def _is_poison(self, value: bytes) -> bool:
        return bool(self.plan.poison_chance) and sum(value) % int(1 / self.plan.poison_chance) == 0

    def _work_on(self, session: Session, hold: Hold) -> None:
        life, number, plan, random = self.life, session.number, self.plan, self.random
        lock_ms = hold.lock_us / MS
        work_ms = plan.work_ms * (0.2 + random.random())
        verbs = [Verb.ACCEPT]
        if not self.calm:
            drawn = random.random()
            if drawn < plan.forget_chance:
                return
            if drawn < plan.forget_chance + plan.dawdle_chance:
                work_ms = lock_ms * (1.1 + random.random())
            elif drawn < plan.forget_chance + plan.dawdle_chance + plan.renew_chance:
                verbs, work_ms = [Verb.RENEW], lock_ms * 0.4
            else:
                verbs = self._verbs(hold)

        def due() -> None:
            if (life, number) == (self.life, session.number) and self.sessions.get(session.node_id) is session:
                session.ready.append((hold, verbs))
                self._pump(session.node_id)

        self.after(work_ms, due)

    def _verbs(self, hold: Hold) -> list[Verb]:
        plan, random = self.plan, self.random

        def one() -> Verb:
            drawn = random.random()
            if drawn < plan.release_chance:
                return Verb.RELEASE
            return Verb.REJECT if drawn < plan.release_chance + plan.reject_chance else Verb.ACCEPT

        if random.random() < 0.5:
            return [one()]
        return [one() for _ in range(hold.first, hold.end)]
