"""Every command of README.md and of the guides runs, in the order of its page, and prints what the page shows.

A command that cannot run here says why, in a comment above its block. Pages about Spark are run by
tests/spark/test_guide_examples.py, in one session.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from demo.terminal import NotRun, Step, Story, Typed, fits, steps  # noqa: E402

GUIDE = ROOT / "docs" / "guide"
WITH_SPARK = ("spark.md", "pipelines.md", "registry.md", "spark-semantics.md")
PAGES = [ROOT / "README.md", *sorted(page for page in GUIDE.glob("*.md") if page.name not in WITH_SPARK)]
STORIES = [page for page in PAGES if any(isinstance(step, Step) for step in steps(page.read_text()))]


def named(page: Path) -> str:
    return page.name


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def starts_a_cluster(page: Path) -> bool:
    return "skidway cluster start" in page.read_text()


ALONE = pytest.mark.xdist_group("cluster")  # never two clusters at once on few cores


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=ALONE if starts_a_cluster(page) else (), id=named(page)) for page in STORIES]
)
def test_the_commands_of_a_page_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    typed = Story(page.read_text(), tmp_path).run()
    assert typed
    for one in typed:
        assert fits(one), f"{page.name}: $ {one.command}\nshown:\n{one.shown}\nprinted ({one.code}):\n{one.printed}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_what_is_not_run_says_why(page: Path) -> None:
    short = [step for step in steps(page.read_text()) if isinstance(step, NotRun) and len(step.why) < 10]
    assert short == []


def test_the_pages_about_spark_are_run_elsewhere() -> None:
    runner = (ROOT / "tests" / "spark" / "test_guide_examples.py").read_text()
    assert [name for name in WITH_SPARK if f'"{name}"' not in runner] == []


def test_the_messages_of_the_tour_are_in_several_partitions() -> None:
    (consumed,) = [
        step.shown
        for step in steps((ROOT / "README.md").read_text())
        if isinstance(step, Step) and step.command == "skidway consume orders --key --offset"
    ]
    assert consumed is not None
    assert len({line.split("\t")[0] for line in consumed.splitlines()}) == 3


def test_the_python_of_the_tour_runs(fresh_broker) -> None:  # type: ignore[no-untyped-def]
    blocks = python_blocks(ROOT / "README.md")
    tour, transaction = (block for block in blocks if "AdminClient" in block or "begin_transaction" in block)
    code = (tour + transaction).replace("127.0.0.1:9092", fresh_broker.bootstrap)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 10


@pytest.mark.parametrize("page", [ROOT / "README.md", GUIDE / "testing.md"], ids=named)
def test_the_tests_that_are_shown_pass(page: Path, tmp_path: Path) -> None:
    """Also for somebody who tries them in the clone, where only pytest and the client are installed."""
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for missing in ("xdist", "pytest_timeout", "_hypothesis_pytestplugin"):
        (tmp_path / "not-installed" / missing).mkdir(parents=True)
        (tmp_path / "not-installed" / missing / "__init__.py").write_text("raise ImportError('not installed')\n")
    for number, block in enumerate(python_blocks(page)):
        if "def test_" in block:
            (tmp_path / f"test_shown_{number}.py").write_text(block)
        elif "@pytest.fixture" in block:
            (tmp_path / "conftest.py").write_text(block)
    command = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload", "-p", "skidway.testing.plugin", "."]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "not-installed")}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout


def test_the_broker_object_of_the_testing_page_does_what_is_shown() -> None:
    (code,) = [block for block in python_blocks(GUIDE / "testing.md") if "with Broker(" in block]
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_what_a_page_shows_is_compared() -> None:
    assert fits(Typed("ls", "a\nb\n", "b\na\n", 0))
    assert fits(Typed("ls", "took … s\n", "took 1.5 s\n", 0))
    assert not fits(Typed("ls", "a\n", "a\nb\n", 0))
    assert not fits(Typed("ls", None, "", 1))
    assert fits(Typed("ls", "error: no\n", "error: no\n", 1))
    assert not fits(Typed("ls", "error: no\n", "error: no\n", 0))
    page = "```console\n$ one\na\n$ two \\\n  three\n```\n\n<!-- not run: no machine -->\n```console\n$ four\n```\n"
    assert list(steps(page)) == [Step("one", "a\n"), Step("two \\\n  three", None), NotRun("four", "no machine")]
