"""Days of the calendar as numbers, counted from 1 January 1970. The core has no `datetime`."""

from __future__ import annotations

from typing import NamedTuple

DAY_S = 86_400
DAYS_OF_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
THURSDAY = 4
"""1 January 1970 was one. Sunday is 0."""


class Date(NamedTuple):
    year: int
    month: int
    day: int


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in(year: int, month: int) -> int:
    return 29 if month == 2 and is_leap(year) else DAYS_OF_MONTHS[month - 1]


def day_number(year: int, month: int, day: int) -> int:
    years = year - 1
    before = 365 * years + years // 4 - years // 100 + years // 400
    return before + sum(days_in(year, each) for each in range(1, month)) + day - 1 - _EPOCH


_EPOCH = 719_162
"""Days from 1 January of the year 1 to 1970."""


def date_of(number: int) -> Date:
    year = 1970 + number * 400 // 146_097
    while day_number(year + 1, 1, 1) <= number:
        year += 1
    while day_number(year, 1, 1) > number:
        year -= 1
    left, month = number - day_number(year, 1, 1), 1
    while left >= (length := days_in(year, month)):
        left, month = left - length, month + 1
    return Date(year, month, left + 1)


def weekday(number: int) -> int:
    """Sunday is 0."""
    return (number + THURSDAY) % 7
