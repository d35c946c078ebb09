"""Segments that left their log but not yet the disk.

Their files are renamed (`.deleted`) by a checkpoint, oldest first, and removed by a later one, so that no event loop
waits for a disk and no crash leaves a hole. Nothing is renamed before a producer snapshot covers it: the batches it
held are the only other memory of their producers.

Nothing is removed before the new start of the log is saved: a first segment above the saved start is missing, unless a
renamed file tells that it was given up. A disk that is too full to save anything gets its room all the same: renamed
files are emptied, and keep their names.
"""

from dataclasses import dataclass

from skidway.log.compaction.swapping import SEGMENT_SUFFIXES
from skidway.log.durability.sync import Removal, SyncTicket
from skidway.log.segment import Segment


@dataclass(slots=True, eq=False)
class Doomed:
    segment: Segment
    end_offset: int
    given_up_ms: int
    renamed: bool = False
    due: bool = False
    begun: Removal | None = None
    emptied: bool = False
    """The step that was begun only makes room."""


class DoomedSegments(list[Doomed]):
    """Of one log, oldest first."""

    def schedule(self, now_ms: int, delay_ms: int) -> int:
        """How many are due to be removed; the next checkpoint removes them."""
        for item in self:
            # The clock was set back: not for as long as that takes to pass again.
            item.given_up_ms = min(item.given_up_ms, now_ms)
            if item.renamed and not item.due and now_ms - item.given_up_ms >= delay_ms:
                item.due = True
                item.begun = None
        return sum(item.due for item in self)

    def idle_below(self, offset: int) -> list[Doomed]:
        """Those for which no ticket does anything."""
        return [item for item in self if item.begun is None and item.end_offset <= offset]

    def leave(self, ticket: SyncTicket) -> None:
        """The ticket ran. What it did not come to is tried again by another."""
        for removal in (ticket.early, ticket.late):
            for item in [item for item in self if item.begun is removal]:
                if not removal.done or item.emptied:
                    item.begun = None
                elif item.due:
                    self.remove(item)
                else:
                    item.renamed = True


def enter(ticket: SyncTicket, doomed: list[Doomed], covered: int, saved_start: int) -> None:
    """Put the next step of each into a ticket; a snapshot covers those below `covered` already, and one tells that the
    log begins at `saved_start`."""
    for item in doomed:
        removal = item.begun = ticket.early if item.end_offset <= covered else ticket.late
        # What comes late comes after a snapshot that tells the start of now.
        item.emptied = item.due and removal is ticket.early and item.end_offset > saved_start
        if item.emptied:
            removal.emptied.append(item.segment.path(".log") + ".deleted")
        elif item.due:
            removal.removed += [item.segment.path(suffix) + ".deleted" for suffix in SEGMENT_SUFFIXES]
        else:
            path = item.segment.path(".log")
            removal.renamed.append((path, path + ".deleted"))
            # Rebuilt when needed, so they need no delay and no order.
            removal.removed += [item.segment.path(suffix) for suffix in SEGMENT_SUFFIXES[1:]]
