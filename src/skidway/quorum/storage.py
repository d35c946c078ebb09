"""What the quorum keeps: its log, and the few facts a member must never forget.

`save` returns when the facts are durable, so whatever is answered afterwards keeps its promise. The log is appended
to at once and becomes durable later; the machine is told by `on_synced`.
"""

from typing import Protocol

from msgspec import Struct

from skidway.ports import Buffer
from skidway.quorum.messages import NO_LEADER, EpochEnd
from skidway.quorum.voters import Member, Voters


class Remembered(Struct, frozen=True):
    epoch: int = 0
    leader: int = NO_LEADER
    voted: Member | None = None


class Memory(Protocol):
    def load(self) -> Remembered: ...

    def save(self, remembered: Remembered) -> None: ...


class QuorumLog(Protocol):
    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def synced_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """Of the last record, or of the snapshot when there is none after it; 0 for an empty log."""
        ...

    @property
    def snapshot(self) -> EpochEnd | None:
        """The newest whole one."""
        ...

    @property
    def base(self) -> EpochEnd:
        """Where the log begins, and the epoch of the record before: of a snapshot's end, or zeros."""
        ...

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The largest known epoch at most `epoch`, and the offset where it ends; `base` for those before the log."""
        ...

    def append_leader_change(self, leader: Member, voters: Voters, granted: list[Member], epoch: int) -> int:
        """A control record; returns its offset."""
        ...

    def append_voters(self, voters: Voters, epoch: int) -> int:
        """A control record; returns its offset."""
        ...

    def append_fetched(self, records: Buffer) -> list[tuple[int, Voters]]:
        """Whole batches as the leader sent them, checked first (CorruptMessage); returns the sets of voters in them
        by offset."""
        ...

    def truncate_to(self, offset: int) -> None: ...

    def read(self, offset: int) -> Buffer:
        """Whole batches from `offset` on, committed or not, of a bounded size."""
        ...

    def read_snapshot(self, snapshot: EpochEnd, position: int) -> tuple[int, Buffer] | None:
        """(whole size, some bytes from `position` on); None when it is not there any more."""
        ...

    def begin_snapshot(self, snapshot: EpochEnd) -> None:
        """Bytes of a snapshot are about to come; what came of another is dropped."""
        ...

    def append_snapshot(self, data: Buffer) -> int:
        """Returns how many bytes there are now. CorruptMessage when it becomes too large."""
        ...

    def finish_snapshot(self) -> Voters:
        """All bytes are there: check them (CorruptMessage), make them durable, begin the log anew where the snapshot
        ends. Returns the voters it holds."""
        ...
