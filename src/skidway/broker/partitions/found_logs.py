"""Logs that a start found in the data directory and that are not what the metadata means by their names.

A log that no topic knows is set aside, never deleted: metadata that was lost must not take the data with it. One whose
topic was removed meanwhile, or that has moved to other nodes, is deleted.
"""

from __future__ import annotations

from skidway.broker.events import Report
from skidway.broker.partitions.news import PartitionMetadataRewritten, StrayLogKept
from skidway.broker.partitions.whereabouts import Whereabouts
from skidway.log.compaction.swapping import SEGMENT_SUFFIXES
from skidway.log.directories import directory_name
from skidway.log.durability.checkpoints import DAMAGED, LEADER_EPOCHS, PARTITION_METADATA, TRUNCATED, WAS_DAMAGED
from skidway.log.logs import Logs, is_unborn
from skidway.metadata.image import Image
from skidway.ports import Clock
from skidway.replica.news import LogSetAside

OWN_NAMES = (*SEGMENT_SUFFIXES, PARTITION_METADATA, LEADER_EPOCHS, TRUNCATED, DAMAGED, WAS_DAMAGED, ".tmp")
"""How the names end of what a broker puts into the directory of a partition."""


class FoundLogs:
    def __init__(
        self,
        logs: Logs,
        image: Image,
        whereabouts: Whereabouts,
        clock: Clock,
        report: Report,
    ) -> None:
        self._logs = logs
        self._image = image
        self._whereabouts = whereabouts
        self._clock = clock
        self._report = report
        self._removed: set[bytes] = set()
        """Topics that went while the node started."""

    def __contains__(self, place: tuple[str, int]) -> bool:
        return place in self._logs.found

    def places(self) -> list[tuple[str, int]]:
        return list(self._logs.found)

    def on_topic_removed(self, topic_id: bytes) -> None:
        self._removed.add(topic_id)

    def sort_out(self, name: str, index: int) -> None:
        """A log that is not what the metadata means by its name gives the name up."""
        logs, topic = self._logs, self._image.topics.get(name)
        topic_id = self._topic_id_of(name, index)
        if topic is not None and topic_id not in self._removed and self._whereabouts.is_hosted(name, index, topic.id):
            damage = logs.claim(name, index, topic.id)
            if damage is not None:
                self._report(PartitionMetadataRewritten(directory_name(name, index), damage))
                return
        unborn = is_unborn(logs, (name, index))
        if topic_id in self._removed or (
            unborn and logs.directories.is_empty((name, index)) and self._is_ours(name, index)
        ):
            logs.discard(name, index, self._clock.wall_ms())
        elif unborn or topic is None or index >= len(topic.partitions) or topic_id not in (None, topic.id):
            kept = logs.set_aside(name, index)
            self._report(LogSetAside(directory_name(name, index), kept))
        elif not self._whereabouts.is_here(topic, index):
            logs.discard(name, index, self._clock.wall_ms())

    def sort_out_rest(self, name: str, index: int) -> None:
        """The same where nobody waits for the name."""
        try:
            self.sort_out(name, index)
        except OSError as error:
            self._report(StrayLogKept(directory_name(name, index), str(error)))

    def forget_others(self) -> None:
        """Everything is sorted out: what was saved about logs that are not here any more is of no use."""
        self._logs.forget_others(self._whereabouts.is_hosted)

    def _topic_id_of(self, name: str, index: int) -> bytes | None:
        """What could not be read at the start is looked at again."""
        found, key = self._logs.found, (name, index)
        if found[key] is None:
            found[key] = self._logs.directories.read_topic_id(key)
        return found[key]

    def _is_ours(self, name: str, index: int) -> bool:
        """Whether nothing is in a directory but what a broker puts there: somebody else's files are never deleted."""
        return all(found.endswith(OWN_NAMES) for found in self._logs.disk.list(directory_name(name, index)))
