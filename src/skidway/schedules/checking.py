"""What may be scheduled."""

from __future__ import annotations

import re

from skidway.errors import InvalidRequest, InvalidTimestamp, MessageTooLarge
from skidway.schedules.schedule import Definition
from skidway.schedules.settings import DAY_MS, ScheduleSettings

ID_LENGTH_MAX = 128
ZONE_LENGTH_MAX = 64
HEADERS_MAX = 100
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9._+/-]{1,64}", re.ASCII)


def check_id(text: str) -> None:
    if _ID.fullmatch(text) is None:
        rule = f"it has 1 to {ID_LENGTH_MAX} letters, digits and . _ : -"
        raise InvalidRequest(f"{text[:ID_LENGTH_MAX]!r} cannot be the id of a schedule: {rule}")


def check(definition: Definition, settings: ScheduleSettings, wall_ms: int) -> None:
    message = definition.message
    if message.size > settings.message_bytes_max:
        raise MessageTooLarge(
            f"a message of {message.size} bytes; a schedule takes {settings.message_bytes_max} at most"
        )
    if len(message.headers) > HEADERS_MAX:
        raise InvalidRequest(f"a message with {len(message.headers)} headers; a schedule takes {HEADERS_MAX} at most")
    if definition.cron:
        if _ZONE.fullmatch(definition.zone) is None:
            raise InvalidRequest(f"{definition.zone[:ZONE_LENGTH_MAX]!r} is not a time zone, such as Europe/Berlin")
        return
    ahead_ms = definition.due_ms - wall_ms
    if abs(ahead_ms) > settings.ahead_ms_max:
        days = settings.ahead_ms_max // DAY_MS
        wrong = f"{definition.due_ms} is more than {days} days {'in the past' if ahead_ms < 0 else 'ahead'}"
        raise InvalidTimestamp(f"{wrong}: give milliseconds since 1970, at most {days} days ahead")
