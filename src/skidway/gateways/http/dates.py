"""Times as text: the header Date, and those of RFC 3339 in bodies."""

import re

WEEKDAYS = ("Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed")
"""The first day of all was a Thursday."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAY_S = 86_400
DAYS_PER_ERA = 146_097
"""Days of 400 years: after these the calendar repeats itself."""
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
DAYS_TO_EPOCH = 719_468
"""From the first of March of year 0, where eras begin, to the first of January 1970."""


def http_date(wall_ms: int) -> bytes:
    days, seconds = divmod(wall_ms // 1000, DAY_S)
    year, month, day = _civil(days)
    hour, minute, second = seconds // 3600, seconds // 60 % 60, seconds % 60
    weekday, name = WEEKDAYS[days % 7], MONTHS[month - 1]
    return f"{weekday}, {day:02} {name} {year:04} {hour:02}:{minute:02}:{second:02} GMT".encode()


def rfc3339(wall_ms: int) -> str:
    """In UTC, to the millisecond."""
    days, left_ms = divmod(wall_ms, DAY_S * 1000)
    year, month, day = _civil(days)
    seconds, ms = divmod(left_ms, 1000)
    return f"{year:04}-{month:02}-{day:02}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}Z"


def from_rfc3339(text: str) -> int:
    """Milliseconds since 1970. ValueError for what is none."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    days = _days(year, month, day)
    if _civil(days) != (year, month, day) or hour > 23 or minute > 59 or second > 60:
        raise ValueError(text)
    ahead_s = 0
    if found[8]:
        ahead_s = (int(found[9]) * 3600 + int(found[10]) * 60) * (-1 if found[8] == "-" else 1)
    return (days * DAY_S + hour * 3600 + minute * 60 + second - ahead_s) * 1000 + int(
        (found[7] or "").ljust(3, "0")[:3]
    )


def _days(year: int, month: int, day: int) -> int:
    """Since 1970, the inverse of `_civil`."""
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return 0
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * DAYS_PER_ERA + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - DAYS_TO_EPOCH


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day. Years are counted from March here, so that a leap day is the last of its year."""
    era, day_of_era = divmod(days + DAYS_TO_EPOCH, DAYS_PER_ERA)
    year = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    calendar_month = month + 3 if month < 10 else month - 9
    return era * 400 + year + (calendar_month <= 2), calendar_month, day


def days_from_civil(year: int, month: int, day: int) -> int:
    """Since the first of January 1970: what `http_date` undoes."""
    year_of_march = year - (month <= 2)
    era, year_of_era = divmod(year_of_march, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * DAYS_PER_ERA + day_of_era - DAYS_TO_EPOCH


class DateHeader:
    """The bytes of the header, made once a second."""

    __slots__ = ("_line", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._line = b""

    def line(self, wall_ms: int) -> bytes:
        if wall_ms // 1000 != self._second:
            self._second = wall_ms // 1000
            self._line = b"date: " + http_date(wall_ms) + b"\r\n"
        return self._line
