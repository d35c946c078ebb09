"""What a dead letter says about itself, in headers: UTF-8 text, beside the headers the message came with.

Of the client library, and of pipelines:

dlq.topic, dlq.partition, dlq.offset    where the message was read: together they name it
dlq.timestamp                           its own timestamp there, in ms
dlq.group                               the group that failed to process it
dlq.error.type, dlq.error.message       the last error; the message is cut at 1000 characters
dlq.attempts                            how often processing was tried
dlq.failed.first, dlq.failed.last       when it failed first and last, in ms
dlq.replays                             how often it was sent back to its source; it stays on the message sent back

Of brokers, for share groups (KIP-1191, and some of Skidway's own): the same facts as __dlq.errors.topic, partition,
offset, timestamp, group, disposition (CLIENT_REJECTED or MAX_DELIVERY_ATTEMPTS_REACHED), message, delivery.count,
failed.first and failed.last. `__dlq.errors.copied` is `false` where the letter has nothing of its message but these.

A dead letter that is sent back loses all of them but `dlq.replays`.
"""

from collections.abc import Iterable

import msgspec

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

BROKER_PREFIX = "__dlq.errors."
BROKER_NAMES = {
    TOPIC: "__dlq.errors.topic",
    PARTITION: "__dlq.errors.partition",
    OFFSET: "__dlq.errors.offset",
    TIMESTAMP: "__dlq.errors.timestamp",
    GROUP: "__dlq.errors.group",
    ERROR_TYPE: "__dlq.errors.disposition",
    ERROR_MESSAGE: "__dlq.errors.message",
    ATTEMPTS: "__dlq.errors.delivery.count",
    FAILED_FIRST: "__dlq.errors.failed.first",
    FAILED_LAST: "__dlq.errors.failed.last",
}
"""What brokers call them."""
COPIED = "__dlq.errors.copied"
REJECTED = "CLIENT_REJECTED"
EXHAUSTED = "MAX_DELIVERY_ATTEMPTS_REACHED"
_OUR_NAMES = {broker: ours for ours, broker in BROKER_NAMES.items()}

SUFFIX = "-dlq"
ERROR_MESSAGE_CHARACTERS_MAX = 1000


def dead_letter_topic(topic: str) -> str:
    return f"{topic}{SUFFIX}"


class DeathReport(msgspec.Struct):
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
    copied: bool = True
    """The letter has the message, not only its place."""

    @property
    def id(self) -> str:
        """What people call the message."""
        return f"{self.topic}-{self.partition}-{self.offset}"

    def headers(self, original: Iterable[tuple[str, bytes | None]]) -> Headers:
        """The message's own headers, then the report's. A report of an earlier death gives way."""
        return [*own_headers(original), *_written(self._told())]

    def broker_headers(self, original: Iterable[tuple[str, bytes | None]]) -> Headers:
        """The same in the words of brokers. What nobody knows is left out."""
        unknown = [name for name in (TIMESTAMP, FAILED_FIRST, FAILED_LAST) if self._told()[name] == "-1"]
        told = {BROKER_NAMES.get(name, name): text for name, text in self._told().items() if name not in unknown}
        if not self.copied:
            told[COPIED] = "false"
        return [*own_headers(original), *_written(told)]

    def _told(self) -> dict[str, str]:
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
        return told


def _written(told: dict[str, str]) -> Headers:
    # Error texts may hold half a surrogate pair, which UTF-8 cannot write.
    return [(name, text.encode("utf-8", "backslashreplace")) for name, text in told.items()]


def own_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """What the message came with: all but a dead letter's."""
    return [(name, value) for name, value in headers if not name.startswith((PREFIX, BROKER_PREFIX))]


def read_report(headers: Iterable[tuple[str, bytes | None]]) -> DeathReport | None:
    """None if this is no dead letter: source topic, partition or offset are missing or make no sense."""
    found = {
        _OUR_NAMES.get(name, name): (value or b"").decode("utf-8", "replace")
        for name, value in headers
        if name.startswith((PREFIX, BROKER_PREFIX))
    }
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
        copied=found.get(COPIED) != "false",
    )


def read_replays(headers: Iterable[tuple[str, bytes | None]]) -> int:
    values = [_number((value or b"").decode("utf-8", "replace")) for name, value in headers if name == REPLAYS]
    return max((value for value in values if value is not None), default=0)


def replayed_headers(headers: Headers, replays: int) -> Headers:
    """For a dead letter on its way back to its source."""
    return [*own_headers(headers), (REPLAYS, str(replays).encode())]


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else None
