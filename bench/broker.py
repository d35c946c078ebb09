"""Skidway as the subject of the benchmark: the broker of this working tree in a process of its own."""

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

from bench.subject import Subject, Unavailable
from skidway.testing.free_ports import free_ports

# BENCH_SKIDWAY replaces the command, e.g. to profile it: "py-spy record … -- python -m skidway.server".
COMMAND = os.environ.get("BENCH_SKIDWAY", "")


def _present(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even its parent is there
        return False


class Skidway(Subject):
    name = "skidway"
    ready_timeout_s = 20.0
    data_dir: Path

    def __init__(self, *arguments: str) -> None:
        """`arguments`: more of them for the command."""
        super().__init__()
        self.arguments = arguments

    def launch(self, folder: Path) -> subprocess.Popen[bytes]:
        if not COMMAND and not _present("skidway.server.__main__"):
            raise Unavailable("Skidway skipped: this tree has no `python -m skidway.server` yet")
        command = shlex.split(COMMAND) or [sys.executable, "-m", "skidway.server"]
        self.bootstrap = f"127.0.0.1:{free_ports()}"
        self.data_dir = folder / "data"
        command += ["--listen", self.bootstrap, "--data-dir", str(self.data_dir)]
        # As Kafka is started: the wait for more members of a new group would hide what a rebalance takes.
        command += ["--set", "groups.initial_rebalance_delay_ms=0", *self.arguments]
        with (folder / "output.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def topic_configs(self, flush: str) -> dict[str, str]:
        return {"flush": flush}
