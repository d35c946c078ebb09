"""The active controller, on the node that leads the quorum; on all others there is none.

It begins with what is published here, which at that moment is all there is: a leader counts as one only when a record
of its own epoch is committed. When the leadership is lost its state is thrown away, and whoever waits is told so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from skidway.broker.quorum_host import STALL_MS
from skidway.errors import NotController, ProtocolError, StorageError
from skidway.metadata.controller import Controller, ControllerSettings
from skidway.metadata.operations import Bootstrap, ControllerStarted
from skidway.metadata.records import FORMAT
from skidway.metadata.snapshot import records_of
from skidway.ports import FileSlice
from skidway.records.batch import BatchHeader
from skidway.runtime.log_store import LogStore
from skidway.runtime.replicated import Operation, Replicated
from skidway.runtime.timers import Timer
from skidway.wire.message import Message

if TYPE_CHECKING:
    from skidway.broker.node import Node
    from skidway.broker.quorum_host import QuorumHost

Reply = TypeVar("Reply")


class ControllerHost:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.active: Replicated[Controller, Message] | None = None
        self._epoch = -1
        self._predecessor = -1
        """Who led the quorum last, as far as this node heard."""
        self._timer: Timer | None = None

    def submit(
        self, operation: Operation[Reply], now_ms: int, respond: Callable[[Reply | ProtocolError], None]
    ) -> None:
        """`respond` gets the answer when it is committed and published here."""
        if self.active is None:
            respond(NotController("this node is not the active controller"))
            return
        active, machine = self.active, self.active.machine
        active.submit(operation, now_ms, respond)
        if active.machine is not machine:
            # What could not be written was thrown away, and with it who was heard of when: watch everybody anew.
            active.submit(ControllerStarted(), now_ms, _ignore)
        self._arm()

    def follow_quorum(self, now_ms: int) -> None:
        """Begin or end with the leadership of the quorum, and answer what is committed by now."""
        quorum = self._node.quorum
        if quorum.leader_id not in (-1, self._node.settings.node_id):
            self._predecessor = quorum.leader_id
        if self.active is not None and not (quorum.quorum.leads and quorum.quorum.epoch == self._epoch):
            self.lose(NotController("this node does not lead the quorum any more"))
        if self.active is None and quorum.leads:
            self._begin(quorum, now_ms)
        if self.active is not None:
            self.active.on_committed(quorum.published_offset)
            self._arm()

    def lose(self, error: ProtocolError) -> None:
        """What was not committed may still become so under another controller; here nobody knows."""
        lost, self.active = self.active, None
        if self._timer is not None:
            self._timer.cancel()
        if lost is not None:
            if not self._node.quorum.alone:
                self._node.on_event("no longer the active controller")
            lost.close(error)
            # The next one suspects this node until it is heard of.
            self._node.registration.tell()

    def _begin(self, quorum: QuorumHost, now_ms: int) -> None:
        self._epoch = quorum.quorum.epoch
        store = LogStore(_Tail(quorum), self._node.clock, FORMAT)
        self.active = Replicated(self._new_controller, store)
        if len(quorum.quorum.voters) > 1:
            self._node.on_event(f"the active controller, epoch {self._epoch}")
        self.active.submit(Bootstrap(), now_ms, _ignore)
        self.active.submit(ControllerStarted(self._predecessor), now_ms, _ignore)
        self._predecessor = -1

    def _new_controller(self) -> Controller:
        node, settings = self._node, self._node.settings
        controller = Controller(
            node.random,
            node.limits,
            ControllerSettings(
                settings.node_id,
                settings.default_partitions,
                settings.default_replication_factor,
                settings.static_configs(node.limits),
                # Where voters are brokers as well, all of them are to come: internal topics wait for them.
                brokers_expected=len(node.quorum.quorum.voters) if settings.is_broker else 1,
                session_timeout_ms=settings.session_timeout_ms,
            ),
        )
        for record in records_of(node.image):
            controller.apply(record)
        return controller

    def _arm(self) -> None:
        if self.active is None or self._node.failure is not None or self._watches_nobody():
            return
        deadline_ms = max(self.active.machine.deadline_ms, self._node.clock.monotonic_ms())
        timer = self._timer
        if timer is not None and timer.armed:
            if timer.deadline_ms <= deadline_ms:
                return
            timer.cancel()
        self._timer = self._node.timers.at(deadline_ms, lambda: self._tick(deadline_ms))

    def _tick(self, due_ms: int, *, late: bool = False) -> None:
        now_ms = self._node.clock.monotonic_ms()
        if now_ms - due_ms > STALL_MS and not late:
            # This node stood still: what others said meanwhile is in its sockets and must be heard first.
            self._timer = self._node.timers.at(now_ms + STALL_MS, lambda: self._tick(due_ms, late=True))
        elif self.active is not None and self._node.failure is None:
            for operation in self.active.machine.due(now_ms):
                self.submit(operation, now_ms, _ignore)
            self._arm()

    def _watches_nobody(self) -> bool:
        """A broker that is alone with its controller is alive if that is, and nobody could take its place."""
        node = self._node
        return node.quorum.alone and set(node.image.brokers) <= {node.settings.node_id}


class _Tail:
    """The metadata log from what is published on, as the log of a machine."""

    __slots__ = ("_quorum",)

    def __init__(self, quorum: QuorumHost) -> None:
        self._quorum = quorum

    @property
    def start_offset(self) -> int:
        return self._quorum.published_offset

    @property
    def end_offset(self) -> int:
        return self._quorum.log.end_offset

    @property
    def high_watermark(self) -> int:
        # Answers wait until this node itself has followed.
        return self._quorum.published_offset

    def append(self, batch: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int) -> int:
        try:
            return self._quorum.append(batch, header, now_ms)
        except StorageError:
            if not self._quorum.alone:
                # Whoever cannot write must not decide: another voter may have room.
                self._quorum.resign(self._quorum.node.clock.monotonic_ms())
            raise

    def read(self, offset: int, max_bytes: int, *, committed: bool = True, min_one: bool = True) -> FileSlice | None:
        return self._quorum.read(offset, max_bytes)


def _ignore(reply: object) -> None:
    pass
