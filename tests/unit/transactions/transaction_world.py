"""The world of a transaction coordinator: its log, its clocks, producer ids, and nothing of the network.

The log takes records as bytes and gives them back as bytes. It commits when told to, so a coordinator can be lost with
the uncommitted end of it.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from skidway.errors import NotCoordinator, StorageError
from skidway.runtime.replicated import Now, Operation, Replicated
from skidway.transactions.coordinator import TransactionCoordinator
from skidway.transactions.operations import Tick, WriteMarkers
from skidway.transactions.records import FORMAT, TransactionRecord
from skidway.transactions.settings import TransactionSettings

WALL_AT_START_MS = 1_000_000
FIRST_PRODUCER_ID = 1_000


class World:
    machine_class: type[TransactionCoordinator] = TransactionCoordinator
    """A mutant takes its place where the tests themselves are tested."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.now_ms = 0
        self.settings = settings
        self.batches: list[tuple[int, bytes]] = []
        self._decoded: dict[bytes, list[TransactionRecord]] = {}
        self.committed_offset = 0
        self.held_back = self.refusing = self.short = False
        self.next_producer_id = FIRST_PRODUCER_ID
        self.drawn: list[int] = []
        """Producer ids given away since they were last taken from here."""
        self.numbers = count()
        self.written: list[TransactionRecord] = []
        self.performed: list[WriteMarkers] = []
        self.host = self.new_host()

    def new_host(self) -> Replicated[TransactionCoordinator, TransactionRecord]:
        return Replicated(self.new_machine, self, perform=self.performed.append)

    def new_machine(self) -> TransactionCoordinator:
        return self.machine_class(self.settings, self.new_producer_id, self.numbers)

    def new_producer_id(self) -> int | None:
        if self.short:
            return None
        self.next_producer_id += 1
        self.drawn.append(self.next_producer_id - 1)
        return self.drawn[-1]

    @property
    def machine(self) -> TransactionCoordinator:
        return self.host.machine

    # Clock and store.

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_AT_START_MS + self.now_ms)

    @property
    def end_offset(self) -> int:
        return self.batches[-1][0] if self.batches else 0

    def append(self, records: Sequence[TransactionRecord], now_ms: int) -> int:
        if self.refusing:
            self.refusing = False
            raise StorageError("disk full")
        self.batches.append((self.end_offset + len(records), bytes(FORMAT.to_batch(records, self.now.wall_ms))))
        self.written += records
        if not self.held_back:
            self.committed_offset = self.end_offset
        return self.end_offset

    def read_all(self) -> list[TransactionRecord]:
        return self.records_below(self.end_offset)

    def records_below(self, offset: int) -> list[TransactionRecord]:
        for _, batch in self.batches:
            if batch not in self._decoded:
                self._decoded[batch] = list(FORMAT.from_batches(batch))
        return [record for end_offset, batch in self.batches if end_offset <= offset for record in self._decoded[batch]]

    # What happens.

    def submit(self, operation: Operation[Any], respond: Callable[[Any], None] = lambda reply: None) -> None:
        self.host.submit(operation, self.now, respond)

    def tick(self) -> None:
        self.submit(Tick(self.now.wall_ms))

    def pass_time(self, wait_ms: int) -> None:
        end_ms = self.now_ms + wait_ms
        while self.machine.deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.machine.deadline_ms)
            self.tick()
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

    def rebuilt(self, *, compacted: bool = False) -> TransactionCoordinator:
        """Another coordinator, by the log alone."""
        records = self.read_all()
        if compacted:
            last = {record.id: number for number, record in enumerate(records)}
            kept = [records[number] for number in sorted(last.values())]
            records = [record for record in kept if record.transaction is not None]
        machine = self.new_machine()
        for record in records:
            machine.apply(record)
        return machine
