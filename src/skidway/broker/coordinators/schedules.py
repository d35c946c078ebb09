"""Schedules of queues as a kind of coordinator: the fourth, in `__queue_schedule`.

What a decision wants done elsewhere is that messages are delivered: `ScheduleSender` sends them to their queues.
"""

from __future__ import annotations

from skidway.broker.coordinators.host import CoordinatorKind, Coordinators, Surroundings
from skidway.broker.coordinators.id_reserve import ProducerIdReserve
from skidway.broker.coordinators.schedule_sender import Answer, AskNode, OneCoordinator, ScheduleSender
from skidway.broker.partitions.topic_settings import TopicSettings
from skidway.errors import InvalidRequest, ProtocolError, StorageError
from skidway.groups.placement import partition_of
from skidway.metadata.topic_names import is_legal
from skidway.runtime.replicated import Operation
from skidway.schedules.machine import QueueFacts, ScheduleCoordinator
from skidway.schedules.operations import Tick, TopicsChanged
from skidway.schedules.records import FORMAT, ScheduleRecord
from skidway.schedules.settings import ScheduleSettings

SCHEDULES_TOPIC = "__queue_schedule"
KEY_TYPE = 3
"""Of Skidway's own: Kafka knows no such coordinator. The key is the queue's topic."""
STANDARD = "standard"
SETTINGS = ScheduleSettings()
SCHEDULES_CONFIGS: list[tuple[str, str | None]] = [
    ("cleanup.policy", "compact"),
    ("compression.type", "uncompressed"),
    ("max.message.bytes", str(4 * 1024 * 1024)),
    ("min.insync.replicas", "2"),
    ("segment.bytes", str(100 * 1024 * 1024)),
    ("unclean.leader.election.enable", "false"),
]


class ScheduleCoordinators(Coordinators[ScheduleCoordinator, ScheduleRecord]):
    def __init__(
        self,
        surroundings: Surroundings,
        topic_settings: TopicSettings,
        ids: ProducerIdReserve,
        ask: AskNode,
    ) -> None:
        world = surroundings.world
        self._topic_settings = topic_settings
        self._ids = ids
        self.sender = ScheduleSender(world, surroundings.image, ask, surroundings.later, self._is_current, self._tell)
        kind = CoordinatorKind(
            key_type=KEY_TYPE,
            noun="schedules",
            topic=SCHEDULES_TOPIC,
            topic_partitions=SETTINGS.state_partitions,
            topic_configs=SCHEDULES_CONFIGS,
            format=FORMAT,
            place=partition_of,
            new_machine=self._new_machine,
            tick=Tick,
            topics_changed=TopicsChanged,
            perform=self.sender.send,
            check_key=_check_key,
        )
        super().__init__(surroundings, kind)

    def _new_machine(self) -> ScheduleCoordinator:
        # At hand when something is due.
        self._ids.when_filled(lambda failed: None)
        return ScheduleCoordinator(SETTINGS, self, self.surroundings.world.zones, self._ids.draw)

    def facts(self, topic_id: bytes) -> QueueFacts | None:
        topic = self.surroundings.image.topics_by_id.get(topic_id)
        if topic is None:
            return None
        bytes_max = self._topic_settings.of(topic.name).max_message_bytes
        return QueueFacts(len(topic.partitions), bytes_max, self._topic_settings.queue(topic.name).type == STANDARD)

    def _is_current(self, coordinator: OneCoordinator) -> bool:
        return self.loaded.get(coordinator.partition) is coordinator and coordinator.host.unusable is None

    def _tell(self, coordinator: OneCoordinator, operation: Operation[None], respond: Answer) -> None:
        def answer(reply: ProtocolError | None) -> None:
            respond(reply)
            if isinstance(reply, StorageError):
                self.surroundings.room.on_refused(coordinator.partition, reply)

        self._submit(coordinator, operation, self.surroundings.world.clock.monotonic_ms(), answer)


def _check_key(key: str) -> None:
    if not is_legal(key):
        raise InvalidRequest("the key of a coordinator of schedules is the name of a queue's topic")
