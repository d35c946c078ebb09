"""What a transaction coordinator should do, as simply as it can be said: one row per id, changed on the spot.

States have Kafka's names. Written from Kafka's behaviour (KIP-98, 360, 890) and this project's deviations, not from the
code: nothing is shared with it but the operations.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from skidway.transactions.operations import (
    AddPartitions,
    CommitTogether,
    EndTransaction,
    InitProducer,
    TopicsDeleted,
    VerifyPartitions,
)
from skidway.transactions.settings import TransactionSettings

LAST_EPOCH = 32_766
NEVER_MS = 1 << 60

Pair = tuple[int, int]
"""Producer id and epoch."""
Places = set[tuple[str, int]]


class Refused(Exception):
    def __init__(self, code: str) -> None:
        self.code = code


@dataclass
class Row:
    pid: int
    epoch: int
    state: str
    timeout_ms: int
    updated_ms: int
    started_ms: int = -1
    previous: int = -1
    next: int = -1
    bumps: bool = False
    places: Places = field(default_factory=set)
    # The rest is in no log.
    before: Pair | None = None
    """What the producer was before it got its pair; none if somebody else was."""
    unmarked: Places = field(default_factory=set)
    ticket: int = -1
    """Of the request for markers."""

    @property
    def pair(self) -> Pair:
        return self.pid, self.epoch


@dataclass(frozen=True, order=True)
class Markers:
    transactional_id: str
    pid: int
    epoch: int
    commit: bool
    bumps: bool
    places: tuple[tuple[str, int], ...]
    ticket: int = field(compare=False)


class NaiveTransactions:
    def __init__(self, settings: TransactionSettings, draw: Callable[[], int | None]) -> None:
        self.settings = settings
        self.draw_or_none = draw
        self.rows: dict[str, Row] = {}
        self.tickets = 0
        self.wrote = False
        self.markers: list[Markers] = []
        """Asked for in the last step."""
        self.timeouts_due_ms = self.ages_due_ms = 0

    # --- as a whole ---

    def copy(self) -> "NaiveTransactions":
        twin = copy.copy(self)
        twin.rows, twin.markers = self.copy_rows(), []
        return twin

    def copy_rows(self) -> dict[str, Row]:
        return copy.deepcopy(self.rows)

    def load(self, rows: dict[str, Row]) -> None:
        """Begin with what a log says, and ask for all markers again."""
        self.rows = copy.deepcopy(rows)
        self.markers = []
        self.timeouts_due_ms = self.ages_due_ms = 0
        for key, row in self.rows.items():
            row.before = None
            if row.state.startswith("Prepare"):
                self.ask_for_markers(key, row)

    @property
    def deadline_ms(self) -> int:
        return min(self.timeouts_due_ms, self.ages_due_ms) if self.rows else NEVER_MS

    def ask(self, operation: Any, wall_ms: int) -> tuple[Any, ...]:
        """The answer."""
        self.wrote, self.markers = False, []
        try:
            match operation:
                case InitProducer():
                    return ("producer", *self.init(operation, wall_ms))
                case AddPartitions():
                    self.add(operation, wall_ms)
                    return ("done",)
                case VerifyPartitions():
                    return ("codes", *self.verify(operation))
                case EndTransaction():
                    return ("producer", *self.end(operation, wall_ms))
                case CommitTogether():
                    return ("producers", *self.commit_together(operation, wall_ms))
                case TopicsDeleted():
                    self.delete_topics(operation, wall_ms)
                    return ("done",)
        except Refused as refused:
            return ("error", refused.code)
        raise AssertionError(operation)

    def draw(self) -> int:
        pid = self.draw_or_none()
        if pid is None:
            raise Refused("COORDINATOR_NOT_AVAILABLE")
        return pid

    # --- operations ---

    def init(self, asked: InitProducer, wall_ms: int) -> Pair:
        said = (asked.producer_id, asked.epoch)
        is_newcomer = said == (-1, -1)
        if not is_newcomer and -1 in said:
            raise Refused("INVALID_REQUEST")
        if asked.timeout_ms < 1 or asked.timeout_ms > self.settings.timeout_ms_max:
            raise Refused("INVALID_TRANSACTION_TIMEOUT")
        row = self.rows.get(asked.transactional_id)
        if row is None:
            if len(self.rows) == self.settings.ids_max:
                raise Refused("POLICY_VIOLATION")
            pid = self.draw()
            self.rows[asked.transactional_id] = Row(pid, 0, "Empty", asked.timeout_ms, wall_ms, previous=pid)
            self.wrote = True
            return pid, 0
        if row.state.startswith("Prepare"):
            raise Refused("CONCURRENT_TRANSACTIONS")
        if not is_newcomer and said not in (row.pair, row.before):
            raise Refused("PRODUCER_FENCED")
        if row.state == "Ongoing":
            self.prepare(asked.transactional_id, row, "Abort", True, wall_ms)
            if is_newcomer:
                row.before = None
            raise Refused("CONCURRENT_TRANSACTIONS")
        if is_newcomer or said == row.pair:
            pid, epoch = (self.draw(), 0) if row.epoch >= LAST_EPOCH else (row.pid, row.epoch + 1)
            row.before = None if is_newcomer else row.pair
            row.previous = row.pid
            row.pid, row.epoch = pid, epoch
        row.state, row.started_ms, row.timeout_ms, row.updated_ms = "Empty", -1, asked.timeout_ms, wall_ms
        self.wrote = True
        return row.pair

    def add(self, asked: AddPartitions, wall_ms: int) -> None:
        row = self.rows.get(asked.transactional_id)
        if row is not None and row.state.startswith("Prepare"):
            raise Refused("CONCURRENT_TRANSACTIONS")
        row = self.held(row, asked.producer_id, asked.epoch)
        if row.places >= set(asked.places):
            return
        if len(row.places | set(asked.places)) > self.settings.partitions_max:
            raise Refused("POLICY_VIOLATION")
        if row.state != "Ongoing":
            row.state, row.started_ms, row.before = "Ongoing", wall_ms, None
        row.places |= set(asked.places)
        row.bumps, row.updated_ms, row.previous = asked.bumps, wall_ms, row.pid
        self.wrote = True

    def verify(self, asked: VerifyPartitions) -> list[str]:
        row = self.held(self.rows.get(asked.transactional_id), asked.producer_id, asked.epoch)
        if row.state.startswith("Prepare"):
            raise Refused("CONCURRENT_TRANSACTIONS")
        return ["NONE" if place in row.places else "TRANSACTION_ABORTABLE" for place in asked.places]

    def held(self, row: Row | None, pid: int, epoch: int) -> Row:
        if row is None or row.pid != pid:
            raise Refused("INVALID_PRODUCER_ID_MAPPING")
        if row.epoch != epoch:
            raise Refused("PRODUCER_FENCED")
        return row

    def end(self, asked: EndTransaction, wall_ms: int) -> Pair:
        row = self.rows.get(asked.transactional_id)
        if row is None:
            raise Refused("INVALID_PRODUCER_ID_MAPPING")
        how = "Commit" if asked.commit else "Abort"
        said = (asked.producer_id, asked.epoch)
        if asked.bumps:
            if row.state.startswith("Prepare"):
                raise Refused("CONCURRENT_TRANSACTIONS")
            if said == self.pair_before_the_end(row):
                if row.state == f"Complete{how}":
                    return row.pair
                raise Refused("INVALID_TXN_STATE" if row.state == "CompleteCommit" else "PRODUCER_FENCED")
            if row.epoch == 0 and row.previous != row.pid and said == (row.previous, LAST_EPOCH):
                raise Refused("PRODUCER_FENCED")  # of a producer id that was given up at an Init
        self.held(row, *said)
        if row.state.startswith("Prepare"):
            raise Refused("CONCURRENT_TRANSACTIONS")
        if not asked.bumps and row.state == f"Complete{how}":
            return row.pair
        if row.state != "Ongoing" and (asked.commit or not asked.bumps):
            raise Refused("INVALID_TXN_STATE")
        return self.prepare(asked.transactional_id, row, how, asked.bumps, wall_ms)

    def commit_together(self, asked: CommitTogether, wall_ms: int) -> list[Pair]:
        keys = [each.transactional_id for each in asked.participants]
        if not keys or len(set(keys)) != len(keys):
            raise Refused("INVALID_REQUEST")
        if any(key not in self.rows for key in keys):
            raise Refused("INVALID_PRODUCER_ID_MAPPING")
        said = {each.transactional_id: (each.producer_id, each.epoch) for each in asked.participants}
        if all(self.was_committed(self.rows[key], said[key]) for key in keys):
            return [(row.next, 0) if row.next != -1 else row.pair for row in map(self.rows.__getitem__, keys)]
        for key in keys:
            if self.held(self.rows[key], *said[key]).state != "Ongoing":
                raise Refused("INVALID_TXN_STATE")
        rows = self.copy_rows()
        try:
            return [self.prepare(key, self.rows[key], "Commit", True, wall_ms) for key in keys]
        except Refused:
            self.rows, self.wrote, self.markers = rows, False, []
            raise

    def was_committed(self, row: Row, said: Pair) -> bool:
        """Whether the last end was a commit of the transaction in that epoch, done or still to be done."""
        if row.state == "PrepareCommit":
            return row.bumps and said == (row.pid, row.epoch - 1)
        return row.state == "CompleteCommit" and said == self.pair_before_the_end(row)

    def pair_before_the_end(self, row: Row) -> Pair | None:
        """In which the transaction was that ended last; none if its end did not change it."""
        if not row.state.startswith("Complete") or not row.bumps:
            return None
        return (row.previous, LAST_EPOCH) if row.epoch == 0 else (row.pid, row.epoch - 1)

    def prepare(self, key: str, row: Row, how: str, bumps: bool, wall_ms: int) -> Pair:
        """Returns what the producer is from now on."""
        if bumps:
            row.next = self.draw() if row.epoch >= LAST_EPOCH else -1
            row.before = row.pair
            row.epoch += 1
        if row.state != "Ongoing":
            row.started_ms = wall_ms
        row.state, row.bumps, row.updated_ms, row.previous = f"Prepare{how}", bumps, wall_ms, row.pid
        self.wrote = True
        answer = (row.next, 0) if row.next != -1 else row.pair
        if row.places:
            self.ask_for_markers(key, row)
        else:
            self.complete(row, wall_ms)
        return answer

    def ask_for_markers(self, key: str, row: Row) -> None:
        self.tickets += 1
        row.ticket, row.unmarked = self.tickets, set(row.places)
        commit = row.state == "PrepareCommit"
        self.markers.append(Markers(key, *row.pair, commit, row.bumps, tuple(sorted(row.places)), row.ticket))

    def marked(self, key: str, ticket: int, places: Places, wall_ms: int) -> None:
        self.wrote, self.markers = False, []
        row = self.rows.get(key)
        if row is not None and row.state.startswith("Prepare") and row.ticket == ticket:
            self.no_longer_unmarked(row, places, wall_ms)

    def delete_topics(self, asked: TopicsDeleted, wall_ms: int) -> None:
        for row in self.rows.values():
            if row.state.startswith("Prepare"):
                self.no_longer_unmarked(row, {each for each in row.unmarked if each[0] in asked.topics}, wall_ms)

    def no_longer_unmarked(self, row: Row, places: Places, wall_ms: int) -> None:
        row.unmarked -= places
        if not row.unmarked:
            self.complete(row, wall_ms)

    def complete(self, row: Row, wall_ms: int) -> None:
        row.state = row.state.replace("Prepare", "Complete")
        row.previous = row.pid
        if row.next != -1:
            row.pid, row.epoch, row.next = row.next, 0, -1
        row.places, row.updated_ms = set(), wall_ms
        self.wrote = True

    def tick(self, now_ms: int, wall_ms: int) -> None:
        self.wrote, self.markers = False, []
        for key, row in self.rows.items():
            if row.state == "Ongoing" and row.started_ms + row.timeout_ms < wall_ms:
                try:
                    self.prepare(key, row, "Abort", True, wall_ms)
                except Refused:
                    pass  # no producer id: next time
        self.timeouts_due_ms = now_ms + self.settings.timeout_check_ms
        if now_ms < self.ages_due_ms:
            return
        for key, row in list(self.rows.items()):
            is_idle = row.state == "Empty" or row.state.startswith("Complete")
            if is_idle and row.updated_ms <= wall_ms - self.settings.id_expiration_ms:
                del self.rows[key]
                self.wrote = True
        self.ages_due_ms = now_ms + self.settings.id_expiration_check_ms
