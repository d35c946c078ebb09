"""What is known of a pipeline's run: kept in `status.json` in its checkpoint, read by `skidway pipeline status`.

Nothing here imports Spark.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from skidway.spark.pipelines.checkpoints import local_folder
from skidway.spark.pipelines.options import DEFAULT_FOLDER, BadPipeline

STATUS_FILE = "status.json"
STATUS_BYTES_MAX = 1024 * 1024
RUNNING, DONE, STOPPED, FAILED, DIED = "running", "done", "stopped", "failed", "died"


@dataclass(slots=True)
class Figures:
    """Of a run; what metrics tell beyond a status."""

    batches_ms: int = 0
    """All batches took together."""
    last_commit_ms: int = 0
    waiting_since_ms: int | None = None
    """Since when the oldest record that was not read yet has been there, at least."""
    rows: int = 0
    """Written to tables, in so many files and bytes."""
    files: int = 0
    bytes: int = 0
    late: int = 0
    """Rows that came behind the watermark, and were left out."""


@dataclass(slots=True)
class Status:
    pipeline: str
    topics: list[str] = field(default_factory=list)
    name: str = ""
    """What it is called: by --name, or as its checkpoint."""
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
    delivery: str = ""
    """To topics: exactly_once or at_least_once. Nothing for pipelines that write none."""
    error: str = ""
    figures: Figures = field(default_factory=Figures)


class Watched:
    """What runs or ran in this process."""

    """The status of each pipeline, by a name that no other has."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._statuses: dict[str, tuple[str, Status]] = {}

    def enter(self, status: Status, folder: str) -> None:
        """A later run takes the place of the one before it; another pipeline of this name is known by its folder."""
        with self._guard:
            there = self._statuses.get(status.name)
            taken = there is not None and there[0] != folder and there[1].state == RUNNING
            self._statuses[f"{status.name} ({folder})" if taken else status.name] = folder, status

    def all(self) -> dict[str, Status]:
        with self._guard:
            return {name: status for name, (_, status) in self._statuses.items()}


watched = Watched()


def status_folder(checkpoint: str, name: str) -> Path:
    """Beside the checkpoint; where that is on another file system than ours, in the default folder."""
    return local_folder(checkpoint) or Path(DEFAULT_FOLDER, name)


def write(status: Status, folder: Path) -> None:
    status.updated_ms = now_ms()
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
        status = Status(**_known(Status, told))
        status.figures = Figures(**_known(Figures, told.get("figures", {})))
        status.name = status.name or folder.absolute().name
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    if status.state == RUNNING and status.host == socket.gethostname() and not _alive(status.pid):
        status.state = DIED
    return status


def _known(kind: type, told: dict[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in told.items() if name in names}


def read_all(root: Path) -> list[tuple[Path, Status]]:
    """Of every pipeline with a folder below the root, and of the root itself."""
    found = []
    for folder in [root, *(sorted(root.iterdir()) if root.is_dir() else [])]:
        status = read(folder)
        if status is not None:
            found.append((folder, status))
    return found


def check_own(folder: Path, kind: str, topics: Sequence[str]) -> None:
    """BadPipeline if the progress there is another pipeline's: going on with it would skip or repeat records."""
    there = read(folder)
    if there is None or not there.batches or (there.pipeline == kind and set(there.topics) & set(topics)):
        return
    raise BadPipeline(
        f"the progress in {folder} is that of {there.pipeline} of {', '.join(there.topics)}, and not of {kind} of"
        f" {', '.join(topics)}; give this pipeline a name of its own, for example --name {kind}-{topics[0]}"
    )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def now_ms() -> int:
    return time.time_ns() // 1_000_000
