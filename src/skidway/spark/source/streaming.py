"""What the driver of a stream decides, without Spark: where it begins, how far the next micro-batch goes, its ranges.

Offsets travel through Spark's checkpoint as JSON, `{"topic": {"0": 17}}` as the Kafka connector writes them, and
beside the topics one key of ours, `$skidway` (no topic can be called so), with
- `ids`: the topics' ids, so that one which was deleted and made again is noticed even after a restart;
- `began`: in the end of the first micro-batch, where it began. Spark does not record that, and after a crash in the
  first micro-batch it would ask again where "latest" is, and skip what had been planned.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import ClientError
from skidway.blocking_client.groups import Groups
from skidway.spark.source.offsets import NO_ID, Found, OffsetReader, Offsets
from skidway.spark.source.options import SourceOptions
from skidway.spark.source.planning import LossReport, OffsetRange, plan, share, split

OURS = "$skidway"

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Mark:
    """A position in all partitions of a stream."""

    offsets: Offsets
    ids: dict[str, bytes]
    began: Offsets | None = None

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = dict(_nested(self.offsets))
        ours: dict[str, Any] = {"ids": {topic: known.hex() for topic, known in sorted(self.ids.items())}}
        if self.began is not None:
            ours["began"] = _nested(self.began)
        return {**document, OURS: ours}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Mark":
        ours = document.get(OURS, {})
        return cls(
            offsets=_flat({topic: inner for topic, inner in document.items() if topic != OURS}),
            ids={topic: bytes.fromhex(known) for topic, known in ours.get("ids", {}).items()},
            began=_flat(ours["began"]) if "began" in ours else None,
        )

    def made_anew(self, ids: Mapping[str, bytes]) -> list[str]:
        """Topics that have another id than when this mark was made."""
        return [
            topic
            for topic, known in self.ids.items()
            if NO_ID not in (known, ids.get(topic, NO_ID)) and ids[topic] != known
        ]


class StreamPlanner:
    """One for each run of a query, in the driver. Not for several threads at once."""

    def __init__(self, options: SourceOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self.report = LossReport(options.fail_on_data_loss)
        self.cluster: Cluster = options.brokers.cluster()
        self.reader = OffsetReader(self.cluster, options.topics, options.isolation_level)
        self.newest: Mark | None = None
        """The ends as they were when last asked for."""
        self._clock = clock
        self._initial: Mark | None = None
        self._target: Mark | None = None
        self._last_batch_s: float | None = None
        self._found: Found | None = None
        self._missing: list[str] = []
        self._has_planned = False
        self._progress = Progress(self.cluster, options.group_id) if options.group_id else None

    def close(self) -> None:
        self.cluster.close()

    def initial(self) -> Mark:
        """Asked for more than once, and always the same: "latest" is when the query began."""
        if self._initial is None:
            found = self.reader.find_all()
            offsets = self.reader.resolve_start(
                self.options.start, found.places, unmatched_is_latest=self.options.start_unmatched_is_latest
            )
            self._initial = Mark(offsets, found.ids)
            if self._target is not None:
                # Asked for after the target was: what came in between belongs to neither.
                for place, offset in offsets.items():
                    self._target.offsets[place] = max(offset, self._target.offsets.get(place, 0))
                self._target.ids |= found.ids
        return self._initial

    def stop_at_present(self) -> None:
        """Trigger.AvailableNow: nothing that comes later than now."""
        self._target = self._ends(None)

    def next(self, start: Mark, *, limit: int | None, least: int | None) -> Mark | None:
        """How far the micro-batch from `start` goes, at most `limit` offsets; None: there is nothing to do yet.

        `least`: wait for so many, or for the longest delay that the options allow.
        """
        end = self._target or self._ends(start)
        self.newest = end
        self._check_missing(start)
        if self._progress is not None:
            self._progress.commit(start.offsets)
        if self.report.fail:
            self._check(start, end)
        offsets = self._admit(start, end, limit, least)
        if self._is_first(start):
            # Spark runs a first micro-batch even if there is nothing to do.
            return Mark(start.offsets if offsets is None else offsets, end.ids, start.offsets)
        return None if offsets is None else Mark(offsets, end.ids)

    def _is_first(self, start: Mark) -> bool:
        """Whether nothing comes before the micro-batch that begins at `start`, in this run or an earlier one."""
        at_initial = self._initial is not None and start.offsets == self._initial.offsets
        return at_initial and start.began is None and not self._has_planned

    def _admit(self, start: Mark, end: Mark, limit: int | None, least: int | None) -> Offsets | None:
        begin = self._begin(start, end)
        if least is not None and self._target is None and not self._is_enough(begin, end, least):
            return None
        offsets = share(limit, begin, end.offsets) if limit is not None else end.offsets
        return None if offsets == start.offsets and not start.made_anew(end.ids) else offsets

    def ranges(self, start: Mark, end: Mark) -> list[OffsetRange]:
        """What the tasks of a micro-batch read; the same for the same marks, as far as the log still has it."""
        self._has_planned = True
        if start.offsets == end.offsets and not start.made_anew(end.ids):
            return []
        begin = start.offsets if end.began is None else end.began

        def log_starts(found: Found) -> Offsets:
            gone = set(end.made_anew(found.ids))
            here = [place for place in found.places if place in end.offsets and place[0] not in gone]
            return self.reader.earliest(here)

        _, starts = self.reader.find_with(log_starts)
        ranges = plan(begin, end.offsets, end.ids, starts, start.made_anew(end.ids), self.report)
        return split(
            ranges,
            min_partitions=self.options.min_partitions,
            max_records=self.options.max_records_per_partition,
        )

    def _ends(self, start: Mark | None) -> Mark:
        """The ends now. One that lies before the start is asked for again: a new leader may not know better yet."""
        for attempt in range(self.options.offset_retries + 1):
            if attempt:
                time.sleep(self.options.offset_retry_pause_ms / 1000)
            found, offsets = self.reader.find_with(lambda found: self.reader.latest(found.places))
            self._found = found
            ends = Mark(offsets, found.ids)
            if start is None or start.made_anew(ends.ids):
                break
            if not any(end < start.offsets.get(place, 0) for place, end in offsets.items()):
                break
        return ends

    def _check_missing(self, start: Mark) -> None:
        """A topic that was read and is gone is a loss, for others to report; one that was not may be a mistake."""
        assert self._found is not None
        known = {f"topic {topic}" for topic, _ in start.offsets}
        known |= {f"partition {partition} of topic {topic}" for topic, partition in start.offsets}
        unknown = [name for name in self._found.missing if name not in known]
        if unknown and self.report.fail:
            self.reader.require(self._found)
        elif unknown and unknown != self._missing:
            logger.warning("there is no %s; it is read when there is", ", ".join(unknown))
        self._missing = unknown

    def _check(self, start: Mark, end: Mark) -> None:
        """Before anything is written into the checkpoint."""
        here = dict.fromkeys(end.offsets, 0)
        plan(start.offsets, end.offsets, end.ids, here, start.made_anew(end.ids), self.report)

    def _begin(self, start: Mark, end: Mark) -> Offsets:
        """Where each partition goes on: new ones, and those of topics made anew, at their beginning."""
        anew = set(start.made_anew(end.ids))
        fresh = [place for place in end.offsets if place not in start.offsets or place[0] in anew]
        return start.offsets | self.reader.earliest(fresh)

    def _is_enough(self, begin: Offsets, end: Mark, least: int) -> bool:
        now = self._clock()
        waited_ms = None if self._last_batch_s is None else (now - self._last_batch_s) * 1000
        waiting = sum(max(0, offset - begin[place]) for place, offset in end.offsets.items())
        if waited_ms is not None and waited_ms < self.options.max_trigger_delay_ms and waiting < least:
            return False
        self._last_batch_s = now
        return True


class Progress:
    """The offsets of a stream as those of a group, for whoever watches lag. It never fails the query."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.group = group
        self._groups = Groups(cluster)
        self._committed: Offsets = {}
        self._trouble = ""

    def commit(self, offsets: Offsets) -> None:
        if offsets == self._committed:
            return
        try:
            self._groups.commit(self.group, offsets)
        except ClientError as error:
            if str(error) != self._trouble:
                logger.warning("the progress of the stream cannot be committed to group %s: %s", self.group, error)
            self._trouble = str(error)
            return
        self._trouble = ""
        self._committed = dict(offsets)


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def _flat(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {(topic, int(partition)): offset for topic, inner in nested.items() for partition, offset in inner.items()}
