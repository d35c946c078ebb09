"""In-sync sets: carries what leaders propose to the controller, and its answers back.

One AlterPartition at a time, with everything that waits when it is sent. A proposal is asked for until it is answered
or newer metadata has replaced it; an answer to one that was replaced is ignored by the leader.
"""

from __future__ import annotations

from collections.abc import Callable

from skidway.broker.asking import PARTITIONS_PER_REQUEST_MAX, RETRY_MS, Ask
from skidway.broker.events import InSyncChange, InSyncChanged
from skidway.broker.partitions.catalog import Partitions
from skidway.broker.partitions.partition import Partition
from skidway.broker.world import World
from skidway.errors import ErrorCode
from skidway.metadata.image import Image
from skidway.replica.leader import Proposal
from skidway.replica.role import PartitionRole
from skidway.wire.message import Message
from skidway.wire.schema.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)


class InSync:
    def __init__(
        self,
        world: World,
        image: Image,
        partitions: Partitions,
        ask: Ask,
        on_changed: Callable[[Partition], None],
        on_checked: Callable[[int], None],
    ) -> None:
        """`on_changed`: followers may have something to hear about a partition. `on_checked`: all were looked at."""
        self._world = world
        self._image = image
        self._partitions = partitions
        self.ask = ask
        self._on_changed = on_changed
        self._on_checked = on_checked
        self.lag_ms = world.settings.replica_lag_ms
        """How long a follower may lag."""
        self._waiting: dict[Partition, None] = {}
        self._asked: dict[Partition, Proposal] = {}
        self._armed = False
        self._changes: list[InSyncChange] = []
        """To be reported, all of a turn together: a broker that goes is in thousands of sets."""

    def start(self, now_ms: int) -> None:
        self._world.timers.at(now_ms + self.lag_ms // 2, self._check)

    def _check(self) -> None:
        now_ms = self._world.clock.monotonic_ms()
        self.check(now_ms)
        self.start(now_ms)

    def check(self, now_ms: int) -> None:
        """Whether followers lag; at most half as late again as they may."""
        for partition in self._partitions:
            if partition.alone or not partition.leads:
                continue
            partition.check_lag(now_ms)
            if partition.leader.proposal is not None:
                self.propose(partition)
        self._on_checked(now_ms)

    def propose(self, partition: Partition) -> None:
        """The partition's leader has a proposal; said as often as one likes."""
        proposal = partition.leader.proposal
        if proposal is None or proposal.settled or self._asked.get(partition) is proposal:
            return
        self._waiting[partition] = None
        # Not at once: what the same turn brings goes along.
        self._send_after(0)

    def on_metadata(self, partition: Partition, before: PartitionRole) -> None:
        """A partition that this node leads, in the same epoch as before, has other replicas or another in-sync set."""
        if list(before.in_sync) != list(partition.role.in_sync):
            if not self._changes:
                self._world.timers.at(self._world.clock.monotonic_ms(), self._tell)
            self._changes.append(InSyncChange(str(partition), before.in_sync, partition.role.in_sync))
        self._on_changed(partition)

    def _tell(self) -> None:
        changes, self._changes = self._changes, []
        self._world.report(InSyncChanged(changes))

    def _send_after(self, wait_ms: int) -> None:
        if not self._armed and not self._asked:
            self._armed = True
            self._world.timers.at(self._world.clock.monotonic_ms() + wait_ms, self._send)

    def _send(self) -> None:
        self._armed = False
        topics: dict[bytes, RequestTopicData] = {}
        while self._waiting and len(self._asked) < PARTITIONS_PER_REQUEST_MAX:
            partition = next(iter(self._waiting))
            del self._waiting[partition]
            proposal = partition.leader.proposal
            if proposal is None or proposal.settled or partition.removed:
                continue
            self._asked[partition] = proposal
            topic = topics.setdefault(partition.topic_id, RequestTopicData(partition.topic_id, []))
            topic.partitions.append(_asked(partition.index, proposal))
        if not topics:
            return
        registered = self._image.brokers.get(self._world.settings.node_id)
        epoch = registered.epoch if registered is not None else -1
        request = AlterPartitionRequest(self._world.settings.node_id, epoch, list(topics.values()))
        self.ask(request, self._answered, self._world.clock.monotonic_ms())

    def _answered(self, response: Message | None) -> None:
        asked, self._asked = self._asked, {}
        answers = {}
        again: dict[Partition, None] = {}
        lost = ErrorCode.REQUEST_TIMED_OUT
        if isinstance(response, AlterPartitionResponse):
            lost = ErrorCode(response.error_code) if response.error_code else lost
            answers = {
                (bytes(topic.topic_id), answer.partition_index): answer
                for topic in response.topics
                for answer in topic.partitions
            }
        for partition, proposal in asked.items():
            answer = answers.get((partition.topic_id, partition.index))
            if answer is None:
                partition.on_alter_failed(proposal, lost)
            elif answer.error_code == ErrorCode.NONE:
                partition.on_altered(proposal, answer.leader_epoch, answer.partition_epoch, answer.isr)
            else:
                partition.on_alter_failed(proposal, answer.error_code)
            if partition.leader.proposal is proposal and not proposal.settled:
                again[partition] = None
            else:
                self.propose(partition)
                self._on_changed(partition)
        if self._waiting:
            self._send_after(0)
        if again:
            self._waiting.update(again)
            self._send_after(RETRY_MS)


def _asked(index: int, proposal: Proposal) -> RequestPartitionData:
    return RequestPartitionData(
        partition_index=index,
        leader_epoch=proposal.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id, epoch) for broker_id, epoch in proposal.members],
        partition_epoch=proposal.partition_epoch,
    )
