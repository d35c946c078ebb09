"""A lease between real processes: taken from the dead at once, from the silent after a while, from the living never."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skidway.spark.lease import keeping
from skidway.spark.lease.keeping import Busy, LeaseLost, hold
from skidway.spark.stores import FolderStore
from waiting import eventually

HOLD = """
import sys, time
from pathlib import Path
from skidway.spark.lease import keeping
from skidway.spark.stores import FolderStore
keeping.BEAT_S = 0.05
keeper = keeping.hold("it", FolderStore(Path(sys.argv[1])))
print("held", keeper.epoch, flush=True)
for line in sys.stdin:
    try:
        keeper.check()
        print("may", flush=True)
    except keeping.LeaseLost:
        print("lost", flush=True)
"""


@contextmanager
def driver(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held 1\n"
            yield process
        finally:
            process.kill()


def ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(keeping, "BEAT_S", 0.05)
    yield
    keeping.release_all()


def test_a_driver_that_lives_is_not_replaced(tmp_path: Path) -> None:
    with driver(tmp_path) as first:
        with pytest.raises(Busy, match=rf"another driver runs it: process {first.pid} on .*; wait for it with --wait"):
            hold("it", FolderStore(tmp_path))
        assert ask(first) == "may"


def test_a_driver_that_was_killed_is_replaced_at_once(tmp_path: Path) -> None:
    with driver(tmp_path) as first:
        first.kill()
        first.wait()
        assert hold("it", FolderStore(tmp_path), clock=lambda: 0.0).epoch == 2


def test_a_driver_that_stands_still_is_replaced_and_may_do_nothing_when_it_wakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "TTL_S", 0.5)
    with driver(tmp_path) as first:
        first.send_signal(signal.SIGSTOP)
        keeper = hold("it", FolderStore(tmp_path))
        assert keeper.epoch == 2
        first.send_signal(signal.SIGCONT)
        assert ask(first) == "lost"
        keeper.check()


def test_a_lease_that_was_given_back_is_free(tmp_path: Path) -> None:
    first = hold("it", FolderStore(tmp_path))
    assert hold("it", FolderStore(tmp_path)) is first, "a process holds it once"
    first.release()
    with pytest.raises(LeaseLost):
        first.check()
    assert not first.lost
    assert hold("it", FolderStore(tmp_path), clock=lambda: 0.0).epoch == 2


def test_the_end_of_a_query_does_not_take_the_lease_from_the_next_one(tmp_path: Path) -> None:
    class Query:
        def __init__(self) -> None:
            self.looked = 0

        @property
        def isActive(self) -> bool:  # noqa: N802
            self.looked += 1
            return False

    keeper = hold("it", FolderStore(tmp_path))
    ended = Query()
    real = keeper._end_with

    def reused_in_between(query: object) -> None:
        assert hold("it", FolderStore(tmp_path)) is keeper
        real(query)

    keeper._end_with = reused_in_between  # type: ignore[method-assign]
    keeper.follow(ended)
    eventually(lambda: ended.looked)
    keeper.check()


def test_the_lease_goes_with_the_query(tmp_path: Path) -> None:
    class Query:
        isActive = True  # noqa: N815

    keeper = hold("it", FolderStore(tmp_path))
    query = Query()
    keeper.follow(query)
    keeper.check()
    query.isActive = False
    eventually(lambda: keeper.is_over)
    assert not keeper.lost
    assert hold("it", FolderStore(tmp_path), clock=lambda: 0.0).epoch == 2


def test_a_lease_whose_folder_was_deleted_is_taken_anew(tmp_path: Path) -> None:
    first = hold("it", FolderStore(tmp_path / "checkpoint"))
    shutil.rmtree(tmp_path / "checkpoint")
    second = hold("it", FolderStore(tmp_path / "checkpoint"))
    second.check()
    with pytest.raises(LeaseLost):
        first.check()
