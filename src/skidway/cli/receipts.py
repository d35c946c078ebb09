"""What became of the lines of an input: stored, refused, or not confirmed; for `produce`, also when it fails.

A line is stored when its batch is acknowledged. What was read and is not stored is named by line, so that a person or a
script can go on from there.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skidway.cli.output import EXIT_FAILED, count_of, size
from skidway.errors import ErrorCode

if TYPE_CHECKING:
    from skidway.blocking_client.errors import ClientError
    from skidway.blocking_client.producer import Delivered

RANGES_SHOWN_MAX = 5
MAY_BE_STORED = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.UNKNOWN_SERVER_ERROR}
)
"""Refusals after which the broker may have the batch all the same."""


@dataclass(slots=True)
class Receipts:
    topic: str
    messages: int = 0
    bytes: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    _waiting: dict[int, deque[int]] = field(default_factory=dict)
    """For each partition the lines that are not acknowledged yet, in the order of their messages."""

    def sent(self, partition: int, line: int) -> None:
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = deque()
        waiting.append(line)

    def add(self, delivered: "Delivered") -> None:
        self.messages += delivered.records
        self.bytes += delivered.bytes
        first, last = delivered.base_offset, delivered.base_offset + delivered.records - 1
        known = self.offsets.get(delivered.partition)
        self.offsets[delivered.partition] = (first if known is None else known[0], last)
        waiting = self._waiting[delivered.partition]
        for _ in range(delivered.records):
            waiting.popleft()

    def missing(self) -> list[int]:
        """Lines that were read and are not acknowledged."""
        return sorted(line for waiting in self._waiting.values() for line in waiting)

    def line_of(self, error: "ClientError") -> int | None:
        """Where the input fails: the first line of the batch that was refused, or the very one if the broker says."""
        from skidway.blocking_client.errors import BrokerError, RecordsRefused

        if not isinstance(error, BrokerError) or error.partition is None:
            return None
        waiting = self._waiting.get(error.partition, deque())
        index = error.records[0][0] if isinstance(error, RecordsRefused) and error.records else 0
        return waiting[index] if index < len(waiting) else None

    def sentence(self) -> str:
        return f"sent {count_of(self.messages, 'message')} ({size(self.bytes)}) to {self.topic}"

    def document(self) -> dict[str, Any]:
        partitions = [
            {"partition": partition, "first_offset": first, "last_offset": last}
            for partition, (first, last) in sorted(self.offsets.items())
        ]
        return {
            "topic": self.topic,
            "messages": self.messages,
            "bytes": self.bytes,
            "partitions": partitions,
            "error": None,
        }


@dataclass(slots=True)
class Failure:
    """Why the rest of the input was not sent."""

    line: int | None
    reason: str
    code: str | None = None
    """The protocol's name of the error, if a broker refused."""
    uncertain: bool = False
    """Nobody knows whether the lines that are missing are stored."""
    exit_code: int = EXIT_FAILED

    @classmethod
    def of(cls, error: "ClientError", receipts: Receipts) -> "Failure":
        from skidway.blocking_client.errors import BrokerError

        line = receipts.line_of(error)
        if isinstance(error, BrokerError):
            return cls(line, str(error), error.name, uncertain=error.code in MAY_BE_STORED)
        return cls(line, str(error), uncertain=True)

    def sentence(self, receipts: Receipts) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        missing = receipts.missing()
        stored = f"stored {count_of(receipts.messages, 'message')} before that"
        if not missing:
            return f"{where}{self.reason}; {stored}"
        fate = "not confirmed (they may be stored or not)" if self.uncertain else "not stored"
        return f"{where}{self.reason}; {stored}; {fate}: {spelt(missing)}"

    def document(self, receipts: Receipts) -> dict[str, Any]:
        error = {
            "line": self.line,
            "reason": self.reason,
            "code": self.code,
            "not_stored": [] if self.uncertain else ranges(receipts.missing()),
            "not_confirmed": ranges(receipts.missing()) if self.uncertain else [],
        }
        return {**receipts.document(), "error": error}


def ranges(lines: list[int]) -> list[tuple[int, int]]:
    """First and last of each run of lines."""
    found: list[tuple[int, int]] = []
    for line in lines:
        if found and line == found[-1][1] + 1:
            found[-1] = (found[-1][0], line)
        else:
            found.append((line, line))
    return found


def spelt(lines: list[int]) -> str:
    """line 4, or lines 4, 7 to 9 and 12."""
    runs = ranges(lines)
    words = [str(first) if first == last else f"{first} to {last}" for first, last in runs[:RANGES_SHOWN_MAX]]
    more = f" and {len(runs) - RANGES_SHOWN_MAX} more ranges" if len(runs) > RANGES_SHOWN_MAX else ""
    return f"{'line' if len(lines) == 1 else 'lines'} {', '.join(words)}{more}"
