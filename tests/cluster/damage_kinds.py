"""What can be wrong with one copy of a partition after all nodes were killed: each kind is done to a data directory
while its node is down. `TOPIC-0` is the partition."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skidway.log.durability.checkpoints import read_committed, read_offsets
from skidway.records.batch import HEADER_BYTES, iter_headers

TOPIC = "story"
COMMITTED = "committed-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CHECKPOINTS = (COMMITTED, "replication-offset-checkpoint", RECOVERY_POINTS, "log-start-offset-checkpoint")


@dataclass(frozen=True)
class Kind:
    name: str
    do: Callable[[Path, Path], None]
    """Gets the data directory, and an old copy of the partition's directory."""
    hides_nothing: bool = False
    """Whether every record is still there."""
    wipes: bool = False
    """Whether the whole data directory goes, and with it a vote."""


def partition_of(data: Path) -> Path:
    return data / f"{TOPIC}-0"


def segments(data: Path) -> list[Path]:
    return sorted(partition_of(data).glob("*.log"))


def has_saved(data: Path, offset: int) -> bool:
    """Whether a node that runs has saved all it will about a log that ends there: that everything is committed, and
    a checkpoint of the partition. After that it writes none of its files."""
    try:
        committed = read_committed((data / COMMITTED).read_bytes()).get((TOPIC, 0), (None, 0))[1]
        recovery_point = read_offsets((data / RECOVERY_POINTS).read_bytes()).get((TOPIC, 0), 0)
    except FileNotFoundError:
        return False
    return committed == recovery_point == offset


def flip(path: Path, at: int) -> None:
    stored = bytearray(path.read_bytes())
    stored[at] ^= 0x04
    path.write_bytes(stored)


def flip_in_batch(path: Path, number: int) -> None:
    """A bit of a record's value."""
    positions = [position for position, _ in iter_headers(path.read_bytes())]
    flip(path, positions[number] + HEADER_BYTES + 20)


def forget_checkpoints(data: Path) -> None:
    """As if none had been taken since the first record: only the watermark was saved."""
    for path in partition_of(data).glob("*.snapshot"):
        path.unlink()
    (data / RECOVERY_POINTS).unlink(missing_ok=True)


def bit_above_the_checkpoint(data: Path, old: Path) -> None:
    forget_checkpoints(data)
    flip_in_batch(segments(data)[0], 5)


def last_bit_above_the_checkpoint(data: Path, old: Path) -> None:
    forget_checkpoints(data)
    last = [path for path in segments(data) if path.stat().st_size][-1]
    flip_in_batch(last, -1)


def length_above_the_checkpoint(data: Path, old: Path) -> None:
    """The batch looks like one that a kill interrupted."""
    forget_checkpoints(data)
    last = [path for path in segments(data) if path.stat().st_size][-1]
    positions = [position for position, _ in iter_headers(last.read_bytes())]
    flip(last, positions[-1] + 9)


def header_below_the_checkpoint(data: Path, old: Path) -> None:
    """Of the last batch, where a start begins to read."""
    last = [path for path in segments(data) if path.stat().st_size][-1]
    positions = [position for position, _ in iter_headers(last.read_bytes())]
    flip(last, positions[-1] + 16)


def directory_removed(data: Path, old: Path) -> None:
    shutil.rmtree(partition_of(data))


def log_files_removed(data: Path, old: Path) -> None:
    forget_checkpoints(data)
    for path in segments(data):
        path.unlink()


def middle_segment_removed(data: Path, old: Path) -> None:
    found = segments(data)
    found[len(found) // 2].unlink()


def first_segment_removed(data: Path, old: Path) -> None:
    segments(data)[0].unlink()


def last_segments_removed(data: Path, old: Path) -> None:
    for path in segments(data)[-2:]:
        path.unlink()


def bit_in_the_metadata(data: Path, old: Path) -> None:
    flip(partition_of(data) / "partition.metadata", -6)


def metadata_removed(data: Path, old: Path) -> None:
    (partition_of(data) / "partition.metadata").unlink()


def metadata_emptied(data: Path, old: Path) -> None:
    (partition_of(data) / "partition.metadata").write_bytes(b"")


def checkpoints_removed(data: Path, old: Path) -> None:
    for name in CHECKPOINTS:
        (data / name).unlink(missing_ok=True)


def checkpoints_damaged(data: Path, old: Path) -> None:
    for name in CHECKPOINTS:
        if (data / name).exists():
            (data / name).write_bytes(b"\xff" * 40)


def watermarks_damaged(data: Path, old: Path) -> None:
    """A larger number than ever was, in the file without a checksum."""
    path = data / "replication-offset-checkpoint"
    path.write_bytes(path.read_bytes().replace(f"{TOPIC} 0 ".encode(), f"{TOPIC} 0 9".encode()))


def old_backup(data: Path, old: Path) -> None:
    directory_removed(data, old)
    shutil.copytree(old, partition_of(data))


def wiped(data: Path, old: Path) -> None:
    shutil.rmtree(data)
    data.mkdir()


KINDS = [
    Kind("bit above the checkpoint", bit_above_the_checkpoint),
    Kind("last bit above the checkpoint", last_bit_above_the_checkpoint),
    Kind("length above the checkpoint", length_above_the_checkpoint),
    Kind("header below the checkpoint", header_below_the_checkpoint),
    Kind("directory removed", directory_removed),
    Kind("log files removed", log_files_removed),
    Kind("middle segment removed", middle_segment_removed),
    Kind("first segment removed", first_segment_removed),
    Kind("last segments removed", last_segments_removed),
    Kind("bit in partition.metadata", bit_in_the_metadata, hides_nothing=True),
    Kind("partition.metadata removed", metadata_removed, hides_nothing=True),
    Kind("partition.metadata emptied", metadata_emptied, hides_nothing=True),
    Kind("checkpoint files removed", checkpoints_removed, hides_nothing=True),
    Kind("checkpoint files damaged", checkpoints_damaged, hides_nothing=True),
    Kind("watermarks damaged", watermarks_damaged, hides_nothing=True),
    Kind("old backup put back", old_backup),
    Kind("data directory wiped", wiped, wipes=True),
]
BY_NAME = {kind.name: kind for kind in KINDS}
ORDERS = ("damaged first", "damaged with one other", "damaged last", "together")
