"""A pipeline while it runs: its progress, for `skidway pipeline status` and for metrics, and its orderly end.

`run` starts a pipeline, looks at its query until it ends or `Stop` says so, and keeps the `Status` of it. Nothing here
imports Spark.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from skidway.spark.lease.keeping import LeaseLost
from skidway.spark.pipelines.options import Trigger
from skidway.spark.pipelines.status import DONE, FAILED, STOPPED, Status, now_ms, status_folder, watched, write
from skidway.spark.pipelines.waiting import Waiting

POLL_S = 0.3
BATCH_END_TIMEOUT_S = 15.0
OURS = "$skidway"
TAKEN_OVER = "another driver has taken over the checkpoint; this one was silent for too long"
START_ATTEMPTS_MAX = 5
SLOW_START = "Python worker failed to connect back"
"""As Spark fails a query whose source is a Python process that took more than 10 seconds to start. Spark has no setting
for that time, and on a busy machine it is short. Nothing has been read yet, so the query can start again."""


class Stop:
    """Set by a signal; a second one does not wait for the batch that is under way."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, number: int = 0, frame: FrameType | None = None) -> None:
        self.asked += 1

    @contextmanager
    def on_signals(self) -> Iterator["Stop"]:
        """Ctrl-C and SIGTERM, for the main thread. Spark's own handler would cut a call to the JVM in two."""
        before = {number: signal.signal(number, self) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run(
    pipeline: Any,
    spark: Any,
    trigger: Trigger,
    stop: Stop,
    on_status: Callable[[Status], None] = lambda status: None,
) -> Status:
    """Until it ends by itself, fails, or is asked to stop. The error is in the status, in one line."""
    options = pipeline.options
    folder = status_folder(options.folder(pipeline.name), pipeline.name)
    status = Status(
        pipeline.name,
        list(options.topic),
        getattr(options, "name", None) or folder.absolute().name,
        pid=os.getpid(),
        host=socket.gethostname(),
        started_ms=now_ms(),
    )
    write(status, folder)
    watched.enter(status, str(folder))
    try:

        def changed() -> None:
            if hasattr(pipeline, "counts"):
                status.counts.update(pipeline.counts())
            written = getattr(pipeline, "written", None)
            if written is not None:
                figures = status.figures
                figures.rows, figures.files, figures.bytes = written.rows, written.files, written.bytes
            write(status, folder)
            on_status(status)

        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            try:
                query = pipeline.start(spark, trigger)
                delivering = getattr(pipeline, "delivering", None)
                status.delivery = delivering.delivery if delivering is not None else ""
                _watch(query, status, stop, changed, lambda: is_lost(pipeline))
                break
            except Exception as error:
                again = SLOW_START in str(error) and not status.batches and not stop.asked
                if not again or attempt == START_ATTEMPTS_MAX:
                    raise
        if hasattr(pipeline, "finish"):
            pipeline.finish()
        status.state = STOPPED if stop.asked else DONE
    except Exception as error:
        status.state, status.error = FAILED, _reason(pipeline, error)
        raise
    finally:
        if not is_lost(pipeline):  # Else the file is another driver's by now.
            write(status, folder)
        on_status(status)
        holding = getattr(pipeline, "holding", None)
        if holding is not None:
            holding.release()
    return status


def is_lost(pipeline: Any) -> bool:
    """Whether another driver has taken over this one's checkpoint."""
    holding = getattr(pipeline, "holding", None)
    return holding is not None and holding.lost


def _reason(pipeline: Any, error: Exception) -> str:
    """Where another driver has taken over, Spark often stumbles over that driver's files first, and names those."""
    holding = getattr(pipeline, "holding", None)
    if holding is not None:
        with suppress(Exception):
            holding.permit()
    return TAKEN_OVER if is_lost(pipeline) else in_one_line(error)


def _watch(query: Any, status: Status, stop: Stop, changed: Callable[[], None], taken_over: Callable[[], bool]) -> None:
    seen = -1
    waiting = Waiting()
    asked_s: float | None = None
    while True:
        if taken_over():
            query.stop()
            raise LeaseLost(TAKEN_OVER)
        over = query.awaitTermination(POLL_S)
        for progress in query.recentProgress:
            if progress["batchId"] > seen and progress["durationMs"].get("addBatch") is not None:
                seen = progress["batchId"]
                count(status, progress, waiting, now_ms())
        changed()
        if over:
            return
        if stop.asked and asked_s is None:
            asked_s = time.monotonic()
        if asked_s is not None:
            late = time.monotonic() - asked_s > BATCH_END_TIMEOUT_S
            # A batch that is cut off is run again by the next run: with at-least-once delivery twice in its topics.
            if late or stop.asked > 1 or not query.status["isTriggerActive"]:
                query.stop()


def count(status: Status, progress: Any, waiting: Waiting, at_ms: int) -> None:
    """Add one batch. Records by offsets: Spark's own count has those twice that were read twice."""
    status.batches += 1
    status.last_batch = progress["batchId"]
    status.last_batch_ms = progress["durationMs"].get("triggerExecution", 0)
    status.figures.batches_ms += status.last_batch_ms
    status.figures.last_commit_ms = at_ms
    status.figures.late += sum(int(one["numRowsDroppedByWatermark"]) for one in progress["stateOperators"])
    status.records_per_s = round(progress["processedRowsPerSecond"] or 0.0, 1)
    lag: int | None = None
    ends: dict[tuple[str, str], int] = {}
    read: dict[tuple[str, str], int] = {}
    for source in progress["sources"]:
        start, end, latest = (_offsets(source[name]) for name in ("startOffset", "endOffset", "latestOffset"))
        # Spark does not know where the first batch began; our source says so beside its end.
        start = start or _offsets(_document(source["endOffset"]).get(OURS, {}).get("began"))
        status.records += sum(end[place] - start.get(place, 0) for place in end)
        ends |= latest
        read |= end
        if latest:
            lag = (lag or 0) + sum(max(0, latest[place] - end.get(place, 0)) for place in latest)
    status.lag = lag
    # The ends were looked at when the batch began.
    status.figures.waiting_since_ms = waiting.see(at_ms - status.last_batch_ms, ends, read)
    for found in progress["observedMetrics"].values():
        for name, value in _as_dict(found).items():
            status.counts[name] = status.counts.get(name, 0) + int(value or 0)


def _as_dict(found: Any) -> dict[str, Any]:
    return dict(found.asDict()) if hasattr(found, "asDict") else dict(found)


def _document(text: Any) -> dict[str, Any]:
    try:
        document = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    """{"topic": {"0": 17}} as the source writes it; nothing if there is none."""
    return {
        (topic, partition): int(offset)
        for topic, inner in _document(text).items()
        if topic != OURS
        for partition, offset in inner.items()
    }


def in_one_line(error: BaseException) -> str:
    """Spark wraps what happened in Java and Python traces: the last line that names an error says it best."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if _names_error(line)]
    text = named[-1] if named else (lines[0] if lines else type(error).__name__)
    return text[:500]


def _names_error(line: str) -> bool:
    head = line.partition(":")[0]
    word = head.rpartition(".")[2]
    return bool(head) and " " not in head and (word.endswith(("Error", "Exception")) or head.startswith("skidway."))
