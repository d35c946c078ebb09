"""The machine's clocks, its time zones and its randomness, as `skidway.ports` wants them."""

import os
import time

RANDOM_BYTES = 16


class SystemClock:
    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SystemZones:
    """From the machine's own tables. Imported with the first question: a start does without."""

    __slots__ = ()

    def offset_s(self, name: str, utc_s: int) -> int:
        from datetime import datetime
        from zoneinfo import ZoneInfo

        try:
            zone = ZoneInfo(name)
        except (ValueError, OSError) as error:
            raise LookupError(name) from error
        offset = datetime.fromtimestamp(utc_s, zone).utcoffset()
        assert offset is not None, "a zone of this kind always has one"
        return offset.days * 86_400 + offset.seconds


class SystemRandom:
    """From the kernel, so ids made on different machines never repeat. The module `random` would cost start-up time."""

    __slots__ = ()

    def randbytes(self, size: int) -> bytes:
        return os.urandom(size)

    def randrange(self, stop: int) -> int:
        if stop <= 0:
            raise ValueError(f"randrange needs a positive end, got {stop}")
        # 128 bits: the bias of the remainder is beyond measure for any `stop` in use.
        return int.from_bytes(os.urandom(RANDOM_BYTES), "big") % stop
