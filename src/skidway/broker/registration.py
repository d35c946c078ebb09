"""This broker's membership in the cluster, from its registration to its departure.

registering     the controller is asked for a broker epoch, again and again until it answers
catching up     metadata is followed up to the own registration; then the partitions are opened, and heartbeats ask to
                stay fenced until they are
member          heartbeats; the controller unfences it
leaving         heartbeats that ask to go, until nothing depends on this broker any more
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.limits import INT64_MAX
from skidway.runtime.timers import Timer
from skidway.wire.message import Message
from skidway.wire.schema.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from skidway.wire.schema.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
)

if TYPE_CHECKING:
    from skidway.broker.node import Node

RETRY_MS = 50
TOLD_EVERY_MS = 10_000
UNHEARD_MS = 3_000
"""So long a leaving broker waits for a controller to answer."""
CUT_OFF_SESSIONS = 2
"""A broker that hears nothing for so many sessions takes itself for cut off. One would do, on an idle machine."""
CHANNEL = "heartbeat"


class Registration:
    def __init__(self, node: Node, directory_id: bytes, previous_epoch: int) -> None:
        """`previous_epoch` is the broker epoch of a run that ended cleanly, or -1."""
        self._node = node
        self._directory_id = directory_id
        self._previous_epoch = previous_epoch
        self._incarnation_id = node.random.randbytes(16)
        self._timer: Timer | None = None
        self._asking = False
        self._told_ms = node.clock.monotonic_ms()
        """A cluster that comes up has no controller for a moment: nothing is told at first."""
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
        self._again(0)

    def registered(self, epoch: int, *, fenced: bool) -> None:
        self.epoch = epoch
        self.fenced = fenced
        self._follow()

    def leave(self) -> None:
        """Ask to be let go; `departed` says when."""
        self.leaving = True
        self._heard_ms = self._node.clock.monotonic_ms()
        alone = self._node.controls and len(self._node.image.brokers) == 1
        if self.epoch < 0 or alone or self._node.failure is not None:
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
        node = self._node
        registered = node.image.brokers.get(node.settings.node_id)
        if self.epoch < 0 or registered is None or registered.epoch != self.epoch:
            return
        if not node.hosting.begun:
            node.start.begin_hosting()
        if registered.fenced != self.fenced:
            self.fenced = registered.fenced
            node.on_event("fenced by the controller" if self.fenced else "a member of the cluster")
            if self.fenced:
                self._again(0)

    # --- talking to the controller ---

    def _again(self, wait_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self._node.clock.monotonic_ms()
        self._timer = self._node.timers.at(now_ms + wait_ms, self._act)

    def _act(self) -> None:
        if self._asking or self.departed:
            return
        node = self._node
        if self.epoch < 0:
            self._ask(self._registration())
        else:
            self._ask(
                BrokerHeartbeatRequest(
                    node.settings.node_id,
                    self.epoch,
                    # The last one known, as Kafka's brokers tell it, not the next.
                    node.metadata_offset - 1,
                    want_fence=not node.hosting.started or self._cannot_write(),
                    want_shut_down=self.leaving,
                )
            )

    def _cannot_write(self) -> bool:
        """Whether others should lead: the disk failed, or is full and there are others."""
        node = self._node
        if node.failure is not None:
            return True
        others = any(broker.active for broker in node.image.brokers.values() if broker.id != node.settings.node_id)
        return others and node.room.is_full

    def _ask(self, request: Message) -> None:
        node = self._node
        self._asking = True
        now_ms = node.clock.monotonic_ms()
        node.ask_controller(request, self._on_answer, now_ms, node.settings.session_timeout_ms, CHANNEL)

    def _registration(self) -> BrokerRegistrationRequest:
        settings = self._node.settings
        return BrokerRegistrationRequest(
            broker_id=settings.node_id,
            cluster_id=self._node.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[Listener("PLAINTEXT", settings.host, settings.port, 0)],
            rack=settings.rack,
            log_dirs=[self._directory_id],
            previous_broker_epoch=self._previous_epoch,
        )

    def _on_answer(self, response: Message | None) -> None:
        self._asking = False
        wait_ms = RETRY_MS
        now_ms = self._node.clock.monotonic_ms()
        if response is not None:
            self._heard_ms = now_ms
            self.counted_on_until_ms = now_ms + CUT_OFF_SESSIONS * self._node.settings.session_timeout_ms
        elif self.leaving and now_ms >= self._heard_ms + UNHEARD_MS:
            # The others are gone as well, or cut off: nobody could take over.
            self.departed = True
        match response:
            case BrokerRegistrationResponse(error_code=ErrorCode.NONE):
                self._previous_epoch = response.broker_epoch
                self._node.last_run.note(response.broker_epoch)
                self.registered(response.broker_epoch, fenced=True)
                wait_ms = 0
            case BrokerRegistrationResponse():
                self._tell(f"not registered yet: {ErrorCode(response.error_code).name}")
            case BrokerHeartbeatResponse(error_code=ErrorCode.NONE):
                self.departed = self.leaving and response.should_shut_down
                wait_ms = RETRY_MS if self.leaving or self.fenced else self._node.settings.heartbeat_ms
            case BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH | ErrorCode.BROKER_ID_NOT_REGISTERED):
                self.epoch = -1
        self._again(wait_ms)

    def _tell(self, line: str) -> None:
        now_ms = self._node.clock.monotonic_ms()
        if now_ms >= self._told_ms + TOLD_EVERY_MS:
            self._told_ms = now_ms
            self._node.on_trouble(line)
