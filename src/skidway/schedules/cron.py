"""Cron expressions: `MINUTE HOUR DAY-OF-MONTH MONTH DAY-OF-WEEK`, as in crontab(5).

Each field is `*`, a number, a range `a-b`, any of them with a step (`*/5`, `8-18/2`), or a list of those. Months and
days of the week have names, too (`jan`, `mon`); Sunday is 0 and 7. If both days are restricted, either of them is
enough. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` stand for the usual expressions.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from skidway.errors import InvalidRequest

LENGTH_MAX = 200
SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
EXAMPLE = 'write five fields, such as "30 8 * * mon-fri": minute, hour, day of the month, month, day of the week'


class Field(Struct, frozen=True):
    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()
    """Of the numbers from `first` on."""


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of the month", 1, 31),
    Field("month", 1, 12, MONTHS),
    Field("day of the week", 0, 7, WEEKDAYS),
)


class Cron(Struct, frozen=True):
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    """The day of the month is not restricted."""
    any_weekday: bool
    every_hour: bool

    def takes_day(self, month: int, day: int, weekday: int) -> bool:
        if month not in self.months:
            return False
        if self.any_day or self.any_weekday:
            return day in self.days and weekday in self.weekdays
        return day in self.days or weekday in self.weekdays


def parse(text: str) -> Cron:
    """Raises InvalidRequest, and says which field is wrong."""
    if len(text) > LENGTH_MAX:
        raise InvalidRequest(f"a cron expression of {len(text)} characters; it has {LENGTH_MAX} at most")
    return _parsed(text)


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> Cron:
    words = SHORT.get(text.strip().lower(), text).lower().split()
    if len(words) != len(FIELDS):
        raise InvalidRequest(f"{text!r} has {len(words)} fields: {EXAMPLE}")
    minutes, hours, days, months, weekdays = (_numbers(field, word) for field, word in zip(FIELDS, words, strict=True))
    return Cron(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        days,
        months,
        frozenset(number % 7 for number in weekdays),
        # As in cron, a field that begins with a star restricts nothing, also with a step: then both have to agree.
        any_day=words[2].startswith("*"),
        any_weekday=words[4].startswith("*"),
        every_hour=words[1].startswith("*"),
    )


def _numbers(field: Field, text: str) -> frozenset[int]:
    found: set[int] = set()
    for item in text.split(","):
        span, slash, step_text = item.partition("/")
        step = _step(field, item, step_text) if slash else 1
        if span == "*":
            first, last = field.first, field.last
        elif slash and "-" not in span:
            raise _wrong(field, item, "a step needs a range before it, such as */5 or 10-50/5")
        else:
            first, last = _span(field, item, span)
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _span(field: Field, item: str, span: str) -> tuple[int, int]:
    low, dash, high = span.partition("-")
    first = _number(field, item, low)
    last = _number(field, item, high) if dash else first
    if last < first:
        raise _wrong(field, item, "the range ends before it begins")
    return first, last


def _step(field: Field, item: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 2 and int(text)):
        raise _wrong(field, item, "a step is a number from 1 to 99")
    return int(text)


def _number(field: Field, item: str, text: str) -> int:
    if text in field.names:
        return field.first + field.names.index(text)
    if not (text.isascii() and text.isdigit() and len(text) <= 2):
        raise _wrong(field, item, f"it takes numbers from {field.first} to {field.last}{_named(field)}")
    number = int(text)
    if not field.first <= number <= field.last:
        raise _wrong(field, item, f"it takes numbers from {field.first} to {field.last}{_named(field)}")
    return number


def _named(field: Field) -> str:
    return f" and names such as {field.names[1]}" if field.names else ""


def _wrong(field: Field, item: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{item!r} is not understood as {field.name} of a cron expression: {why}")
