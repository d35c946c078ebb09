"""When cron expressions are due, held against a minute-by-minute account with Python's own time zones."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from skidway.errors import InvalidRequest
from skidway.schedules.cron import parse
from skidway.schedules.dates import date_of, day_number, weekday
from skidway.schedules.next_time import NoZones, next_due_ms

BERLIN = "Europe/Berlin"
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


class RealZones:
    def offset_s(self, name: str, utc_s: int) -> int:
        offset = datetime.fromtimestamp(utc_s, ZoneInfo(name)).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())


def due(expression: str, after: datetime, zone: str = "UTC", count: int = 1) -> list[datetime]:
    found, at_ms = [], int(after.timestamp() * 1_000)
    for _ in range(count):
        at_ms = next_due_ms(expression, zone, at_ms, RealZones())
        found.append(datetime.fromtimestamp(at_ms / 1_000, ZoneInfo(zone)))
    return found


def shown(expression: str, after: datetime, zone: str = "UTC", count: int = 1) -> list[str]:
    return [f"{at:%d %H:%M %z}" for at in due(expression, after, zone, count)]


def test_days_are_those_of_the_calendar() -> None:
    for number in range(-800, 150_000, 13):
        day = date(1970, 1, 1) + timedelta(number)
        assert date_of(number) == (day.year, day.month, day.day)
        assert day_number(day.year, day.month, day.day) == number
        assert weekday(number) == (day.weekday() + 1) % 7


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("* * * * *", "2026-01-01T00:01"),
        ("30 8 * * mon-fri", "2026-01-01T08:30"),
        ("0 9 * * 1", "2026-01-05T09:00"),
        ("0 0 1 * *", "2026-02-01T00:00"),
        ("0 12 * * sun", "2026-01-04T12:00"),
        ("0 12 * * 7", "2026-01-04T12:00"),
        ("*/20 4-6/2 * * *", "2026-01-01T04:00"),
        ("15,45 23 31 dec *", "2026-12-31T23:15"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("@hourly", "2026-01-01T01:00"),
        ("@yearly", "2027-01-01T00:00"),
        # Both days are restricted: either is enough.
        ("0 0 13 * fri", "2026-01-02T00:00"),
    ],
)
def test_the_first_time_after_new_year(expression: str, first: str) -> None:
    assert due(expression, NEW_YEAR) == [datetime.fromisoformat(f"{first}+00:00")]


def test_clocks_that_are_put_forward_delay_what_was_due_between() -> None:
    evening = datetime(2026, 3, 28, 23, 45, tzinfo=ZoneInfo(BERLIN))
    assert shown("30 2 * * *", evening, BERLIN, 2) == ["29 03:00 +0200", "30 02:30 +0200"]
    assert shown("*/30 1-3 * * *", evening, BERLIN, 4) == [
        "29 01:00 +0100",
        "29 01:30 +0100",
        "29 03:00 +0200",
        "29 03:30 +0200",
    ]


def test_clocks_that_are_put_back_repeat_only_what_is_due_every_hour() -> None:
    night = datetime(2026, 10, 25, 0, 45, tzinfo=ZoneInfo(BERLIN))
    assert shown("30 2 * * *", night, BERLIN, 2) == ["25 02:30 +0200", "26 02:30 +0100"]
    assert shown("0 * * * *", night, BERLIN, 4) == [
        "25 01:00 +0200",
        "25 02:00 +0200",
        "25 02:00 +0100",
        "25 03:00 +0100",
    ]


EXPRESSIONS = st.tuples(
    st.sampled_from(["*", "0", "*/7", "5-50/15", "59"]),
    st.sampled_from(["*", "2", "3", "*/6", "1-3", "23"]),
    st.sampled_from(["*", "1", "29-31", "*/2"]),
    st.sampled_from(["*", "mar", "10", "*/3"]),
    st.sampled_from(["*", "0", "mon-fri", "sat,7"]),
).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, st.integers(0, 2 * 365 * 1_440))
def test_in_utc_it_is_the_first_minute_that_fits(expression: str, minute: int) -> None:
    after = NEW_YEAR + timedelta(minutes=minute)
    cron, at = parse(expression), after + timedelta(minutes=1)
    while not (
        cron.takes_day(at.month, at.day, (at.weekday() + 1) % 7) and at.hour in cron.hours and at.minute in cron.minutes
    ):
        whole_day = not cron.takes_day(at.month, at.day, (at.weekday() + 1) % 7)
        at = (at + timedelta(days=1)).replace(hour=0, minute=0) if whole_day else at + timedelta(minutes=1)
    assert due(expression, after) == [at]


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("* * * *", "has 4 fields"),
        ("60 * * * *", "'60' is not understood as minute of a cron expression: it takes numbers from 0 to 59"),
        ("* 5-2 * * *", "the range ends before it begins"),
        ("*/0 * * * *", "a step is a number from 1 to 99"),
        ("5/10 * * * *", "a step needs a range before it"),
        ("* * * foo *", "from 1 to 12 and names such as feb"),
        ("* * 1,,2 * *", "'' is not understood as day of the month"),
        ("* * * * ²", "day of the week"),
        ("x" * 300, "300 characters"),
    ],
)
def test_what_is_no_cron_expression_is_refused_with_the_reason(expression: str, wrong: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(expression)
    assert wrong in str(refused.value)


def test_a_day_that_never_comes_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is there such a day"):
        next_due_ms("0 0 30 2 *", "UTC", 0, NoZones())


def test_a_zone_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="Europe/Berlin, or UTC"):
        next_due_ms("* * * * *", "Mars/Olympus", 0, NoZones())
