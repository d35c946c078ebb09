"""What a dead letter says about itself, in headers: UTF-8 text, beside the headers the message came with.

dlq.topic, dlq.partition, dlq.offset    where the message was read: together they name it
dlq.timestamp                           its own timestamp there, in ms
dlq.group                               the group that failed to process it
dlq.error.type, dlq.error.message       the last error; the message is cut at 1000 characters
dlq.attempts                            how often processing was tried
dlq.failed.first, dlq.failed.last       when it failed first and last, in ms
dlq.replays                             how often it was sent back to its source; it stays on the message sent back

A dead letter that is sent back loses all of them but `dlq.replays`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

Headers = list[tuple[str, bytes | None]]

PREFIX = "dlq."
TOPIC = "dlq.topic"
PARTITION = "dlq.partition"
OFFSET = "dlq.offset"
TIMESTAMP = "dlq.timestamp"
GROUP = "dlq.group"
ERROR_TYPE = "dlq.error.type"
ERROR_MESSAGE = "dlq.error.message"
ATTEMPTS = "dlq.attempts"
FAILED_FIRST = "dlq.failed.first"
FAILED_LAST = "dlq.failed.last"
REPLAYS = "dlq.replays"

SUFFIX = "-dlq"
ERROR_MESSAGE_CHARACTERS_MAX = 1000


def dead_letter_topic(topic: str) -> str:
    return f"{topic}{SUFFIX}"


@dataclass(slots=True)
class DeathReport:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    group: str
    error_type: str
    error_message: str
    attempts: int
    failed_first_ms: int
    failed_last_ms: int
    replays: int = 0

    def headers(self, original: Iterable[tuple[str, bytes | None]]) -> Headers:
        """The message's own headers, then the report's. A report of an earlier death gives way."""
        told = {
            TOPIC: self.topic,
            PARTITION: str(self.partition),
            OFFSET: str(self.offset),
            TIMESTAMP: str(self.timestamp_ms),
            GROUP: self.group,
            ERROR_TYPE: self.error_type,
            ERROR_MESSAGE: self.error_message[:ERROR_MESSAGE_CHARACTERS_MAX],
            ATTEMPTS: str(self.attempts),
            FAILED_FIRST: str(self.failed_first_ms),
            FAILED_LAST: str(self.failed_last_ms),
        }
        if self.replays:
            told[REPLAYS] = str(self.replays)
        # Error texts may hold half a surrogate pair, which UTF-8 cannot write.
        written = [(name, text.encode("utf-8", "backslashreplace")) for name, text in told.items()]
        return [*own_headers(original), *written]


def own_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """What the message came with: all but a dead letter's."""
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]


def read_report(headers: Iterable[tuple[str, bytes | None]]) -> DeathReport | None:
    """None if this is no dead letter: source topic, partition or offset are missing or make no sense."""
    found = {name: (value or b"").decode("utf-8", "replace") for name, value in headers if name.startswith(PREFIX)}
    partition, offset = _number(found.get(PARTITION)), _number(found.get(OFFSET))
    if not found.get(TOPIC) or partition is None or offset is None:
        return None
    return DeathReport(
        topic=found[TOPIC],
        partition=partition,
        offset=offset,
        timestamp_ms=_number(found.get(TIMESTAMP)) or -1,
        group=found.get(GROUP, ""),
        error_type=found.get(ERROR_TYPE, ""),
        error_message=found.get(ERROR_MESSAGE, ""),
        attempts=_number(found.get(ATTEMPTS)) or 0,
        failed_first_ms=_number(found.get(FAILED_FIRST)) or -1,
        failed_last_ms=_number(found.get(FAILED_LAST)) or -1,
        replays=_number(found.get(REPLAYS)) or 0,
    )


def read_replays(headers: Iterable[tuple[str, bytes | None]]) -> int:
    values = [_number((value or b"").decode("utf-8", "replace")) for name, value in headers if name == REPLAYS]
    return max((value for value in values if value is not None), default=0)


def replayed_headers(headers: Headers, replays: int) -> Headers:
    """For a dead letter on its way back to its source."""
    return [*own_headers(headers), (REPLAYS, str(replays).encode())]


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else None
