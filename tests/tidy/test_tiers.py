"""The lists behind `make test` and `make test-all` name what exists, and `make test` shows one test of every kind."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

import again
from again import noted
from tiers import SLOW, TESTS, Choice, Skips, SlowList, choices, listed_skips

ROOT = Path(__file__).parents[2]
KINDS = {
    "clients of three libraries": "tests/conformance/test_client_produce.py",
    "a broker that is killed": "tests/crash/test_kill_under_load.py",
    "a cluster of three that loses its leader": "tests/cluster/test_cluster_kills.py",
    "seeds of the simulator": "tests/sim/test_simulated_clusters.py",
    "planted bugs that the simulator finds": "tests/sim/mutants/test_planted_bugs.py",
    "planted bugs that power loss shows": "tests/crash/test_power_loss.py",
    "hostile frames": "tests/hostile/test_hostile_frames.py",
    "a read by Spark": "tests/spark/test_source_spark.py",
    "a write by Spark": "tests/spark/test_sink_spark.py",
    "a pipeline": "tests/spark/test_pipeline_topics.py",
    "the tour of the README": "tests/examples/test_pages.py",
}


def names_in(path: Path) -> list[str]:
    """The names of the tests in a file, those in classes by their classes."""
    return [
        f"{'::'.join([*inside, node.name])}"
        for inside, nodes in _scopes(ast.parse(path.read_text()))
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    ]


def _scopes(tree: ast.Module) -> list[tuple[list[str], list[ast.stmt]]]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return [([], tree.body), *(([node.name], node.body) for node in classes)]


def test_every_line_of_the_slow_list_names_a_test() -> None:
    missing = []
    for line in choices():
        path, _, name = line.place.partition("::")
        exists = (ROOT / path).exists()
        if not exists or (name and name.split("[")[0] not in names_in(ROOT / path)):
            missing.append(line.place)
    assert missing == [], f"{SLOW.name} names tests that do not exist: correct or remove their lines"


def test_make_test_shows_every_kind() -> None:
    """As pytest collects it: so parameters that the list names exist, too."""
    named = [line.place for line in choices() if line.place.endswith("]")]
    files = sorted({*KINDS.values(), *(place.partition("::")[0] for place in named)})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not chaos and not slow", *files]
    plain = {**os.environ, "PYTEST_ADDOPTS": ""}  # somebody may run the tests with -vv
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=plain)
    collected = [f"{TESTS.name}/{line}" for line in done.stdout.splitlines()]  # below tests/pytest.ini
    missing = [place for line in choices() if (place := line.place) in named and line.runs and place not in collected]
    assert missing == [], f"{SLOW.name} names parameters that do not exist: correct or remove their lines"
    shown = {kind: [test for test in collected if test.startswith(f"{file}::")] for kind, file in KINDS.items()}
    assert [kind for kind, tests in shown.items() if not tests] == []


def test_the_last_line_that_names_a_test_decides() -> None:
    slow = SlowList(
        [Choice("tests/a", False), Choice("tests/a/b.py::test_c", True), Choice("tests/a/b.py::test_c[1]", False)]
    )
    assert "tests/a/other.py::test_c" in slow
    assert "tests/a/b.py::test_cc" in slow
    assert "tests/a/b.py::test_c" not in slow
    assert "tests/a/b.py::test_c[2]" not in slow
    assert "tests/a/b.py::test_c[1]" in slow
    assert "tests/ab/b.py::test_c" not in slow


def test_a_file_of_which_one_test_is_run_is_collected() -> None:
    slow = SlowList([Choice("tests/a", False), Choice("tests/a/b.py::test_c", True), Choice("tests/d.py", False)])
    paths = ["tests/a", "tests/a/b.py", "tests/a/other.py", "tests/d.py", "tests/e.py"]
    assert [path for path in paths if slow.has_all_of(path)] == ["tests/a/other.py", "tests/d.py"]


def test_every_place_of_the_list_of_skips_exists() -> None:
    missing = [place for place, _ in listed_skips() if not (ROOT / place).exists()]
    assert missing == []


def test_a_skip_counts_by_its_place_and_its_reason() -> None:
    skips = Skips([("tests/unit", "no gcc here")])
    skips.note("tests/unit/bench/test_load.py::test_one", "Skipped: no gcc here")
    assert skips.unlisted == []
    skips.note("tests/unit/bench/test_load.py::test_one", "Skipped: JoinGroup is not served")
    skips.note("tests/crash/test_links.py::test_two", "Skipped: no gcc here")
    assert len(skips.unlisted) == 2


def run_beside(tmp_path: Path, source: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A run of one small test file under the conftest.py of all tests."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n chaos\n")
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_small.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload", "-p", "xdist.plugin", *words]
    environment = {"PYTHONPATH": f"{ROOT / 'tests'}", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


def test_a_run_with_a_skip_that_is_not_listed_fails(tmp_path: Path) -> None:
    """With workers and without; the same run passes when nobody asks."""
    skipped = 'import pytest\n\n\ndef test_it():\n    pytest.skip("just so")\n'
    for words, code in [([], 0), (["--listed-skips"], 1), (["--listed-skips", "-n", "1"], 1)]:
        done = run_beside(tmp_path, skipped, *words)
        assert done.returncode == code, done.stdout + done.stderr
        assert ("does not list: test_small.py::test_it: just so" in done.stdout) == bool(code)


def test_a_group_stays_in_one_worker(tmp_path: Path) -> None:
    grouped = """
