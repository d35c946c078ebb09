"""Which tests `make test` leaves out, and which skips `make test-all` accepts: tests/slow.txt and tests/skips.txt."""

from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).parent
SLOW = TESTS / "slow.txt"
SKIPS = TESTS / "skips.txt"


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


@dataclass(frozen=True, slots=True)
class Choice:
    """A line of tests/slow.txt: a directory, a file or a test, and whether `make test` runs it."""

    place: str
    runs: bool


def choices() -> list[Choice]:
    found = []
    for line in _lines(SLOW):
        sign, place = line.split(None, 1)
        assert sign in ("+", "-"), f"{SLOW.name}: a line begins with + or -: {line}"
        found.append(Choice(place.strip(), sign == "+"))
    return found


class SlowList:
    """Of the lines that name a test the last one decides; a test that no line names is quick."""

    def __init__(self, lines: list[Choice]) -> None:
        self._lines = lines
        self._last = {line.place: number for number, line in enumerate(lines)}

    def __contains__(self, test_id: str) -> bool:
        number = max((self._last[place] for place in _places(test_id) if place in self._last), default=None)
        return number is not None and not self._lines[number].runs

    def has_all_of(self, path: str) -> bool:
        """A directory or file of which `make test` runs nothing: it need not even be imported."""
        inside = (f"{path}/", f"{path}::")
        return path in self and not any(line.runs and line.place.startswith(inside) for line in self._lines)


def _places(test_id: str) -> list[str]:
    """The test itself, its function, class, file and directories."""
    path, *inside = test_id.split("[")[0].split("::")
    directories = path.split("/")
    names = ["/".join(directories[:count]) for count in range(1, len(directories) + 1)]
    names += ["::".join([path, *inside[:count]]) for count in range(1, len(inside) + 1)]
    return [*names, test_id]


@dataclass(slots=True)
class Skips:
    """Counts the tests that were skipped for a reason that is not listed."""

    listed: list[tuple[str, str]] = field(default_factory=lambda: listed_skips())
    unlisted: list[str] = field(default_factory=list)

    def note(self, test_id: str, reason: str) -> None:
        reason = reason.removeprefix("Skipped: ")
        if not any(test_id.startswith(place) and reason.startswith(begin) for place, begin in self.listed):
            self.unlisted.append(f"{test_id}: {reason}")


def listed_skips() -> list[tuple[str, str]]:
    """Where tests may be skipped, and how the reason begins."""
    found = []
    for line in _lines(SKIPS):
        place, begin = line.split(None, 1)
        found.append((place, begin.strip()))
    return found
