"""The pictures of the README are what their scripts make, and load nothing from elsewhere."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench import picture  # noqa: E402

PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


def test_the_figures_beside_kafka_are_those_of_the_newest_recorded_run() -> None:
    """`python -m bench.picture` draws it again."""
    run = picture.newest_run(picture.RESULTS.read_text())
    assert picture.PICTURE.read_text() == picture.draw(run)


def test_a_run_that_is_not_complete_is_passed_over() -> None:
    results = picture.RESULTS.read_text()
    newer = "## 2030-01-01 00:00 UTC beside Apache Kafka\n\nx; 9 cores (x), 9 GB, y; medians of 9 rounds, 9 s.\n\n"
    at = results.index("\n## ") + 1
    assert picture.newest_run(results[:at] + newer + results[at:]) == picture.newest_run(results)


def test_figures_are_cells_of_the_tables() -> None:
    text = "**Footprint**\n\n| | Skidway | Kafka |\n|---|---|---|\n| start-up, s | 0.25 | 1,250 |\n\n**Other**\n"
    run = picture.Run("2030-01-01", "", "", text)
    panel = picture.Panel("Start-up", "Footprint", "start-up, s", "", True)
    assert picture.figures(run, panel) == ("0.25", "1,250")
    assert picture.lead(panel, [0.5, 1.0]) == (0, "2.0× better")
    assert picture.lead(panel, [20.0, 1.0]) == (1, "20× better")


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_fetches_nothing(path: Path) -> None:
    assert re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?https?:", path.read_text()) == []
    assert "@import" not in path.read_text()


def test_every_picture_is_shown() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [path.name for path in PICTURES if f"docs/pictures/{path.name}" not in readme] == []
