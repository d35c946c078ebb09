"""What clients say of offsets they hold, on its way to the store.

Everything one request says of a partition is one settlement: it takes effect as a whole, or not at all.
"""

from collections.abc import Callable

from msgspec import Struct, field

from skidway.errors import InvalidRequest, ProtocolError
from skidway.shares.acquiring import Acquired
from skidway.shares.leases import NOBODY, Lease
from skidway.shares.records import StateBatch, Update
from skidway.shares.states import Verb
from skidway.shares.terms import NO_TERMS, TermNotes

Answer = Callable[[ProtocolError | None], None]


class Said(Struct):
    """One word about a range of offsets."""

    first: int
    end: int
    verb: Verb
    delay_ms: int = 0
    """Released: for so long nobody gets it."""


class Decided(Struct):
    """What becomes of a part of a lease."""

    lease: Lease
    state: int
    delay_ms: int = 0

    def join(self, other: "Decided") -> bool:
        """Take a neighbour in, if all is the same with it. Whoever spoke of a lease that was over is heard alone."""
        mine, its = self.lease, other.lease
        if (
            mine.end != its.first
            or self.state != other.state
            or mine.deadline_ms != its.deadline_ms
            or mine.owner != its.owner
            or mine.count != its.count
            or mine.keep is not its.keep
            or mine.owner == NOBODY
            or self.delay_ms
            or other.delay_ms
        ):
            return False
        mine.end = its.end
        return True


class Settlement(Struct):
    answer: Answer
    parts: list[Decided]
    """None: leases were renewed, and that is to be stored; or a settlement before it, in the same write, has them."""


class Keep(Struct, eq=False):
    """Leases that are to be stored before their holder hears of them."""

    acquired: list[Acquired]
    """When it is known that they are stored: what of it is still leased."""
    is_known: bool = False
    error: ProtocolError | None = None
    """Why they are not stored; then they are over, and were no deliveries."""
    _answer: Answer | None = None

    def when_known(self, answer: Answer) -> None:
        """`answer` is called once, at once or later."""
        if self.is_known:
            answer(self.error)
        else:
            self._answer = answer

    def tell(self, error: ProtocolError | None) -> None:
        self.is_known, self.error = True, error
        if error is not None:
            self.acquired = []
        if self._answer is not None:
            self._answer(error)


class Chore(Struct):
    """A change that nobody waits for. It is tried until it is stored."""

    first: int
    end: int
    state: int
    count: int

    def batch(self) -> StateBatch:
        return StateBatch(self.first, self.end, self.state, self.count)


class Writing(Struct):
    """What is with the store: the update, and all it stands for."""

    update: Update
    settlements: list[Settlement]
    chores: list[Chore]
    counted: list[StateBatch]
    """Delivery counts of what is leased or was released: they ride along, nobody waits for them."""
    keeps: list[Keep] = field(default_factory=list)
    terms: TermNotes = NO_TERMS


def check_order(said: list[Said]) -> None:
    """InvalidRequest unless the ranges ascend, and have no offset in common."""
    end = 0
    for word in said:
        if word.first < end or word.end <= word.first:
            raise InvalidRequest(f"offsets {word.first} to {word.end - 1} are out of order")
        end = word.end
