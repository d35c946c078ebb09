"""A pipeline while it runs: its progress, kept in a file that `skidway pipeline status` reads, and its orderly end.

`run` starts a pipeline, looks at its query until it ends or `Stop` says so, and writes `status.json` into the
checkpoint folder. Nothing here imports Spark: `read_all` works without it.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import FrameType
from typing import Any

from skidway.spark.pipelines.checkpoints import local_folder
from skidway.spark.pipelines.options import Trigger

STATUS_FILE = "status.json"
STATUS_BYTES_MAX = 1024 * 1024
POLL_S = 0.3
BATCH_END_TIMEOUT_S = 15.0
OURS = "$skidway"
START_ATTEMPTS_MAX = 5
SLOW_START = "Python worker failed to connect back"
"""As Spark fails a query whose source is a Python process that took more than 10 seconds to start. Spark has no setting
for that time, and on a busy machine it is short. Nothing has been read yet, so the query can start again."""
RUNNING, DONE, STOPPED, FAILED, DIED = "running", "done", "stopped", "failed", "died"


@dataclass(slots=True)
class Status:
    pipeline: str
    topics: list[str] = field(default_factory=list)
    state: str = RUNNING
    pid: int = 0
    host: str = ""
    started_ms: int = 0
    updated_ms: int = 0
    batches: int = 0
    """In this run."""
    records: int = 0
    last_batch: int = -1
    last_batch_ms: int = 0
    """How long the newest batch took."""
    records_per_s: float = 0.0
    lag: int | None = None
    """Records of the topics that were not read yet, as the source saw it last."""
    counts: dict[str, int] = field(default_factory=dict)
    """What the pipeline itself counts, e.g. dead letters."""
    error: str = ""


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
    status = Status(
        pipeline.name, list(options.topic), pid=os.getpid(), host=socket.gethostname(), started_ms=_now_ms()
    )
    folder = status_folder(options.folder(pipeline.name), pipeline.name)
    write(status, folder)
    try:

        def changed() -> None:
            write(status, folder)
            on_status(status)

        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            try:
                _watch(pipeline.start(spark, trigger), status, stop, changed)
                break
            except Exception as error:
                again = SLOW_START in str(error) and not status.batches and not stop.asked
                if not again or attempt == START_ATTEMPTS_MAX:
                    raise
        if hasattr(pipeline, "finish"):
            pipeline.finish()
        status.state = STOPPED if stop.asked else DONE
    except Exception as error:
        status.state, status.error = FAILED, in_one_line(error)
        raise
    finally:
        write(status, folder)
        on_status(status)
    return status


def _watch(query: Any, status: Status, stop: Stop, changed: Callable[[], None]) -> None:
    seen = -1
    asked_s: float | None = None
    while True:
        over = query.awaitTermination(POLL_S)
        for progress in query.recentProgress:
            if progress["batchId"] > seen and progress["durationMs"].get("addBatch") is not None:
                seen = progress["batchId"]
                count(status, progress)
        changed()
        if over:
            return
        if stop.asked and asked_s is None:
            asked_s = time.monotonic()
        if asked_s is not None:
            late = time.monotonic() - asked_s > BATCH_END_TIMEOUT_S
            # A batch that is cut off is run again by the next run: topics would get its records twice.
            if late or stop.asked > 1 or not query.status["isTriggerActive"]:
                query.stop()


def count(status: Status, progress: Any) -> None:
    """Add one batch. Records by offsets: Spark's own count has those twice that were read twice."""
    status.batches += 1
    status.last_batch = progress["batchId"]
    status.last_batch_ms = progress["durationMs"].get("triggerExecution", 0)
    status.records_per_s = round(progress["processedRowsPerSecond"] or 0.0, 1)
    lag: int | None = None
    for source in progress["sources"]:
        start, end, latest = (_offsets(source[name]) for name in ("startOffset", "endOffset", "latestOffset"))
        # Spark does not know where the first batch began; our source says so beside its end.
        start = start or _offsets(_document(source["endOffset"]).get(OURS, {}).get("began"))
        status.records += sum(end[place] - start.get(place, 0) for place in end)
        if latest:
            lag = (lag or 0) + sum(max(0, latest[place] - end.get(place, 0)) for place in latest)
    status.lag = lag
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


def status_folder(checkpoint: str, name: str) -> Path:
    """Beside the checkpoint; where that is on another file system than ours, in the default folder."""
    from skidway.spark.pipelines.options import DEFAULT_FOLDER

    return local_folder(checkpoint) or Path(DEFAULT_FOLDER, name)


def write(status: Status, folder: Path) -> None:
    status.updated_ms = _now_ms()
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{STATUS_FILE}.new"
    fresh.write_text(json.dumps(asdict(status), indent=2))
    fresh.replace(folder / STATUS_FILE)


def read(folder: Path) -> Status | None:
    """None if there is none that makes sense. One that says it runs and does not has died."""
    path = folder / STATUS_FILE
    try:
        if path.stat().st_size > STATUS_BYTES_MAX:
            return None
        told = json.loads(path.read_text())
        known = {one.name for one in fields(Status)}
        status = Status(**{name: value for name, value in told.items() if name in known})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    if status.state == RUNNING and status.host == socket.gethostname() and not _alive(status.pid):
        status.state = DIED
    return status


def read_all(root: Path) -> list[tuple[Path, Status]]:
    """Of every pipeline with a folder below the root, and of the root itself."""
    found = []
    for folder in [root, *(sorted(root.iterdir()) if root.is_dir() else [])]:
        status = read(folder)
        if status is not None:
            found.append((folder, status))
    return found


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


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
