"""What a start loads and leaves out: all of it is CPU time before the first client is served."""

import asyncio
import gc
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from skidway.broker.api.table import SERVED, ServedApi
from skidway.server import flags, main

STARTED = """
import gc, os, sys
before = set(sys.modules)
from skidway.server import flags, main

def ready(broker, listeners):
    print(gc.isenabled(), gc.get_freeze_count() > 10_000, *(set(sys.modules) - before), flush=True)
    os._exit(0)

main.Broker._tell_ready = ready
flags.main(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data-dir", sys.argv[1]])
"""
PIECES = """
import sys
from skidway.server import assembly, main
from skidway.broker.node import Node

for load in assembly.load_http():
    before = len(sys.modules)
    load()
    print(len(sys.modules) - before)
before = set(sys.modules)
from skidway.gateways.http.gateway import HttpGateway
assert set(sys.modules) == before
"""
NEEDLESS = {"email", "importlib.metadata", "rich", "shutil", "typer", "zipfile"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """By a broker that has just become ready: two facts about the collector, then the names of its modules."""
    command = [sys.executable, "-c", STARTED, str(tmp_path_factory.mktemp("data"))]
    started = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert started.returncode == 0, started.stderr
    return started.stdout.split()


def test_a_start_loads_no_handler_before_it_is_asked_for(told: list[str]) -> None:
    prefix = "skidway.broker.handlers."
    assert [name for name in told if name.startswith(prefix)] == [f"{prefix}api_versions"]


def test_all_handlers_are_loaded_while_a_broker_runs() -> None:
    """Nobody's first request is to depend on files that an upgrade may have changed."""
    loaded: list[str] = []
    loop = asyncio.new_event_loop()
    with patch.object(ServedApi, "load", lambda one: loaded.append(one.handler)), patch.object(main, "LOAD_S", 0):
        rest = [one.load for one in SERVED.values() if one.key in (32, 33)]
        main._load_rest(loop, iter(rest))
        while len(loaded) < len(rest):
            loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert loaded == ["describe_configs", "alter_configs"]


def test_what_answers_http_is_loaded_in_small_pieces() -> None:
    """The event loop serves others meanwhile."""
    done = subprocess.run([sys.executable, "-c", PIECES], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    counts = [int(line) for line in done.stdout.split()]
    assert max(counts) <= 16, counts
    assert sum(counts) > 60, "most of it is not loaded by the node itself"


def test_a_start_loads_nothing_that_it_does_not_use(told: list[str]) -> None:
    assert NEEDLESS & set(told) == set()
    assert [name for name in told if name.startswith("skidway.gateways")] == [], "nobody has asked by HTTP yet"


def test_the_collector_is_on_when_clients_are_served_and_spares_what_a_start_made(told: list[str]) -> None:
    assert told[:2] == ["True", "True"]


def test_the_collector_is_on_after_a_start_that_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    assert flags.main(["--listen", "127.0.0.1:0", "--data-dir", str(file)]) == flags.EXIT_FAILED
    assert "cannot use the data directory" in capsys.readouterr().err
    assert gc.isenabled()
