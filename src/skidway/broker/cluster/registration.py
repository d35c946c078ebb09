"""This broker's membership in the cluster, from its registration to its departure.

registering     the controller is asked for a broker epoch, again and again until it answers
catching up     metadata is followed up to the own registration; then the partitions are opened, and heartbeats ask to
                stay fenced until they are
member          heartbeats; the controller unfences it
leaving         heartbeats that ask to go, until nothing depends on this broker any more
"""

from __future__ import annotations

from collections.abc import Callable

from skidway.broker.cluster.controller_access import ControllerAccess
from skidway.broker.cluster.quorum_host import QuorumHost
from skidway.broker.events import FencedHere, JoinedCluster, RegistrationRefused
from skidway.broker.identity import Identity
from skidway.broker.last_run import LastRun
from skidway.broker.partitions.damaged import DamagedCopies
from skidway.broker.partitions.hosting import Hosting
from skidway.broker.partitions.room import Room
from skidway.broker.world import World
from skidway.errors import ErrorCode
from skidway.limits import INT64_MAX
from skidway.metadata.features import SUPPORTED
from skidway.runtime.timers import Timer
from skidway.wire.message import Message
from skidway.wire.schema.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from skidway.wire.schema.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

RETRY_MS = 50
QUIET_MS = 10_000
"""A cluster that comes up has no controller for a moment: nothing is reported at first."""
UNHEARD_MS = 3_000
"""So long a leaving broker waits for a controller to answer."""
CUT_OFF_SESSIONS = 2
"""A broker that hears nothing for so many sessions takes itself for cut off. One would do, on an idle machine."""
CHANNEL = "heartbeat"


class Registration:
    def __init__(
        self,
        world: World,
        identity: Identity,
        incarnation_id: bytes,
        previous_epoch: int,
        last_run: LastRun,
        hosting: Hosting,
        quorum: QuorumHost,
        controller: ControllerAccess,
        damaged: DamagedCopies,
        room: Room,
        open_partitions: Callable[[], None],
    ) -> None:
        """`previous_epoch` is the broker epoch of a run that ended cleanly, or -1. `open_partitions` is called once
        the metadata is known up to the own registration."""
        self._world = world
        self._identity = identity
        self._incarnation_id = incarnation_id
        self._previous_epoch = previous_epoch
        self._last_run = last_run
        self._hosting = hosting
        self._quorum = quorum
        self._controller = controller
        self._damaged = damaged
        self._room = room
        self._open_partitions = open_partitions
        unanswered = last_run.unanswered
        if unanswered is not None:
            self._incarnation_id, self._previous_epoch = unanswered
        self._timer: Timer | None = None
        self._asking = False
        self._quiet_until_ms = self._world.clock.monotonic_ms() + QUIET_MS
        self._heard_ms = 0
        """When a controller last answered."""
        self.counted_on_until_ms = INT64_MAX
        """After that, without a controller's answer, others lead what this broker led, as far as it can know."""
        self.epoch = -1
        self.fenced = True
        self.leaving = False
        self.departed = False
        """Nothing depends on this broker any more, or it never was a member."""

    def start(self) -> None:
        if self.epoch < 0:
            self._last_run.note_registering(self._incarnation_id, self._previous_epoch)
        self._again(0)

    def registered(self, epoch: int, *, fenced: bool) -> None:
        self.epoch = epoch
        self.fenced = fenced
        self._follow()

    def leave(self) -> None:
        """Ask to be let go; `departed` says when."""
        self.leaving = True
        self._heard_ms = self._world.clock.monotonic_ms()
        alone = self._controller.is_here and len(self._hosting.image.brokers) == 1
        if self.epoch < 0 or alone or self._world.failure is not None:
            self.departed = True
        else:
            self._again(0)

    def tell(self) -> None:
        """There is something the controller should know now."""
        if self.epoch >= 0:
            self._again(0)

    def on_metadata(self) -> None:
        """Something was published."""
        self._follow()

    def _follow(self) -> None:
        registered = self._hosting.image.brokers.get(self._world.settings.node_id)
        if self.epoch < 0 or registered is None or registered.epoch != self.epoch:
            return
        if not self._hosting.begun:
            self._open_partitions()
        if registered.fenced != self.fenced:
            self.fenced = registered.fenced
            self._world.report(FencedHere() if self.fenced else JoinedCluster())
            if self.fenced:
                self._again(0)

    # --- talking to the controller ---

    def _again(self, wait_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self._world.clock.monotonic_ms()
        self._timer = self._world.timers.at(now_ms + wait_ms, self._act)

    def _act(self) -> None:
        if self._asking or self.departed:
            return
        if self.epoch < 0:
            self._ask(self._registration())
        else:
            self._ask(
                BrokerHeartbeatRequest(
                    self._world.settings.node_id,
                    self.epoch,
                    # The last one known, as Kafka's brokers tell it, not the next.
                    self._quorum.published_offset - 1,
                    want_fence=not self._hosting.started
                    or (self.fenced and self._damaged.lost.has_news)
                    or self._cannot_write(),
                    want_shut_down=self.leaving,
                )
            )

    def _cannot_write(self) -> bool:
        """Whether others should lead: the disk failed, or is full and there are others."""
        if self._world.failure is not None:
            return True
        others = any(
            broker.active
            for broker in self._hosting.image.brokers.values()
            if broker.id != self._world.settings.node_id
        )
        return others and self._room.is_full

    def _ask(self, request: Message) -> None:
        self._asking = True
        now_ms = self._world.clock.monotonic_ms()
        self._controller.ask(request, self._on_answer, now_ms, self._world.settings.session_timeout_ms, CHANNEL)

    def _registration(self) -> BrokerRegistrationRequest:
        settings = self._world.settings
        return BrokerRegistrationRequest(
            broker_id=settings.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(spec.name, spec.advertised.host, spec.advertised.port, spec.security)
                for spec in settings.listeners
            ],
            features=[Feature(name, *levels) for name, levels in sorted(SUPPORTED.items())],
            rack=settings.rack,
            log_dirs=[self._identity.directory_id],
            previous_broker_epoch=self._previous_epoch,
        )

    def _on_answer(self, response: Message | None) -> None:
        self._asking = False
        wait_ms = RETRY_MS
        now_ms = self._world.clock.monotonic_ms()
        if response is not None:
            self._heard_ms = now_ms
            self.counted_on_until_ms = now_ms + CUT_OFF_SESSIONS * self._world.settings.session_timeout_ms
        elif self.leaving and now_ms >= self._heard_ms + UNHEARD_MS:
            # The others are gone as well, or cut off: nobody could take over.
            self.departed = True
        match response:
            case BrokerRegistrationResponse(error_code=ErrorCode.NONE):
                self._previous_epoch = response.broker_epoch
                self._last_run.note_registered(response.broker_epoch)
                self.registered(response.broker_epoch, fenced=True)
                wait_ms = 0
            case BrokerRegistrationResponse():
                if now_ms >= self._quiet_until_ms:
                    self._world.report(RegistrationRefused(ErrorCode(response.error_code)))
            case BrokerHeartbeatResponse(error_code=ErrorCode.NONE):
                self.departed = self.leaving and response.should_shut_down
                wait_ms = RETRY_MS if self.leaving or self.fenced else self._world.settings.heartbeat_ms
            case BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH | ErrorCode.BROKER_ID_NOT_REGISTERED):
                self.epoch = -1
        self._again(wait_ms)
