"""The directories of partitions: how they are named, which topic each belongs to, how they go.

A partition lives in `<topic>-<partition>`; a deleted one is renamed to `<topic>-<partition>.<hex>-delete` and removed
later. One that no topic knows is renamed to `…-stray` and stays.
"""

from skidway.log.durability.checkpoints import PARTITION_METADATA, TopicPartition, decode_topic_id, encode_topic_id
from skidway.log.durability.directory_work import RemovalTicket
from skidway.ports import Disk

_NAME_MAX = 255
_DELETED = "-delete"
_STRAY = "-stray"
_FLIPPED_BYTES_MAX = 2
"""A `partition.metadata` that differs from the right one in no more bytes is the right one, damaged. Ids are random:
those of two topics differ in many more."""


def directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_directory_name(name: str) -> TopicPartition | None:
    """Topic names may hold dashes and dots: the last dash counts."""
    topic, _, partition = name.rpartition("-")
    if not topic or not (partition.isascii() and partition.isdecimal()):
        return None
    return topic, int(partition)


def is_stray(name: str) -> bool:
    return name.endswith(_STRAY)


def partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {encode_topic_id(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> bytes | None:
    lines = dict(line.split(b": ", 1) for line in data.splitlines() if b": " in line)
    if lines.get(b"version") != b"0":
        return None
    return decode_topic_id(lines.get(b"topic_id", b""))


def is_nearly(data: bytes, topic_id: bytes) -> bool:
    """Whether a `partition.metadata` is that of the topic, but for a few damaged bytes."""
    expected = partition_metadata(topic_id)
    flipped = sum(one != other for one, other in zip(data, expected, strict=False))
    return len(data) == len(expected) and flipped <= _FLIPPED_BYTES_MAX


class Unopened:
    """A file that is opened when it is synced: thousands of new partitions would take as many descriptors."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def sync(self) -> None:
        self._disk.sync_file(self._path)


class Directories:
    __slots__ = ("_deleted", "_disk")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        # When it is due, and its name.
        self._deleted: list[tuple[int, str]] = []

    def find(self, names: list[str]) -> list[TopicPartition]:
        """Partitions among what the data directory holds. What an earlier run deleted is due to be removed."""
        self._deleted += [(0, name) for name in names if name.endswith(_DELETED)]
        return [key for name in names if (key := parse_directory_name(name)) is not None]

    def read_metadata(self, key: TopicPartition) -> bytes:
        """Empty where there is none."""
        try:
            return self._disk.read(f"{directory_name(*key)}/{PARTITION_METADATA}")
        except FileNotFoundError:
            return b""

    def read_topic_id(self, key: TopicPartition) -> bytes | None:
        return parse_partition_metadata(self.read_metadata(key))

    def write_topic_id(self, key: TopicPartition, topic_id: bytes) -> Unopened:
        """Not synced yet."""
        path = f"{directory_name(*key)}/{PARTITION_METADATA}"
        file = self._disk.open(path, create=True)
        file.truncate(0)
        file.append(partition_metadata(topic_id))
        file.close()
        return Unopened(self._disk, path)

    def written_before(self, key: TopicPartition) -> Unopened:
        """The file with its topic id, which perhaps nobody synced."""
        return Unopened(self._disk, f"{directory_name(*key)}/{PARTITION_METADATA}")

    def is_empty(self, key: TopicPartition) -> bool:
        """Whether it holds no record."""
        directory = directory_name(*key)
        return not any(
            name.endswith(".log") and self._disk.size(f"{directory}/{name}") for name in self._disk.list(directory)
        )

    def delete(self, key: TopicPartition, due_ms: int) -> None:
        """Its files go when that time has come."""
        self._deleted.append((due_ms, self._rename(key, _DELETED)))

    def set_aside(self, key: TopicPartition) -> str:
        return self._rename(key, _STRAY)

    def _rename(self, key: TopicPartition, ending: str) -> str:
        topic, partition = key
        mark = (self.read_topic_id(key) or bytes(16)).hex()
        number = 0
        while True:
            suffix = f"-{partition}.{mark[:-4]}{int(mark[-4:], 16) ^ number:04x}{ending}"
            target = topic[: _NAME_MAX - len(suffix)] + suffix
            if not self._disk.exists(target):
                break
            number += 1
        self._disk.rename(directory_name(topic, partition), target)
        return target

    def begin_removal(self, now_ms: int) -> RemovalTicket | None:
        """Deleted partitions whose time has come."""
        due = [name for due_ms, name in self._deleted if due_ms <= now_ms]
        if not due:
            return None
        self._deleted = [item for item in self._deleted if item[0] > now_ms]
        return RemovalTicket(self._disk, due)

    def give_back_removal(self, ticket: RemovalTicket) -> None:
        """It failed: `begin_removal` will hand them out again."""
        self._deleted += [(0, name) for name in ticket.trees]
