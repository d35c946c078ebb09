"""The small text files beside the logs, as Kafka writes them: a version line, a count line, one line for each entry.

Every function here maps bytes to values and back; who writes them, when and how durably is the caller's affair.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable

import msgspec

from skidway.limits import INT64_MAX
from skidway.records.checksum import crc32c

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
COMMITTED = "committed-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"
TRUNCATED = "truncated"
DAMAGED = "damaged"
WAS_DAMAGED = "was-damaged"
ACCEPT_LOSS = "accept-loss"
"""An operator puts a file of this name into a damaged partition: what cannot be read is given up."""

TopicPartition = tuple[str, int]


class CorruptCheckpoint(Exception):
    """A checkpoint file that does not follow its format."""


class Truncated(msgspec.Struct, frozen=True):
    """What a log whose tail was cut remembers of that in its own directory.

    Other files may still speak of what is gone: those of the data directory are written now and then, and a worker may
    be busy with a checkpoint that was begun before.
    """

    count: int = 0
    """How often. A producer snapshot says how often it had been when it was taken."""
    cuts: tuple[tuple[int, int], ...] = ()
    """(which one, where) of those that other files may not know of yet, without what a later and deeper one covers."""
    start_offset: int = 0
    """Where the log began then: the snapshot that told may be gone."""
    restart_at: int = -1
    """Everything is to be dropped, and an empty log to begin here; -1 when that is done."""

    @property
    def is_marked(self) -> bool:
        return bool(self.cuts)

    @property
    def offset(self) -> int:
        """The deepest cut: what the files of the data directory say about offsets above is void."""
        return self.cuts[0][1] if self.cuts else INT64_MAX

    def voids(self, offset: int, truncations: int) -> bool:
        """Whether a snapshot at `offset` is about a tail that is gone."""
        return any(offset > end_offset for number, end_offset in self.cuts if number > truncations)

    def cut(self, end_offset: int, start_offset: int, restart_at: int = -1) -> "Truncated":
        count = self.count + 1
        cuts = [*(cut for cut in self.cuts if cut[1] < end_offset), (count, end_offset)]
        if len(cuts) > _CUTS_MAX:
            # Voids a little more than it must.
            cuts[:2] = [(cuts[1][0], cuts[0][1])]
        return Truncated(count, tuple(cuts), start_offset, restart_at)


NEVER_TRUNCATED = Truncated()
_ALL_VOID = Truncated(1 << 30, ((1 << 30, 0),))
_CUTS_MAX = 64
_NO_ID = "-"
_CHECKSUM_BYTES = 9


def _write(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]).encode()


def _read(data: bytes, fields: int) -> list[list[str]]:
    try:
        lines = data.decode().splitlines()
        if not lines:
            return []
        if lines[0] != "0":
            raise CorruptCheckpoint(f"version {lines[0]!r}")
        rows = [line.split() for line in lines[2:]]
        if len(lines) < 2 or len(rows) != int(lines[1]) or any(len(row) != fields for row in rows):
            raise CorruptCheckpoint("the count or a line is wrong")
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from error
    return rows


def write_offsets(offsets: dict[TopicPartition, int]) -> bytes:
    return _write([f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())])


def read_offsets(data: bytes) -> dict[TopicPartition, int]:
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in _read(data, 3)}
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from error


def write_committed(offsets: dict[TopicPartition, tuple[bytes | None, int]]) -> bytes:
    """High watermarks with the ids of the topics they belong to, and a checksum: what decides whether a log is whole
    must not be decided by a flipped bit."""
    rows = [
        f"{topic} {partition} {_NO_ID if topic_id is None else encode_topic_id(topic_id)} {offset}"
        for (topic, partition), (topic_id, offset) in sorted(offsets.items())
    ]
    body = _write(rows)
    return body + f"{crc32c(body):08x}\n".encode()


def read_committed(data: bytes) -> dict[TopicPartition, tuple[bytes | None, int]]:
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if checksum != f"{crc32c(body):08x}\n".encode():
        raise CorruptCheckpoint("the checksum is wrong")
    try:
        return {
            (topic, int(partition)): (None if topic_id == _NO_ID else decode_topic_id(topic_id.encode()), int(offset))
            for topic, partition, topic_id, offset in _read(body, 4)
        }
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from error


def encode_topic_id(topic_id: bytes) -> str:
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def decode_topic_id(text: bytes) -> bytes | None:
    """None when it is not the id of a topic."""
    try:
        topic_id = urlsafe_b64decode(text + b"==")
    except ValueError:
        return None
    return topic_id if len(topic_id) == 16 else None


def write_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _write([f"{epoch} {start}" for epoch, start in entries])


def read_epochs(data: bytes) -> list[tuple[int, int]]:
    try:
        return [(int(epoch), int(start)) for epoch, start in _read(data, 2)]
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from error


def write_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def read_clean_shutdown(data: bytes) -> int:
    """The broker epoch of the run that ended cleanly; -1 when it does not say."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if isinstance(epoch, int) else -1


def write_truncated(truncated: Truncated) -> bytes:
    start_offset, restart_at = truncated.start_offset, truncated.restart_at
    return _write([f"{number} {end_offset} {start_offset} {restart_at}" for number, end_offset in truncated.cuts])


def read_truncated(data: bytes) -> Truncated:
    """A file that cannot be read voids everything: that costs a longer start, believing too much would cost the log."""
    try:
        rows = [[int(field) for field in row] for row in _read(data, 4)]
    except (CorruptCheckpoint, ValueError):
        return _ALL_VOID
    if not rows:
        return _ALL_VOID
    count, _, start_offset, restart_at = rows[-1]
    return Truncated(count, tuple((row[0], row[1]) for row in rows), start_offset, restart_at)
