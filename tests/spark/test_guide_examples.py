"""The pages about Spark do what they show, block by block, each against a broker of its own."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from guide_pages import Page, commands, matches

from skidway.cli.main import main as skidway
from skidway.spark.source.readers import TYPES
from skidway.testing import Broker

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture
def page(commands_in_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """Without a text yet."""
    monkeypatch.chdir(tmp_path)
    with Broker(flush="os") as broker:
        monkeypatch.setenv("SKIDWAY_BOOTSTRAP", broker.bootstrap)
        yield Page("", broker.bootstrap, tmp_path, broker.data_dir, skidway)


# A page is many small Spark jobs, one after the other.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["spark.md", "pipelines.md", "registry.md", "spark-semantics.md"])
def test_the_examples_of_a_page_run_and_show_what_they_print(page: Page, name: str) -> None:
    page.text = (GUIDE / name).read_text()
    assert page.run() > 0


def test_the_spark_example_of_the_readme_runs(page: Page) -> None:
    readme = (ROOT / "README.md").read_text()
    page.text = readme.split("\n## From Spark\n", 1)[1].split("\n## ", 1)[0]
    skidway(["topic", "create", "orders"])
    assert page.run() > 0


def test_the_columns_of_the_source_are_told() -> None:
    section = (REFERENCE / "spark.md").read_text().split("\n## Columns of the source\n", 1)[1].split("\n## ", 1)[0]
    told = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", section, re.MULTILINE))
    assert told == {name: kind.simpleString() for name, kind in TYPES.items()}


def test_what_a_page_shows_is_compared() -> None:
    assert list(commands("$ one\na\nb\n$ two  # why\n")) == [("one", "a\nb\n"), ("two", None)]
    assert matches("took … s\ndone\n", "took 1.5 s\n  \ndone") is False
    assert matches("took … s\n\ndone\n", "took 1.5   s\n  \ndone")
    assert not matches("3", "4")
