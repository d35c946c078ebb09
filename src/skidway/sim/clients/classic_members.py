"""Members of a group by the classic protocol: all join, one of them assigns, everybody asks for its part.

Eager, as most clients are: when a rebalance begins, a member commits what it has read, gives everything up and joins
again. What was not answered is not asked again of another coordinator; the member joins anew, as clients do.
"""

from __future__ import annotations

from collections.abc import Callable

from skidway.errors import ErrorCode
from skidway.ports import Buffer
from skidway.sim.clients.members import BEAT_MS, ELSEWHERE, REBALANCE_TIMEOUT_MS, RETRY_MS, Member
from skidway.sim.clients.readers import Partition
from skidway.sim.world.events import Violation
from skidway.wire.message import Message
from skidway.wire.registry import codec
from skidway.wire.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from skidway.wire.schema.heartbeat import HeartbeatRequest, HeartbeatResponse
from skidway.wire.schema.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from skidway.wire.schema.leave_group import LeaveGroupRequest, MemberIdentity
from skidway.wire.schema.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

SESSION_TIMEOUT_MS = 4_000
RESTART_MS = 4_000
JOIN_MS = 8_000
"""Longer than a rebalance takes that somebody is waited for in."""
ANSWER_MS = 2_000
PROTOCOL_TYPE = "consumer"
PROTOCOL = "range"
VERSION = 1
"""Of what members say to each other."""
JOIN_AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
NOBODY = ""


class ClassicMember(Member):
    """Its epoch is the generation; 0: it is in none."""

    _asking = False
    """One request at a time: to find, to join, to sync or to be heard."""
    restarts = 0
    """So many are still to come: in the end a group has to come to rest."""

    def start(self) -> None:
        self.member_id = NOBODY
        super().start()
        self.every(RESTART_MS, self._restart)

    def _asks_as(self) -> tuple[str | None, int]:
        return None, -1

    # --- one step after another ---

    def _beat(self) -> None:
        if self._asking:
            return
        self._asking = True
        if self.coordinator < 0:
            self._find(lambda: self._next(0))
        elif self.epoch == 0:
            self._join()
        else:
            request = HeartbeatRequest(self.group, self.epoch, self.member_id)
            life = self._life
            self.ask(self.coordinator, request, lambda reply: self._on_heartbeat(life, reply), ANSWER_MS)

    def _next(self, wait_ms: float) -> None:
        self._asking = False
        self.after(wait_ms, self._beat)

    def _refused(self, code: int | None, what: str) -> None:
        """None: nobody answered."""
        if code is None or code in ELSEWHERE:
            self.coordinator = -1
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = NOBODY
        elif code not in JOIN_AGAIN:
            raise Violation("client-errors", f"{self.place} got {ErrorCode(code).name} for a {what}")

    def _on_heartbeat(self, life: int, reply: HeartbeatResponse | None) -> None:
        code = None if reply is None else reply.error_code
        if code == ErrorCode.NONE or life != self._life:
            self._next(BEAT_MS * (0.7 + 0.6 * self.random.random()))
            return
        self._refused(code, "heartbeat")
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._commit(list(self.owned), lambda: self._rejoin("a rebalance"))
        elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            self._rejoin(ErrorCode(code).name)
        self._next(RETRY_MS)

    def _restart(self) -> None:
        """As somebody else: the one before says good-bye, or it is waited for until its session is over."""
        if self.epoch == 0 or self.restarts == 0:
            return
        self.restarts -= 1
        if self.random.random() < 0.7:
            leaving = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(self.member_id)])
            self.ask(self.coordinator, leaving, lambda reply: None, ANSWER_MS)
        self.member_id = NOBODY
        self._rejoin("a restart")

    # --- joining ---

    def _join(self) -> None:
        metadata = _write(ConsumerProtocolSubscription(topics=list(self.counts)))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(PROTOCOL, metadata)],
        )
        self.ask(self.coordinator, request, self._on_join, JOIN_MS)

    def _on_join(self, reply: JoinGroupResponse | None) -> None:
        code = None if reply is None else reply.error_code
        if reply is not None and code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self._next(0)
        elif reply is None or code != ErrorCode.NONE:
            self._refused(code, "join")
            self._next(RETRY_MS)
        else:
            self.member_id = reply.member_id
            self._sync(reply)

    def _sync(self, joined: JoinGroupResponse) -> None:
        """Nobody leads where the coordinator assigns, for members of both protocols."""
        generation, led = joined.generation_id, joined.leader != NOBODY
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == self.member_id:
            shared = self._share([member.member_id for member in joined.members])
            self.laws.saying(self.group, generation, shared)
            assignments = [SyncGroupRequestAssignment(member, _assignment(keys)) for member, keys in shared.items()]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        asked_us = self.world.now_us

        def answered(reply: SyncGroupResponse | None) -> None:
            code = None if reply is None else reply.error_code
            if reply is None or code != ErrorCode.NONE:
                self._refused(code, "sync")
                self._next(RETRY_MS)
                return
            given = _partitions(reply.assignment)
            self.laws.synced(self.member_id, self.group, generation, given, asked_us, led=led)
            self.world.mark("classic generation" if led else "classic member of a consumer group")
            self.epoch, self.target = generation, given
            self._reconcile()
            self._next(BEAT_MS)

        self.ask(self.coordinator, request, answered, JOIN_MS)

    def _share(self, members: list[str]) -> dict[str, list[Partition]]:
        """Round robin, from another one each time: it is seen where an older assignment is taken for a new one."""
        keys = [(topic, index) for topic, count in sorted(self.counts.items()) for index in range(count)]
        shared: dict[str, list[Partition]] = {member: [] for member in sorted(members)}
        first = self.random.randrange(len(shared))
        for number, key in enumerate(keys, first):
            shared[sorted(members)[number % len(members)]].append(key)
        return shared

    # --- commits ---

    def _committed(self, codes: dict[Partition, int], partitions: list[Partition], then: Callable[[], None]) -> None:
        """Whatever became of it: a rebalance does not wait, and what is still owned is committed again later."""
        if any(code in ELSEWHERE for code in codes.values()) or not codes:
            self.coordinator = -1
        if ErrorCode.UNKNOWN_MEMBER_ID in codes.values():
            self.member_id = NOBODY
            self._rejoin("a commit was refused")
        else:
            then()


def _write(message: Message) -> bytes:
    parts: list[Buffer] = [VERSION.to_bytes(2, "big")]
    codec(type(message)).encoder(VERSION)(message, parts)  # type: ignore[arg-type]
    return b"".join(parts)


def _assignment(keys: list[Partition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in keys:
        topics.setdefault(topic, []).append(index)
    named = [ConsumerProtocolAssignmentTopicPartition(topic, indexes) for topic, indexes in topics.items()]
    return _write(ConsumerProtocolAssignment(assigned_partitions=named))


def _partitions(data: Buffer) -> list[Partition]:
    """Whom the leader forgot gets no bytes at all."""
    if not len(data):
        return []
    version = int.from_bytes(data[:2], "big")
    message, _ = codec(ConsumerProtocolAssignment).decoder(version)(data, 2)
    return [(each.topic, index) for each in message.assigned_partitions for index in each.partitions]
