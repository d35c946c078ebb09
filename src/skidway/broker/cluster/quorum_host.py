"""This node's part in the metadata quorum: what its machine says is carried, what it appends is synced, and what is
committed is published to the rest of the node.

Everything the machine is told only notes that there is something to do; `work` does it at the end of the turn. So a
vote, an appended batch or a moved watermark never calls back into whoever caused it.

Fetches of the metadata log are no `reads.poll.Poll`: the machine reads and answers them itself, one partition without a
session, and what ends a wait is a new epoch or watermark, not bytes of a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from skidway.broker.api.call import Call
from skidway.broker.cluster.membership import Membership
from skidway.broker.cluster.patient_timer import PatientTimer
from skidway.broker.cluster.peers import Peers
from skidway.broker.cluster.voter_watch import VoterWatch
from skidway.broker.events import MetadataLogCut, MetadataSnapshotNotSaved, OutsiderAsked, QuorumLeft, QuorumTroubled
from skidway.broker.partitions.partition import Partition
from skidway.broker.world import World
from skidway.errors import ErrorCode, NotController, ProtocolError, StorageError
from skidway.log.bounds import Bound
from skidway.log.durability import checkpointing
from skidway.log.durability.sync import SyncTicket
from skidway.metadata.image import Image
from skidway.metadata.records import FORMAT, encode
from skidway.metadata.snapshot import records_of
from skidway.ports import FileSlice
from skidway.quorum.log import MetadataLog
from skidway.quorum.machine import Quorum
from skidway.quorum.messages import (
    Answer,
    Ask,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Request,
    Vote,
)
from skidway.quorum.news import MetadataCut
from skidway.quorum.patience import NEVER
from skidway.quorum.role import Role
from skidway.quorum.snapshots import SnapshotTicket
from skidway.quorum.storage import Memory
from skidway.quorum.voters import Member, Voter, VoterHistory
from skidway.quorum.wire import (
    answer_from_wire,
    answer_to_wire,
    leader_address,
    refusal,
    request_from_wire,
    request_to_wire,
)
from skidway.records.batch import BatchHeader, iter_headers
from skidway.runtime.timers import Timer
from skidway.runtime.turn import TurnNotes
from skidway.wire.message import Message
from skidway.wire.schema.fetch import FetchRequest

PUBLISH_BYTES = 1 << 20
WAITING_MAX = 1_024
"""Fetches that wait for news; past that the one that waits longest is answered early. Each is looked at whenever
something is appended, and whoever can connect can pretend to be a replica."""
EPOCH_LEAP_MAX = 1 << 20
"""A request so many epochs ahead is a mistake or an attack: there is no way back, and epochs are 31 bits. A node that
really missed so many elections learns of it when it asks others itself."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A fetch that found nothing new."""

    request: Fetch
    respond: Callable[[FetchAnswer], None]
    timer: Timer | None = None


class Subscriber(Protocol):
    """The rest of the node, which follows what the quorum says."""

    def on_metadata(self, records: Sequence[Message]) -> None:
        """They are committed."""
        ...

    def on_metadata_replaced(self, image: Image) -> None:
        """A snapshot of committed metadata, in the place of all that came before."""
        ...

    def on_quorum_worked(self, now_ms: int) -> None:
        """The leader, or what is published, may have changed."""
        ...

    def locate(self, node_id: int, host: str, port: int) -> None: ...


