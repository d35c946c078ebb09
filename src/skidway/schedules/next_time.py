"""When a cron expression is due next, in a time zone.

Clocks that are put forward skip times: what was due between is due when they have been. Clocks that are put back have
times twice: what is due at one of them is due the first time only. What is due every hour is not about the clock on
the wall: it is due each hour that passes, as in cron.
"""

from __future__ import annotations

from skidway.errors import InvalidRequest
from skidway.ports import Zones
from skidway.schedules.cron import Cron, parse
from skidway.schedules.dates import DAY_S, date_of, weekday

DAYS_AHEAD_MAX = 9 * 366
"""29 February comes within eight years and a day."""
UTC = "UTC"


class UnknownZone(InvalidRequest):
    """Perhaps another node knows it."""


class NoZones:
    """Where nobody knows time zones."""

    def offset_s(self, name: str, utc_s: int) -> int:
        if name != UTC:
            raise LookupError(name)
        return 0


UTC_ALONE: Zones = NoZones()


def next_due_ms(expression: str, zone: str, after_ms: int, zones: Zones) -> int:
    """The first time later than `after_ms`. Raises InvalidRequest for an expression or a zone that is none."""
    cron, after_s = parse(expression), after_ms // 1_000
    try:
        first_day = (after_s + zones.offset_s(zone, after_s)) // DAY_S
        # A day before: its last times may lie behind a clock that was put back.
        for day in range(first_day - 1, first_day + DAYS_AHEAD_MAX):
            _, month, day_of_month = date_of(day)
            if cron.takes_day(month, day_of_month, weekday(day)):
                due_s = _first_after(cron, day, zone, after_s, zones)
                if due_s is not None:
                    return due_s * 1_000
    except LookupError:
        raise UnknownZone(
            f"this node does not know the time zone {zone!r}: name one such as Europe/Berlin, or UTC"
        ) from None
    raise InvalidRequest(f"{expression!r} is not due within eight years: is there such a day?")


def _first_after(cron: Cron, day: int, zone: str, after_s: int, zones: Zones) -> int | None:
    start_s = day * DAY_S
    before, behind = (zones.offset_s(zone, start_s + DAY_S * days) for days in (-1, 2))
    locals_s = (start_s + hour * 3_600 + minute * 60 for hour in cron.hours for minute in cron.minutes)
    if before == behind:
        return next((local_s - before for local_s in locals_s if local_s - before > after_s), None)
    found: set[int] = set()
    for local_s in locals_s:
        real = sorted({at for o in (before, behind) if zones.offset_s(zone, at := local_s - o) == o})
        if cron.every_hour:
            found.update(real)
        elif real:
            found.add(real[0])
        else:
            found.add(_end_of_gap(local_s, before, zone, zones))
    return min((at for at in found if at > after_s), default=None)


def _end_of_gap(local_s: int, before: int, zone: str, zones: Zones) -> int:
    """When clocks were put forward over a time."""
    low, high = local_s - before - DAY_S, local_s - before
    while high - low > 1:
        middle = (low + high) // 2
        if zones.offset_s(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high
