"""Groups of all protocols as a kind of coordinator: the first, in `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from msgspec.structs import replace

from skidway.broker.coordinators.host import Coordinator, CoordinatorKind, Coordinators, Surroundings
from skidway.broker.partitions.partition import Partition
from skidway.errors import ProtocolError
from skidway.groups.consumer.patterns import Patterns
from skidway.groups.consumer.protocol import ConsumerProtocol
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.kinds import Context
from skidway.groups.offsets import prepare
from skidway.groups.operations import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    EndOffsetsTransaction,
    MetadataChanged,
    PreparedCommit,
    Tick,
)
from skidway.groups.placement import partition_of
from skidway.groups.records import FORMAT, GroupRecord
from skidway.groups.settings import GroupSettings
from skidway.groups.share.protocol import ShareProtocol
from skidway.metadata import group_configs
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.image import Image
from skidway.runtime.log_store import Marker
from skidway.steps import Steps

GroupCoordinators = Coordinators[GroupCoordinator, GroupRecord]

OFFSETS_TOPIC = "__consumer_offsets"
KEY_TYPE = 0
OFFSETS_CONFIGS: list[tuple[str, str | None]] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", str(100 * 1024 * 1024)),
]


class TopicsView:
    """What coordinators may know of the cluster's topics."""

    __slots__ = ("_epoch", "_image")

    def __init__(self, image: Image, epoch: Callable[[], int]) -> None:
        """`epoch` grows with the metadata."""
        self._image = image
        self._epoch = epoch

    def partition_count(self, name: str) -> int | None:
        topic = self._image.topics.get(name)
        return None if topic is None else len(topic.partitions)

    def id_of(self, name: str) -> bytes | None:
        topic = self._image.topics.get(name)
        return None if topic is None else topic.id

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return self._image.topics

    @property
    def epoch(self) -> int:
        return self._epoch()


class GroupUsage:
    """What the groups of all coordinators of this node take together."""

    __slots__ = ("_machines",)

    def __init__(self, machines: Callable[[], list[GroupCoordinator]]) -> None:
        self._machines = machines

    @property
    def group_count(self) -> int:
        return sum([len(machine.groups) for machine in self._machines()])

    @property
    def bytes(self) -> int:
        return sum([machine.group_bytes + machine.offsets.bytes for machine in self._machines()])


def group_coordinators(
    surroundings: Surroundings,
    topics: TopicsView,
    static: Mapping[str, str],
    perform: Callable[[Coordinator[GroupCoordinator, GroupRecord], Any], None],
) -> GroupCoordinators:
    """`static` are this node's settings, for groups that have none of their own. `perform` does what share groups want
    done about their share-partitions."""
    world, image = surroundings.world, surroundings.image
    members_max, asked = world.limits.group_members_max, world.settings.groups
    settings = replace(
        asked,
        size_max=min(asked.size_max, members_max),
        consumer_size_max=min(asked.consumer_size_max, members_max),
        share_size_max=min(asked.share_size_max, members_max),
    )
    numbers = count(1)
    patterns = Patterns()
    usage = GroupUsage(lambda: [each.host.machine for each in coordinators.loaded.values()])

    def new_share(context: Context) -> ShareProtocol:
        def timeouts(group_id: str) -> tuple[int, int]:
            return group_configs.share_timeouts(image.config(ResourceType.GROUP, group_id), static)

        return ShareProtocol(context, timeouts, settings.share_size_max, numbers)

    def new_machine() -> GroupCoordinator:
        return GroupCoordinator(
            settings,
            topics,
            world.random,
            lambda context: ConsumerProtocol(context, patterns),
            world.limits,
            usage,
            timeouts=lambda group_id: _timeouts(image, static, settings, group_id),
            share=new_share,
            on_news=world.report,
        )

    kind = CoordinatorKind(
        key_type=KEY_TYPE,
        noun="groups",
        topic=OFFSETS_TOPIC,
        topic_partitions=settings.offsets_partitions,
        topic_configs=OFFSETS_CONFIGS,
        format=FORMAT,
        place=partition_of,
        new_machine=new_machine,
        tick=lambda: Tick(world.age_clock.wall_ms()),
        topics_changed=MetadataChanged,
        perform=perform,
    )
    coordinators: GroupCoordinators = Coordinators(surroundings, kind)
    return coordinators


def _timeouts(image: Image, static: Mapping[str, str], settings: GroupSettings, group_id: str) -> tuple[int, int]:
    overrides = image.config(ResourceType.GROUP, group_id)
    if not overrides:
        return settings.consumer_session_timeout_ms, settings.consumer_heartbeat_interval_ms
    return group_configs.timeouts(overrides, static)


def write_marker(
    groups: GroupCoordinators,
    partition: Partition,
    marker: Marker,
    now_ms: int,
    respond: Callable[[ProtocolError | None], None],
) -> None:
    """End a transaction in a partition of the offsets: answered when the offsets have moved, and stay so."""
    ending = EndOffsetsTransaction(marker)
    groups.submit(partition, ending, now_ms, respond)


def preparation(
    groups: GroupCoordinators, topics: TopicsView, operation: CommitOffsets | CommitOffsetsInTransaction
) -> tuple[Partition, Steps[PreparedCommit]]:
    """One record batch, however many offsets: all are committed or none. The partition of the group, refused where that
    is not here, and the work that comes before it is asked: prepared in steps, decided in one go."""
    world = groups.surroundings.world
    partition = groups.coordinator_of(operation.group_id).partition
    return partition, prepare(
        operation,
        world.settings.groups.offset_metadata_bytes_max,
        world.clock.wall_ms(),
        topics.id_of,
        partition.rules.max_message_bytes,
    )