class QuorumHost:
    removed = False
    """As of partitions: its files are never taken away."""

    def __init__(
        self,
        world: World,
        turn: TurnNotes[Partition],
        peers: Peers,
        cluster_id: str,
        subscriber: Subscriber,
        me: Member,
        history: VoterHistory,
        log: MetadataLog,
        memory: Memory,
    ) -> None:
        self._world = world
        self._turn = turn
        self._peers = peers
        self._cluster_id = cluster_id
        self._subscriber = subscriber
        self.metadata = log
        self.log = log.log
        self.published_offset = 0
        self._syncing = False
        self._timer = PatientTimer(world.timers, world.clock, self._on_time)
        self._waiting: dict[_Waiting, None] = {}
        self._told = ""
        self._seen = (-1, -1, -1)
        """Epoch, end and watermark when waiting fetches were last looked at."""
        self.quorum = Quorum(me, history, log, memory, world.random, world.settings.quorum, world.clock.monotonic_ms())
        log.on_cut = self._on_cut
        self.membership = Membership(world, peers, cluster_id, self)
        self._watch = VoterWatch(world, self.quorum)
        self._located = self.quorum.voters

    def start(self) -> None:
        """Publish what the newest snapshot says, and take part."""
        self._load_snapshot()
        self.touch()

    def __repr__(self) -> str:
        return "the metadata log"

    def _on_cut(self, cut: MetadataCut) -> None:
        self._world.report(MetadataLogCut(cut, self.quorum.leader, self.quorum.epoch))

    # --- what is known ---

    @property
    def leader_id(self) -> int:
        """-1 when this node knows of none."""
        quorum = self.quorum
        return -1 if quorum.role is Role.RESIGNED else quorum.leader

    @property
    def leads(self) -> bool:
        """With a record of its own epoch committed: what it reads is the truth, and all of it is published."""
        quorum = self.quorum
        return quorum.leads and quorum.followers is not None and self.published_offset > quorum.followers.epoch_start

    @property
    def alone(self) -> bool:
        """Whether nobody else could lead."""
        voters = self.quorum.voters
        return len(voters) == 1 and self.quorum.is_voter

    # --- for the controller ---

    def append(self, batch: memoryview | bytearray, header: BatchHeader, now_ms: int) -> int:
        if not self.quorum.leads:
            raise NotController("this node does not lead the quorum any more")
        offset = self.metadata.append_records(batch, header, self.quorum.epoch, now_ms)
        self.touch()
        return offset

    def read(self, offset: int, max_bytes: int) -> FileSlice | None:
        return self.log.read(offset, max_bytes, Bound.END)

    # --- events ---

    def answer(self, call: Call, message: Message) -> Message | None:
        """A message of another member, for whichever call it came by."""
        try:
            request = request_from_wire(message, self._cluster_id)
        except ProtocolError as error:
            return refusal(message, error.code)
        if self._world.failure is not None:
            return refusal(message, ErrorCode.KAFKA_STORAGE_ERROR)
        if request.epoch > self.quorum.epoch + EPOCH_LEAP_MAX:
            return refusal(message, ErrorCode.INVALID_REQUEST)
        self.touch()
        try:
            return self._answer(call, message, request)
        except StorageError as error:
            self._on_refused(error)
            return refusal(message, ErrorCode.KAFKA_STORAGE_ERROR)

    def _answer(self, call: Call, message: Message, request: Request) -> Message | None:
        now_ms, quorum = call.now_ms, self.quorum
        match request:
            case Vote():
                return self._to_wire(request, quorum.on_vote(request, now_ms))
            case BeginEpoch():
                return self._to_wire(request, quorum.on_begin_epoch(request, now_ms))
            case EndEpoch():
                return self._to_wire(request, quorum.on_end_epoch(request, now_ms))
            case FetchSnapshot():
                return self._to_wire(request, quorum.on_fetch_snapshot(request, now_ms))
            case Fetch():
                assert isinstance(message, FetchRequest)
                call.on_gone = self.on_fetch(
                    request, message.max_wait_ms, now_ms, lambda answer: call.reply(self._to_wire(request, answer))
                )
                return None

    def _to_wire(self, request: Request, answer: Answer) -> Message:
        return answer_to_wire(request, answer, self.quorum.voters.find(answer.leader))

    def touch(self) -> None:
        """Something may be to do at the end of the turn."""
        self._turn.call_at_end(self.work)

    def on_fetch(
        self, request: Fetch, wait_ms: int, now_ms: int, respond: Callable[[FetchAnswer], None]
    ) -> Callable[[], None] | None:
        """A replica asks for the log. Nothing new: it is answered later, unless what is returned is called before."""
        answer = self.quorum.on_fetch(request, now_ms)
        self.touch()
        if wait_ms <= 0 or _is_news(request, answer):
            respond(answer)
            return None
        if len(self._waiting) >= WAITING_MAX:
            self._answer_waiting(next(iter(self._waiting)), late=True)
        waiting = _Waiting(request, respond)
        waiting.timer = self._world.timers.at(
            now_ms + min(wait_ms, self.quorum.settings.fetch_wait_ms), lambda: self._answer_waiting(waiting, late=True)
        )
        self._waiting[waiting] = None
        return lambda: self._forget(waiting)

    def _answer_waiting(self, waiting: _Waiting, *, late: bool = False) -> None:
        if waiting not in self._waiting:
            return
        answer = self.quorum.fetch_answer(waiting.request)
        if late or _is_news(waiting.request, answer):
            self._forget(waiting)
            waiting.respond(answer)

    def _forget(self, waiting: _Waiting) -> None:
        self._waiting.pop(waiting, None)
        if waiting.timer is not None:
            waiting.timer.cancel()

    def resign(self, now_ms: int) -> None:
        self.quorum.resign(now_ms)
        self.touch()

    def _on_time(self, now_ms: int) -> None:
        if self._world.failure is not None:
            return
        try:
            self.quorum.on_time(now_ms)
        except StorageError as error:
            self._on_refused(error)
        self.touch()

    def _on_refused(self, error: StorageError) -> None:
        """The disk did not take what must be remembered. Told once, however often it is tried."""
        if str(error) != self._told:
            self._told = str(error)
            self._world.report(QuorumLeft(str(error)))

    # --- the end of a turn ---

    def work(self, now_ms: int) -> None:
        """Carry what the machine asks, note what wants a sync, publish what is committed."""
        outbox, self.quorum.outbox = self.quorum.outbox, []
        failed = self._world.failure is not None
        for ask in outbox:
            # Who cannot write any more has one thing left to say: that others should lead.
            if not failed or isinstance(ask.request, EndEpoch):
                self._carry(ask, now_ms)
        if self.log.dirty:
            self._turn.wants_sync(self)
        self._publish()
        seen = (self.quorum.epoch, self.log.end_offset, self.quorum.high_watermark)
        if seen != self._seen:
            self._seen = seen
            for waiting in list(self._waiting):
                self._answer_waiting(waiting)
        self._subscriber.on_quorum_worked(now_ms)
        if not failed:
            self._follow_voters(now_ms)
            self._watch.work(self.leader_id, now_ms)
            self._tell_trouble()
            if self.quorum.deadline_ms < NEVER:
                self._timer.arm(self.quorum.deadline_ms)

    def _follow_voters(self, now_ms: int) -> None:
        if self.quorum.voters is not self._located:
            self._located = self.quorum.voters
            for voter in self._located:
                if voter.host:
                    self._subscriber.locate(voter.member.node_id, voter.host, voter.port)
        self.membership.work(now_ms)

    def _carry(self, ask: Ask, now_ms: int) -> None:
        def answered(response: Message | None) -> None:
            then_ms = self._world.clock.monotonic_ms()
            try:
                answer = None if response is None else answer_from_wire(ask.request, response)
            except ProtocolError as error:
                self._world.report(OutsiderAsked(ask.to, str(error)))
                answer = None
            if self._world.failure is not None:
                return
            if answer is not None:
                self._locate_leader(response)
            try:
                if answer is None:
                    self.quorum.on_unanswered(ask.to, ask.request, then_ms)
                else:
                    self.quorum.on_answer(ask.to, ask.request, answer, then_ms)
            except StorageError as error:
                self._on_refused(error)
                self.quorum.try_later(then_ms)
            self.touch()

        here = self._world.settings.listeners.inter_broker.advertised
        me = Voter(self.quorum.me, here.host, here.port)
        message = request_to_wire(ask.request, me, self._cluster_id, wait_ms=self.quorum.settings.fetch_wait_ms)
        timeout_ms = self.quorum.settings.request_timeout_ms
        self._peers.ask(ask.to, _channel(ask.request), message, now_ms, timeout_ms, answered)

    def _locate_leader(self, response: Message | None) -> None:
        """A leader that this node was never told of: whoever it asked knows where that is. What a request says of
        itself is not believed, for anybody could make it."""
        address = leader_address(response)
        if address is not None and self._peers.address_of(address[0]) is None:
            self._subscriber.locate(*address)

    def _tell_trouble(self) -> None:
        trouble = self.quorum.trouble
        if trouble is not None and trouble != self._told:
            self._told = trouble
            self._world.report(QuorumTroubled(trouble))

    def _load_snapshot(self) -> None:
        """The newest snapshot has taken the place of the log below its end."""
        snapshot = self.metadata.snapshot
        if snapshot is None or snapshot.end_offset <= self.published_offset:
            return
        image = Image()
        for batch in self.metadata.snapshot_batches():
            for record in FORMAT.from_batches(batch):
                image.apply(record)
        self.published_offset = snapshot.end_offset
        self._subscriber.on_metadata_replaced(image)

    def publish_own(self) -> None:
        """For a quorum of one that cannot lead: nobody else could ever have decided otherwise."""
        assert self.alone
        self.quorum.high_watermark = max(self.quorum.high_watermark, self.log.synced_offset)
        self._publish()

    def begin_snapshot(self, image: Image, wall_ms: int) -> SnapshotTicket | None:
        """Of all that is published, when the log has grown enough since the last one."""
        if self.metadata.bytes_since_snapshot < self._world.limits.metadata_snapshot_bytes:
            return None
        # The records share nothing with the image that changes; they are encoded by whoever runs the ticket.
        records = list(records_of(image))
        voters = self.quorum.history.at(self.published_offset)
        return self.metadata.begin_snapshot_of(
            self.published_offset, voters, ((None, encode(record)) for record in records), wall_ms
        )

    def finish_snapshot(self, ticket: SnapshotTicket, error: OSError | None) -> None:
        self.metadata.finish_snapshot_of(ticket)
        if error is not None:
            self._world.report(MetadataSnapshotNotSaved(str(error)))
        elif ticket.done:
            self.quorum.history.forget_before(self.log.start_offset)

    def _publish(self) -> None:
        if self.log.start_offset > self.published_offset:
            self._load_snapshot()
        committed = min(self.quorum.high_watermark, self.log.end_offset)
        if committed <= self.published_offset:
            return
        self.log.advance_high_watermark(committed)
        while self.published_offset < committed:
            found = self.log.read(self.published_offset, PUBLISH_BYTES)
            assert found is not None, f"committed metadata at {self.published_offset} is not there"
            data = found.read()
            records = list(FORMAT.from_batches(data))
            self.published_offset = [header for _, header in iter_headers(data)][-1].last_offset + 1
            self._subscriber.on_metadata(records)

    # --- syncing, as partitions do ---

    def begin_sync(self) -> SyncTicket | None:
        if self._syncing:
            return None
        ticket = self.log.begin_sync()
        self._syncing = ticket is not None
        return ticket

    def begin_checkpoint(self) -> SyncTicket | None:
        return checkpointing.begin(self.log)

    def finish_sync(self, ticket: SyncTicket, *, housekept: bool = True) -> None:
        if not ticket.is_checkpoint:
            self._syncing = False
        if housekept:
            self.log.finish_sync(ticket)
        else:
            self.log.finish_without_housekeeping(ticket)
        self.quorum.on_synced(self._world.clock.monotonic_ms())
        self.touch()

    def give_back_sync(self, ticket: SyncTicket) -> None:
        """A worker could not do it because too many files were open: it is to be done again."""
        if not ticket.is_checkpoint:
            self._syncing = False
        self.log.give_back_sync(ticket)

    def fail(self, reason: str) -> None:
        """The disk failed: this member neither votes nor leads until it is started anew."""
        self.log.fail(reason)
        if not self.alone:
            self.resign(self._world.clock.monotonic_ms())


def _is_news(request: Fetch, answer: FetchAnswer) -> bool:
    return bool(
        answer.error
        or len(answer.records)
        or answer.diverging is not None
        or answer.snapshot is not None
        or answer.high_watermark > request.high_watermark
    )


def _channel(request: Request) -> str:
    # A fetch may wait for news; votes must not wait behind it.
    return "metadata" if isinstance(request, Fetch | FetchSnapshot) else "quorum"
