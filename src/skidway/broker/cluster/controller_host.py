"""The active controller, on the node that leads the quorum; on all others there is none.

It begins with what is published here, which at that moment is all there is: a leader counts as one only when a record
of its own epoch is committed. When the leadership is lost its state is thrown away, and whoever waits is told so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from skidway.broker.cluster.chronicle import Chronicle
from skidway.broker.cluster.patient_timer import PatientTimer
from skidway.broker.cluster.quorum_host import QuorumHost
from skidway.broker.events import ControllerChanged, ControllerLost
from skidway.broker.world import World
from skidway.errors import NotController, ProtocolError, StorageError
from skidway.log.bounds import Bound
from skidway.metadata.controller import Controller, ControllerSettings
from skidway.metadata.features import FIRST_LEVELS
from skidway.metadata.image import Image
from skidway.metadata.operations import Bootstrap, ControllerStarted
from skidway.metadata.records import FORMAT
from skidway.metadata.snapshot import records_of
from skidway.ports import Clock, FileSlice
from skidway.records.batch import BatchHeader
from skidway.runtime.log_store import LogStore
from skidway.runtime.replicated import Now, Operation, Replicated
from skidway.wire.message import Message

Reply = TypeVar("Reply")


class ControllerHost:
    def __init__(
        self, world: World, image: Image, quorum: QuorumHost, chronicle: Chronicle, on_lost: Callable[[], None]
    ) -> None:
        """`on_lost`: another node has the active controller from now on."""
        self._world = world
        self._image = image
        self._quorum = quorum
        self._chronicle = chronicle
        self._on_lost = on_lost
        self.active: Replicated[Controller, Message] | None = None
        self._epoch = -1
        self._predecessor = -1
        """Who led the quorum last, as far as this node heard."""
        self._timer = PatientTimer(world.timers, world.clock, self._tick)

    def submit(
        self, operation: Operation[Reply], now_ms: int, respond: Callable[[Reply | ProtocolError], None]
    ) -> None:
        """`respond` gets the answer when it is committed and published here."""
        if self.active is None:
            respond(NotController("this node is not the active controller"))
            return
        self._chronicle.note(operation)
        active, machine = self.active, self.active.machine
        now = Now(now_ms, self._world.clock.wall_ms())
        active.submit(operation, now, respond)
        if active.machine is not machine:
            # What could not be written was thrown away, and with it who was heard of when: watch everybody anew.
            active.submit(ControllerStarted(), now, _ignore)
        self._arm()

    def follow_quorum(self, now_ms: int) -> None:
        """Begin or end with the leadership of the quorum, and answer what is committed by now."""
        quorum = self._quorum
        if quorum.leader_id not in (-1, self._world.settings.node_id):
            self._predecessor = quorum.leader_id
        if self.active is not None and not (quorum.quorum.leads and quorum.quorum.epoch == self._epoch):
            self.lose(NotController("this node does not lead the quorum any more"))
        if self.active is None and quorum.leads:
            self._begin(now_ms)
        if self.active is not None:
            self.active.on_committed(quorum.published_offset)
            self._arm()

    def lose(self, error: ProtocolError) -> None:
        """What was not committed may still become so under another controller; here nobody knows."""
        lost, self.active = self.active, None
        self._timer.cancel()
        if lost is not None:
            if not self._quorum.alone:
                self._world.report(ControllerLost())
            lost.close(error)
            # The next one suspects this node until it is heard of.
            self._on_lost()

    def _begin(self, now_ms: int) -> None:
        quorum = self._quorum
        self._epoch = quorum.quorum.epoch
        store = LogStore(_Tail(quorum, self._world.clock), self._world.clock, FORMAT)
        self.active = Replicated(self._new_controller, store)
        if len(quorum.quorum.voters) > 1:
            self._world.report(ControllerChanged(self._world.settings.node_id, self._epoch, here=True))
        now = Now(now_ms, self._world.clock.wall_ms())
        self.active.submit(Bootstrap(FIRST_LEVELS), now, _ignore)
        self.active.submit(ControllerStarted(self._predecessor), now, _ignore)
        self._predecessor = -1

    def _new_controller(self) -> Controller:
        settings = self._world.settings
        controller = Controller(
            self._world.random,
            self._world.limits,
            ControllerSettings(
                settings.node_id,
                settings.default_partitions,
                settings.default_replication_factor,
                settings.static_configs(self._world.limits),
                # Where voters are brokers as well, all of them are to come: internal topics wait for them.
                brokers_expected=len(self._quorum.quorum.voters) if settings.is_broker else 1,
                session_timeout_ms=settings.session_timeout_ms,
            ),
        )
        for record in records_of(self._image):
            controller.apply(record)
        return controller

    def _arm(self) -> None:
        if self.active is None or self._world.failure is not None or self._watches_nobody():
            return
        self._timer.arm(max(self.active.machine.deadline_ms, self._world.clock.monotonic_ms()))

    def _tick(self, now_ms: int) -> None:
        if self.active is not None and self._world.failure is None:
            for operation in self.active.machine.due(now_ms):
                self.submit(operation, now_ms, _ignore)
            self._arm()

    def _watches_nobody(self) -> bool:
        """A broker that is alone with its controller is alive if that is, and nobody could take its place."""
        return self._quorum.alone and set(self._image.brokers) <= {self._world.settings.node_id}


class _Tail:
    """The metadata log from what is published on, as the log of a machine."""

    __slots__ = ("_clock", "_quorum")

    def __init__(self, quorum: QuorumHost, clock: Clock) -> None:
        self._quorum = quorum
        self._clock = clock

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
                self._quorum.resign(self._clock.monotonic_ms())
            raise

    def read(
        self, offset: int, max_bytes: int, upto: Bound = Bound.HIGH_WATERMARK, *, min_one: bool = True
    ) -> FileSlice | None:
        return self._quorum.read(offset, max_bytes)


def _ignore(reply: object) -> None:
    pass
