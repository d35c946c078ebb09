"""What of a share-partition is in the store: the layer that changes by `apply` alone.

Whoever loads what was stored and whoever applied the same updates one by one have the same state. Holes between stored
batches are offsets that nobody has settled: they are delivered.
"""

from collections.abc import Iterator

from skidway.shares.cells import Cells
from skidway.shares.letter_notes import newer
from skidway.shares.records import UNKNOWN_COUNT, StateBatch, Stored, Update
from skidway.shares.states import ARCHIVING, TERMINAL
from skidway.shares.terms import NO_TERMS, changed


class Durable:
    __slots__ = ("cells", "complete_count", "end_offset", "has_dead", "letters", "start_offset", "state_epoch", "terms")

    def __init__(self, stored: Stored) -> None:
        assert stored.start_offset >= 0, "where it begins must be known first"
        self.state_epoch = stored.state_epoch
        self.start_offset = self.end_offset = stored.start_offset
        self.complete_count = 0
        self.letters = stored.letters
        self.terms = stored.terms
        self.has_dead = False
        """Records have become archiving since somebody looked for them. Not stored."""
        self.cells = Cells()
        for batch in stored.batches:
            self._merge(batch)

    def apply(self, update: Update) -> None:
        for batch in update.batches:
            self._merge(batch)
        if update.letters is not None:
            self.letters = newer(self.letters, update.letters)
        if update.start_offset > self.start_offset:
            self.complete_count -= self.cells.count_terminal(
                self.start_offset, min(update.start_offset, self.end_offset)
            )
            self.start_offset = update.start_offset
            self.end_offset = max(self.end_offset, update.start_offset)
            self.cells.drop_below(self.start_offset)
        if self.terms.terms or update.terms is not None:
            self.terms = changed(self.terms, update.terms or NO_TERMS, self.start_offset)
        assert update.complete_count in (UNKNOWN_COUNT, self.complete_count), (
            f"{self.complete_count} offsets are settled, the update says {update.complete_count}"
        )

    def preview(self, batches: list[StateBatch], floor: int) -> tuple[int, int]:
        """Start offset and complete count as they would be after these batches; the start is `floor` at least.
        The batches are in order, and say nothing of what is settled already."""
        start = position = max(self.start_offset, floor)
        settled = [batch for batch in batches if batch.state in TERMINAL and batch.end > position]
        for batch in settled:
            position = self.cells.terminal_end(position, max(position, min(batch.first, self.end_offset)))
            if position < batch.first:
                break
            position = batch.end
        else:
            position = self.cells.terminal_end(position, max(position, self.end_offset))
        above = sum(batch.end - max(batch.first, position) for batch in settled if batch.end > position)
        passed = self.cells.count_terminal(self.start_offset, min(position, self.end_offset))
        assert position >= start
        return position, self.complete_count - passed + above

    def batches(self) -> list[StateBatch]:
        """All of it, in the fewest words."""
        runs = self.cells.runs(self.start_offset, self.end_offset)
        return [run for run in runs if run.state or run.count]

    def raised(self, batch: StateBatch) -> Iterator[StateBatch]:
        """With the counts that are stored where those are higher: a delivery that did not count may have been stored,
        and of two words the one with the higher count wins."""
        if batch.end - batch.first == 1:
            yield StateBatch(batch.first, batch.end, batch.state, max(batch.count, self.cells.count_at(batch.first)))
            return
        for run in self.cells.runs(batch.first, batch.end):
            yield StateBatch(run.first, run.end, batch.state, max(batch.count, run.count))

    def _merge(self, batch: StateBatch) -> None:
        first, cells = max(batch.first, self.start_offset), self.cells
        self.end_offset = max(self.end_offset, batch.end)
        self.has_dead |= batch.state == ARCHIVING
        while first < batch.end:
            stop = cells.run_end(first, batch.end)
            before = cells.count_at(first), cells.state_at(first)
            if (batch.count, batch.state) > before:
                cells.set_state(first, stop, batch.state)
                cells.set_count(first, stop, batch.count)
                was, now = before[1] in TERMINAL, batch.state in TERMINAL
                self.complete_count += (stop - first) * (now - was)
            first = stop
