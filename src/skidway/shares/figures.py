"""What operators want to know of one share-partition, counted over its window; it changes nothing."""

from dataclasses import dataclass, field

from skidway.shares.cells import CHUNK
from skidway.shares.delivery import Delivery
from skidway.shares.states import AVAILABLE, DELAYED, LEASED, TERMINAL
from skidway.steps import Steps


@dataclass(slots=True)
class Figures:
    """In offsets: some may hold no record for readers."""

    start_offset: int
    end_offset: int
    """The end of what was ever delivered."""
    locked: int = 0
    """That consumers hold."""
    settling: int = 0
    """That consumers have spoken about and the store has not answered, or that are being given up."""
    waiting: int = 0
    """That were delivered and are to be delivered again."""
    counts: dict[int, int] = field(default_factory=dict)
    """Unsettled offsets by how often they were delivered."""


def figures(delivery: Delivery) -> Steps[Figures]:
    """Deliveries may go on between the steps: then it is a picture of several moments."""
    found = Figures(delivery.start_offset, delivery.end_offset)
    first = found.start_offset
    while first < found.end_offset:
        end = min(first + CHUNK, found.end_offset)
        for run in delivery.live.runs(max(first, delivery.start_offset), end):
            _add(found, run.state, run.count, run.end - run.first)
        first = end
        yield None
    return found


def _add(found: Figures, state: int, count: int, offsets: int) -> None:
    if state in TERMINAL:
        return
    if state == LEASED:
        found.locked += offsets
    elif state in (AVAILABLE, DELAYED):
        # What was offered to nobody lies between what was: a gap in what the store knew.
        found.waiting += offsets if count else 0
    else:
        found.settling += offsets
    if count:
        found.counts[count] = found.counts.get(count, 0) + offsets
