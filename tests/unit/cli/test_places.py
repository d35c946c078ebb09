"""Where to begin, as people write it."""

from datetime import UTC, datetime

import pytest

from skidway.cli.places import AtOffset, AtTime, BeforeEnd, Beginning, End, Place, parse_place

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", Beginning()),
        ("Earliest", Beginning()),
        ("end", End()),
        ("0", AtOffset(0)),
        ("1234", AtOffset(1234)),
        ("-10", BeforeEnd(10)),
        ("10m", AtTime(NOW_MS - 600_000)),
        ("1.5h", AtTime(NOW_MS - 5_400_000)),
        ("2d ago", AtTime(NOW_MS - 172_800_000)),
        ("500ms", AtTime(NOW_MS - 500)),
        ("@1700000000000", AtTime(1_700_000_000_000)),
        ("2026-01-31T12:00:00Z", AtTime(int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000))),
        ("2026-01-31T12:00:00+02:00", AtTime(int(datetime(2026, 1, 31, 10, tzinfo=UTC).timestamp() * 1000))),
        ("1969-12-31T23:59:59.999Z", AtTime(0)),
        ("2026-01-31", AtTime(int(datetime(2026, 1, 31).timestamp() * 1000))),
    ],
)
def test_places_that_are_understood(text: str, place: Place) -> None:
    assert parse_place(text, NOW_MS) == place


@pytest.mark.parametrize(
    "text", ["", "soon", "10 parsecs", "--5", "1e9", "2026-13-01", "12:00", "@", "@" + "9" * 19, "٣"]
)
def test_places_that_are_not(text: str) -> None:
    with pytest.raises(ValueError, match="expected beginning, end, an offset"):
        parse_place(text, NOW_MS)