import os, pathlib, pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(8))
def test_it(number):
    pathlib.Path(f"{number}.txt").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""
    done = run_beside(tmp_path, grouped, "-n", "2", "--dist", "loadgroup")
    assert done.returncode == 0, done.stdout + done.stderr
    workers = [(tmp_path / f"{number}.txt").read_text() for number in range(8)]
    assert len(set(workers)) == 1, workers


def test_an_area_is_found_or_the_areas_are_named() -> None:
    def area(word: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "tests" / "area.py"), word]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    found = area("groups").stdout.split()
    assert "tests/unit/groups/test_assignors.py" in found
    assert "tests/hostile/test_hostile_groups.py" in found
    assert [name for name in found if "groups" not in name] == []
    for word in ("nowhere", ""):
        missing = area(word)
        assert missing.returncode == 2
        assert re.search(r"\bconformance\b.*\bquorum\b", missing.stderr)


def test_no_test_is_exempt_from_type_checks() -> None:
    settings = (ROOT / "tests" / "mypy.ini").read_text()
    assert re.findall(r"^\[mypy-(\w+)\]$", settings, re.MULTILINE) == [], "type the test, and remove these sections"
    assert "ignore_errors" not in settings


def test_coverage_is_counted_in_the_packages_whose_quick_tests_run() -> None:
    """`make coverage` would not measure a package that only one of the two lists names."""
    core = re.search(r"^CORE := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert core is not None
    coverage = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]
    assert coverage["run"]["source_pkgs"] == [f"skidway.{package}" for package in core[1].split()]
    assert coverage["report"]["fail_under"] > 0


def test_the_floor_of_coverage_has_only_risen() -> None:
    """Since it was first written down: `git log` has every floor there was, as far as there is a history here."""
    command = ["git", "log", "--patch", "--format=", "-G", "^fail_under = ", "--", "pyproject.toml"]
    history = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    floors = [int(floor) for floor in re.findall(r"^[+-]fail_under = (\d+)$", history, re.MULTILINE)]
    floor = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["report"]["fail_under"]
    assert floor >= max(floors, default=0)


def test_what_failed_is_written_down(tmp_path: Path) -> None:
    """By itself, not with what a run fails of besides; and nothing of a run that passed."""
    failing = """
import pytest


@pytest.mark.parametrize("what", ["a@b", "c d"])
def test_it(what):
    assert what == "x"


def test_other():
    pytest.skip("just so")
"""
    file = tmp_path / "notes" / "failed.txt"
    for words in ([], ["-n", "1", "--dist", "loadgroup"]):
        assert run_beside(tmp_path, failing, "--failed-to", str(file), *words).returncode == 1
        assert noted(file.parent) == ["test_small.py::test_it[a@b]", "test_small.py::test_it[c d]"], words
    assert run_beside(tmp_path, failing, "--failed-to", str(file), "--listed-skips").returncode == 1
    assert noted(file.parent) is None
    assert run_beside(tmp_path, "import nowhere", "--failed-to", str(file)).returncode != 0
    assert noted(file.parent) is None
    assert run_beside(tmp_path, "def test_it():\n    pass\n", "--failed-to", str(file)).returncode == 0
    assert not file.exists()


def test_few_failures_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[str]] = []

    def run_alone(tests: Sequence[str]) -> bool:
        tried.append([*tests])
        return len(tried) == 1

    monkeypatch.setattr(again, "run_alone", run_alone)
    (tmp_path / "others.txt").write_text("tests/a.py::test_a\n")
    (tmp_path / "spark.txt").write_text("tests/b.py::test_b[1 2]\n")
    assert [again.main(tmp_path), again.main(tmp_path)] == [0, 1]
    assert tried == [["tests/a.py::test_a", "tests/b.py::test_b[1 2]"]] * 2


@pytest.mark.parametrize(
    "names", [{}, {"others.txt": ""}, {"others.txt": "a\n", "spark.txt": ""}, {"o.txt": "a\n" * 11}]
)
def test_what_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: dict[str, str]) -> None:
    """Too many failures, or something else than tests."""
    monkeypatch.setattr(again, "run_alone", lambda tests: pytest.fail("tried again"))
    for name, lines in names.items():
        (tmp_path / name).write_text(lines)
    assert again.main(tmp_path) == 1
