"""Tells the controller which copies of this node nobody can use (AssignReplicasToDirs), and which are whole again.

A quarantined copy is reported as lost: nobody elects it from then on, not even uncleanly, and where another replica has
everything, nobody counts on this one any more. The broker asks to stay fenced until the controller has answered, so
that a start cannot make a leader of a damaged copy first. Where the controller finds nobody else who has everything,
the partition is unavailable: an operator is told, and this node asks again now and then.

A copy that the metadata calls lost and that could be opened is reported as being here again, unless it is just being
fetched from a leader: then it counts when it is in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from skidway.broker.asking import PARTITIONS_PER_REQUEST_MAX, Ask
from skidway.broker.partitions.news import PartitionUnavailable
from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.petitions import Petitioner
from skidway.broker.world import World
from skidway.errors import ErrorCode
from skidway.metadata.image import LOST_DIRECTORY, NO_LEADER, Image
from skidway.wire.message import Message
from skidway.wire.schema.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)


class LostCopies(Petitioner):
    def __init__(
        self,
        world: World,
        image: Image,
        ask: Ask,
        broker_epoch: Callable[[], int],
        directory_id: bytes,
        given_up: Collection[Partition],
    ) -> None:
        """`directory_id` is this node's. `given_up` are copies that were quarantined in this run and are not in sync
        again."""
        super().__init__(world, ask)
        self._image = image
        self._broker_epoch = broker_epoch
        self._directory_id = directory_id
        self._given_up = given_up
        self._unheard: set[Partition] = set()
        """Those that the controller does not know to be lost, as far as this node knows."""
        self._told: set[Partition] = set()
        """Those of which an operator knows that nobody can take over."""

    @property
    def has_news(self) -> bool:
        """Whether the controller may still count on a copy that is lost."""
        return bool(self._unheard)

    def on_role_changed(self, partition: Partition) -> None:
        directory = self._to_report(partition)
        if directory is None:
            self.on_removed(partition)
            return
        if directory == LOST_DIRECTORY and self._directory_of(partition) != LOST_DIRECTORY:
            self._unheard.add(partition)
        self._ask_about(partition)

    def on_removed(self, partition: Partition) -> None:
        self._due.pop(partition, None)
        self._unheard.discard(partition)
        self._told.discard(partition)

    def _to_report(self, partition: Partition) -> bytes | None:
        """The directory that the controller should hear of; None when there is nothing to say."""
        known, is_led = self._directory_of(partition), partition.role.leader != NO_LEADER
        if partition.log.quarantined:
            # As long as nobody leads, the controller says whether an operator has to decide.
            is_said = known == LOST_DIRECTORY and not partition.counted_on and is_led
            return None if is_said or partition.alone else LOST_DIRECTORY
        is_here = partition.counted_on or (not is_led and partition not in self._given_up)
        return self._directory_id if known == LOST_DIRECTORY and is_here else None

    def _directory_of(self, partition: Partition) -> bytes | None:
        """Where the metadata says that this node's copy is."""
        topic = self._image.topics_by_id.get(partition.topic_id)
        if topic is None:
            return None
        described = topic.partitions[partition.index]
        return dict(zip(described.replicas, described.directories, strict=True)).get(self._world.settings.node_id)

    def _request(self, due: list[Partition], now_ms: int) -> tuple[list[Partition], Message] | None:
        asked: list[Partition] = []
        directories: dict[bytes, dict[bytes, RequestTopicData]] = {}
        for partition in due:
            directory = self._to_report(partition)
            if directory is None:
                self.on_removed(partition)
                continue
            if len(asked) == PARTITIONS_PER_REQUEST_MAX:
                break
            asked.append(partition)
            topics = directories.setdefault(directory, {})
            topic = topics.setdefault(partition.topic_id, RequestTopicData(partition.topic_id, []))
            topic.partitions.append(RequestPartitionData(partition.index))
        if not asked:
            return None
        return asked, AssignReplicasToDirsRequest(
            self._world.settings.node_id,
            self._broker_epoch(),
            [RequestDirectoryData(directory, list(topics.values())) for directory, topics in directories.items()],
        )

    def _errors(self, response: Message) -> Iterator[tuple[bytes, int, int]]:
        if isinstance(response, AssignReplicasToDirsResponse):
            for directory in response.directories:
                for topic in directory.topics:
                    for answer in topic.partitions:
                        yield topic.topic_id, answer.partition_index, answer.error_code

    def _heard(self, partition: Partition, error: int | None) -> None:
        is_refused = error == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if is_refused or error == ErrorCode.NONE:
            self._unheard.discard(partition)
        if is_refused and partition in self._due:
            self._tell(partition)

    def _tell(self, partition: Partition) -> None:
        if partition in self._told:
            return
        self._told.add(partition)
        self._world.report(PartitionUnavailable(str(partition)))
