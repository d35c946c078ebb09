"""What a share coordinator should answer, as simply as it can be said: a cell for every offset, changed on the spot.

Written from the rules (Kafka's KIP-932 and this project's deviations), not from the code: nothing is shared with it but
the questions.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.operations import Delete, Initialize, Read, ReadSummary, Write

Cell = tuple[int, int]
"""Delivery count and state."""


class Refused(Exception):
    def __init__(self, code: str) -> None:
        self.code = code


@dataclass
class Row:
    state_epoch: int
    leader_epoch: int
    start: int
    done: int
    cells: dict[int, Cell] = field(default_factory=dict)


class NaiveShareStates:
    def __init__(self, has_place: Callable[[ShareKey], bool]) -> None:
        self.rows: dict[ShareKey, Row] = {}
        self.has_place = has_place

    def copy_rows(self) -> dict[ShareKey, Row]:
        return copy.deepcopy(self.rows)

    def load(self, rows: dict[ShareKey, Row]) -> None:
        self.rows = copy.deepcopy(rows)

    def ask(self, question: Any) -> tuple[Any, ...]:
        try:
            match question:
                case Initialize():
                    return self.initialize(question)
                case Read():
                    return self.read(question)
                case Write():
                    return self.write(question)
                case Delete():
                    self.rows.pop(question.key, None)
                    return ("done",)
                case ReadSummary():
                    return self.summary(question)
        except Refused as refused:
            return ("error", refused.code)
        raise AssertionError(question)

    def initialize(self, asked: Initialize) -> tuple[Any, ...]:
        row = self.rows.get(asked.key)
        if row is not None and asked.state_epoch < row.state_epoch:
            raise Refused("FENCED_STATE_EPOCH")
        if row is not None and asked.state_epoch == row.state_epoch:
            return ("done",)
        self.check_place(asked.key)
        leader_epoch = -1 if row is None else row.leader_epoch
        self.rows[asked.key] = Row(
            asked.state_epoch, leader_epoch, asked.start_offset, -1 if asked.start_offset < 0 else 0
        )
        return ("done",)

    def read(self, asked: Read) -> tuple[Any, ...]:
        row = self.known(asked.key)
        if asked.leader_epoch < row.leader_epoch:
            raise Refused("FENCED_LEADER_EPOCH")
        self.check_place(asked.key)
        row.leader_epoch = asked.leader_epoch
        return ("state", row.state_epoch, row.start, dict(row.cells))

    def write(self, asked: Write) -> tuple[Any, ...]:
        row = self.known(asked.key)
        if asked.leader_epoch < row.leader_epoch:
            raise Refused("FENCED_LEADER_EPOCH")
        if asked.state_epoch != row.state_epoch or asked.leader_epoch > row.leader_epoch:
            raise Refused("FENCED_STATE_EPOCH")
        self.check_place(asked.key)
        said: set[int] = set()
        for batch in asked.batches:
            offsets = range(batch.first, batch.last + 1)
            if not offsets or batch.state not in (0, 2, 3, 4) or max(said, default=-1) >= batch.first:
                raise Refused("INVALID_REQUEST")
            said.update(offsets)
        start = row.start if asked.start_offset == -1 else asked.start_offset
        if start > row.start:
            row.start, row.done = start, asked.complete_count
        elif start == row.start:
            row.done = max(row.done, asked.complete_count)
        for batch in asked.batches:
            for offset in range(batch.first, batch.last + 1):
                cell = (batch.delivery_count, batch.state)
                row.cells[offset] = max(row.cells.get(offset, cell), cell)
        row.cells = {offset: cell for offset, cell in row.cells.items() if offset >= row.start}
        return ("done",)

    def summary(self, asked: ReadSummary) -> tuple[Any, ...]:
        self.check_place(asked.key)
        row = self.rows.get(asked.key)
        if row is None:
            return ("summary", 0, 0, -1, -1)
        return ("summary", row.state_epoch, row.leader_epoch, row.start, row.done)

    def topic_gone(self, topic_id: bytes) -> None:
        self.rows = {key: row for key, row in self.rows.items() if key.topic_id != topic_id}

    def known(self, key: ShareKey) -> Row:
        if key not in self.rows:
            raise Refused("INVALID_REQUEST")
        return self.rows[key]

    def check_place(self, key: ShareKey) -> None:
        if not self.has_place(key):
            raise Refused("UNKNOWN_TOPIC_OR_PARTITION")
