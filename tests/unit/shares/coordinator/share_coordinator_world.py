"""The world of a share coordinator: its log, its clocks, the topics, and nothing of the network.

The log takes records as bytes and gives them back as bytes. It commits when told to, so a coordinator can be lost with
the uncommitted end of it, and it is cut below an offset when the coordinator asks for that.
"""

from collections.abc import Callable, Sequence
from typing import Any

from skidway.errors import NotCoordinator, StorageError
from skidway.runtime.replicated import Now, Operation, Replicated
from skidway.shares.coordinator.machine import ShareCoordinator
from skidway.shares.coordinator.operations import Prune, Tick
from skidway.shares.coordinator.records import FORMAT, ShareRecord
from skidway.shares.coordinator.settings import ShareCoordinatorSettings

WALL_AT_START_MS = 1_000_000
PARTITIONS = 2


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


class World:
    machine_class: type[ShareCoordinator] = ShareCoordinator
    """A mutant takes its place where the tests themselves are tested."""

    def __init__(self, settings: ShareCoordinatorSettings, topics: Sequence[str] = ("x", "y")) -> None:
        self.now_ms = 0
        self.settings = settings
        self.topics = set(topics)
        self.batches: list[tuple[int, bytes]] = []
        """With the offset behind each."""
        self.start_offset = self.committed_offset = 0
        self.held_back = self.refusing = False
        self.written: list[ShareRecord] = []
        self.pruned: list[int] = []
        self.host = self.new_host()

    def new_host(self) -> Replicated[ShareCoordinator, ShareRecord]:
        return Replicated(self.new_machine, self, perform=self.prune)

    def new_machine(self) -> ShareCoordinator:
        return self.machine_class(self.settings, self)

    @property
    def machine(self) -> ShareCoordinator:
        return self.host.machine

    # Topics.

    def name_of(self, topic_id: bytes) -> str | None:
        name = topic_id.decode().rstrip(".")
        return name if name in self.topics else None

    def partition_count(self, name: str) -> int | None:
        return PARTITIONS if name in self.topics else None

    # Clock and store.

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_AT_START_MS + self.now_ms)

    @property
    def end_offset(self) -> int:
        return self.batches[-1][0] if self.batches else self.start_offset

    def append(self, records: Sequence[ShareRecord], now_ms: int) -> int:
        if self.refusing:
            self.refusing = False
            raise StorageError("disk full")
        base_offset = self.end_offset
        batch = FORMAT.to_batch(records, self.now.wall_ms)
        batch[0:8] = base_offset.to_bytes(8, "big")
        for offset, record in enumerate(records, base_offset):
            record.offset = offset
        self.batches.append((base_offset + len(records), bytes(batch)))
        self.written += records
        if not self.held_back:
            self.committed_offset = self.end_offset
        return self.end_offset

    def read_all(self) -> list[ShareRecord]:
        """Whole batches, so perhaps some of those below the start."""
        kept = [batch for end_offset, batch in self.batches if end_offset > self.start_offset]
        return [record for batch in kept for record in FORMAT.from_batches(batch)]

    def prune(self, effect: Prune) -> None:
        assert effect.offset <= self.committed_offset, "what is not committed may not be given up"
        if effect.offset > self.start_offset:
            self.pruned.append(effect.offset)
            self.start_offset = effect.offset

    # What happens.

    def submit(self, operation: Operation[Any], respond: Callable[[Any], None] = lambda reply: None) -> None:
        self.host.submit(operation, self.now, respond)

    def pass_time(self, wait_ms: int) -> None:
        end_ms = self.now_ms + wait_ms
        while self.machine.deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.machine.deadline_ms)
            self.submit(Tick())
        self.now_ms = end_ms

    def release(self) -> None:
        self.held_back = False
        self.committed_offset = self.end_offset
        self.host.on_committed(self.end_offset)

    def restart(self) -> None:
        """Another node takes over, with all that is in the log."""
        self.host.close(NotCoordinator())
        self.host = self.new_host()

    def lose(self, *, keep_all: bool) -> None:
        """The coordinator comes back with what is in the log, or with what was committed."""
        if not keep_all:
            self.batches = [(end, batch) for end, batch in self.batches if end <= self.committed_offset]
        self.host.on_lost(NotCoordinator())

    def rebuilt(self) -> ShareCoordinator:
        """Another coordinator, by the log alone."""
        machine = self.new_machine()
        for record in self.read_all():
            machine.apply(record)
        return machine
