"""Wall clocks that jump: libfaketime between a node and its clock, the monotonic clock left alone."""

from pathlib import Path

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")
MISSING = "libfaketime is not installed: apt-get install libfaketime"


def library() -> Path | None:
    return next((found for pattern in LIBRARIES for found in Path("/").glob(pattern[1:])), None)


class Clock:
    """Of one node; `environment` is for its process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump(0)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def jump(self, seconds: int) -> None:
        """So far from the true time from now on."""
        self._file.write_text(f"{seconds:+d}")
