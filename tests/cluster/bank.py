"""A bank whose books are topics, and everything its books can have wrong.

An order moves money from one account to another. A clerk reads the orders of one branch and carries out each in a
transaction of its own: an entry in the book of either account, and the offset of the next order. The books are several
topics with several partitions. Aborted attempts and attempts that failed are made again, with another number, so every
value is written once at most.

`Book` is what somebody has read. `Notes` are what the brokers told a clerk. `problems` compares the two:

- torn: one entry of a transaction is there, the other one is not
- lost: a commit was acknowledged, and its entries are not there
- aborted: entries of a transaction that was aborted
- twice: an order was carried out twice, or a record was read twice
- offsets: the group has another offset than the number of orders that were carried out
- sum: the money of all accounts together changed
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Place = tuple[str, int]
TOPICS = ("savings", "loans", "wages")
PARTITIONS = 2
ORDERS = "orders"
GROUP = "bank"
ACCOUNTS = 60
OPENING = 1_000
PLACES = [(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
LEGS = (0, 1)


class Order(NamedTuple):
    source: int
    target: int
    amount: int

    @property
    def value(self) -> bytes:
        return b"%d:%d:%d" % self


def read_order(value: bytes | None) -> Order:
    source, target, amount = map(int, (value or b"").split(b":"))
    return Order(source, target, amount)


def order_of(branch: int, number: int) -> Order:
    """What the branch was told to do, so that nobody has to believe what a record says."""
    source = (branch * 7 + number * 13) % ACCOUNTS
    target = (source + 1 + number % (ACCOUNTS - 1)) % ACCOUNTS
    return Order(source, target, 1 + number % 97)


def place_of(account: int) -> Place:
    return PLACES[account % len(PLACES)]


class Transfer(NamedTuple):
    """One attempt to carry out an order."""

    branch: int
    order: int
    attempt: int

    def entries(self, order: Order) -> list[tuple[Place, bytes]]:
        """For each leg where it is written, and what."""
        moved = ((order.source, -order.amount), (order.target, order.amount))
        return [
            (place_of(account), b"%d:%d:%d:%d:%d:%d" % (*self, leg, account, amount))
            for leg, (account, amount) in enumerate(moved)
        ]


@dataclass
class Notes:
    """What became of a clerk's transfers, as far as the brokers said."""

    committed: set[Transfer] = field(default_factory=set)
    aborted: set[Transfer] = field(default_factory=set)
    unknown: set[Transfer] = field(default_factory=set)
    resolved: int = 0
    """Transfers without an answer, of which the group's offset told later what became of them."""

    def settle(self, next_order: int) -> None:
        """The group's offset, read after the transactional id was taken: nothing of before can end any more."""
        for transfer in self.unknown:
            (self.committed if transfer.order < next_order else self.aborted).add(transfer)
            self.resolved += 1
        self.unknown.clear()

    @property
    def attempts(self) -> int:
        return len(self.committed) + len(self.aborted) + len(self.unknown)


class Book:
    """Entries in the order in which they were read. Not for several threads at once."""

    def __init__(self) -> None:
        self.seen: dict[Place, dict[int, bytes]] = {place: {} for place in PLACES}
        self.legs: dict[Transfer, list[int]] = defaultdict(list)
        self.balances: Counter[int] = Counter(dict.fromkeys(range(ACCOUNTS), OPENING))
        self.wrong: list[str] = []

    def enter(self, place: Place, offset: int, value: bytes | None) -> None:
        log = self.seen[place]
        if log and offset <= next(reversed(log)):
            self.wrong.append(f"twice: {place} offset {offset} was read after {next(reversed(log))}")
            return
        log[offset] = value or b""
        *name, leg, account, amount = map(int, (value or b"").split(b":"))
        transfer = Transfer(*name)
        expected = transfer.entries(order_of(transfer.branch, transfer.order))[leg]
        if expected != (place, value):
            self.wrong.append(f"strange: {place} offset {offset} has {value!r}, {expected} was written")
        self.legs[transfer].append(leg)
        self.balances[account] += amount

    def enter_all(self, logs: Mapping[Place, Mapping[int, bytes]]) -> "Book":
        for place, log in logs.items():
            for offset in sorted(log):
                self.enter(place, offset, log[offset])
        return self

    def unbalanced(self) -> list[str]:
        """While no transaction is open: what somebody sees who looks at all accounts."""
        found = list(self.wrong)
        for transfer, legs in self.legs.items():
            if len(set(legs)) < len(LEGS):
                found.append(f"torn: of {transfer} only leg {legs} is there")
            elif len(legs) > len(LEGS):
                found.append(f"twice: of {transfer} there are legs {legs}")
        total = sum(self.balances.values())
        if total != ACCOUNTS * OPENING:
            found.append(f"sum: {total} instead of {ACCOUNTS * OPENING}")
        return found


def problems(book: Book, notes: Iterable[Notes], offsets: Mapping[int, int]) -> list[str]:
    """After the last transaction has ended. `offsets`: what the group has committed, by branch."""
    found = book.unbalanced()
    known: set[Transfer] = set()
    for each in notes:
        known |= each.committed | each.unknown
        found += [f"lost: {transfer}" for transfer in each.committed - book.legs.keys()]
        found += [f"aborted: {transfer} is there" for transfer in each.aborted & book.legs.keys()]
    found += [f"strange: nobody committed {transfer}" for transfer in book.legs.keys() - known]
    done: dict[int, list[int]] = defaultdict(list)
    for transfer in book.legs:
        done[transfer.branch].append(transfer.order)
    for branch in sorted(done.keys() | offsets.keys()):
        orders, offset = done[branch], offsets.get(branch, 0)
        found += [f"twice: order {order} of branch {branch}" for order, times in Counter(orders).items() if times > 1]
        if set(orders) != set(range(offset)):
            missing, more = set(range(offset)) - set(orders), set(orders) - set(range(offset))
            found.append(f"offsets: branch {branch} is at {offset}; missing {sorted(missing)}, more {sorted(more)}")
    return found
