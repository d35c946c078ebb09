"""Tells the controller which copies of this node nobody can use (AssignReplicasToDirs), and which are whole again.

A quarantined copy is reported as lost: nobody elects it from then on, not even uncleanly, and where another replica has
everything, nobody counts on this one any more. The broker asks to stay fenced until the controller has answered, so
that a start cannot make a leader of a damaged copy first. Where the controller finds nobody else who has everything,
the partition is unavailable: an operator is told, and this node asks again now and then.

A copy that cannot be opened at all is as lost as a damaged one, and is reported likewise: at once if it was here
before, and after `MISSING_MS` where the reason may pass by itself (a name that a deleted topic still has, too many open
files).

A copy that the metadata calls lost and that could be opened is reported as being here again, unless it is just being
fetched from a leader: then it counts when it is in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from msgspec import Struct

from skidway.broker.asking import PARTITIONS_PER_REQUEST_MAX, Ask
from skidway.broker.partitions.news import PartitionUnavailable
from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.petitions import Petitioner
from skidway.broker.world import World
from skidway.errors import ErrorCode
from skidway.metadata.image import LOST_DIRECTORY, NO_LEADER, Image
from skidway.metadata.image import Partition as DescribedPartition
from skidway.wire.message import Message
from skidway.wire.schema.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)

MISSING_MS = 10_000
"""So long a copy that cannot be opened is tried again before it counts as lost."""


class MissingCopy(Struct, frozen=True):
    """A copy that should be here and could not be opened."""

    topic: str
    topic_id: bytes
    index: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


Copy: TypeAlias = Partition | MissingCopy


class LostCopies(Petitioner[Copy]):
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
        self._unheard: set[Copy] = set()
        """Those that the controller does not know to be lost, as far as this node knows."""
        self._told: set[Copy] = set()
        """Those of which an operator knows that nobody can take over."""

    @property
    def has_news(self) -> bool:
        """Whether the controller may still count on a copy that is lost."""
        return bool(self._unheard)

    def on_missing(self, copy: MissingCopy, *, was_here: bool) -> None:
        if self._to_report(copy) is None:
            self._forget(copy)
            return
        if was_here:
            self._note_unheard(copy)
        wait_ms = 0 if was_here or copy in self._unheard else MISSING_MS
        self._due.setdefault(copy, self._world.clock.monotonic_ms() + wait_ms)
        self._arm()

    def on_role_changed(self, partition: Partition) -> None:
        self._forget(MissingCopy(partition.topic, partition.topic_id, partition.index))
        directory = self._to_report(partition)
        if directory is None:
            self._forget(partition)
            return
        if directory == LOST_DIRECTORY:
            self._note_unheard(partition)
        self._ask_about(partition)

    def on_removed(self, partition: Partition) -> None:
        self._forget(partition)

    def _forget(self, copy: Copy) -> None:
        self._due.pop(copy, None)
        self._unheard.discard(copy)
        self._told.discard(copy)

    def _note_unheard(self, copy: Copy) -> None:
        if self._directory_of(copy) != LOST_DIRECTORY:
            self._unheard.add(copy)

    def _to_report(self, copy: Copy) -> bytes | None:
        """The directory that the controller should hear of; None when there is nothing to say."""
        return self._of_missing(copy) if isinstance(copy, MissingCopy) else self._of_open(copy)

    def _of_missing(self, copy: MissingCopy) -> bytes | None:
        described, node_id = self._described(copy), self._world.settings.node_id
        if described is None or node_id not in described.replicas or len(described.replicas) == 1:
            return None
        is_counted_on = node_id in described.isr or node_id in described.eligible_leader_replicas
        is_led = described.leader != NO_LEADER
        is_said = self._directory_of(copy) == LOST_DIRECTORY and not is_counted_on and is_led
        return None if is_said else LOST_DIRECTORY

    def _of_open(self, partition: Partition) -> bytes | None:
        known, is_led = self._directory_of(partition), partition.role.leader != NO_LEADER
        if partition.log.quarantined:
            # As long as nobody leads, the controller says whether an operator has to decide.
            is_said = known == LOST_DIRECTORY and not partition.counted_on and is_led
            return None if is_said or partition.alone else LOST_DIRECTORY
        is_here = partition.counted_on or (not is_led and partition not in self._given_up)
        return self._directory_id if known == LOST_DIRECTORY and is_here else None

    def _described(self, copy: Copy) -> DescribedPartition | None:
        topic = self._image.topics_by_id.get(copy.topic_id)
        return None if topic is None else topic.partitions[copy.index]

    def _directory_of(self, copy: Copy) -> bytes | None:
        """Where the metadata says that this node's copy is."""
        described = self._described(copy)
        if described is None:
            return None
        return dict(zip(described.replicas, described.directories, strict=True)).get(self._world.settings.node_id)

    def _request(self, due: list[Copy], now_ms: int) -> tuple[list[Copy], Message] | None:
        asked: list[Copy] = []
        directories: dict[bytes, dict[bytes, RequestTopicData]] = {}
        for copy in due:
            directory = self._to_report(copy)
            if directory is None:
                self._forget(copy)
                continue
            if len(asked) == PARTITIONS_PER_REQUEST_MAX:
                break
            asked.append(copy)
            topics = directories.setdefault(directory, {})
            topic = topics.setdefault(copy.topic_id, RequestTopicData(copy.topic_id, []))
            topic.partitions.append(RequestPartitionData(copy.index))
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

    def _heard(self, copy: Copy, error: int | None) -> None:
        is_refused = error == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if is_refused or error == ErrorCode.NONE:
            self._unheard.discard(copy)
        if is_refused and copy in self._due:
            self._tell(copy)

    def _tell(self, copy: Copy) -> None:
        if copy in self._told:
            return
        self._told.add(copy)
        self._world.report(PartitionUnavailable(str(copy)))
