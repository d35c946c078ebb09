"""Runs Shares.java twice: `python interop/java/shares.py java -cp jars Shares.java host:port`.

First against the broker at host:port; then against one that is restarted under its consumers. Beside Apache Kafka
(SKIDWAY_CONFORMANCE_BOOTSTRAP) that one is another Kafka.
"""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUICK = ["-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
TIMEOUT_S = 200


@contextmanager
def skidway() -> Iterator[tuple[str, Callable[[], object]]]:
    from skidway.testing import Broker

    with tempfile.TemporaryDirectory() as folder, Broker(data_dir=Path(folder, "data")) as broker:
        yield broker.bootstrap, broker.restart


@contextmanager
def kafka() -> Iterator[tuple[str, Callable[[], object]]]:
    sys.path.insert(0, str(ROOT))
    from bench.kafka import Kafka, launch_node

    with Kafka(heap="512M") as broker:
        folder = broker._folder
        assert folder is not None

        def restart() -> None:
            process = broker._process
            assert process is not None
            process.terminate()
            process.wait(30)
            broker._process = launch_node(Path(folder.name), {}, broker.jvm)

        yield broker.bootstrap, restart


def interrupted(command: list[str]) -> int:
    """The program says `restart` when the broker may go, and waits for a line before it goes on."""
    with kafka() if "SKIDWAY_CONFORMANCE_BOOTSTRAP" in os.environ else skidway() as (bootstrap, restart):
        with subprocess.Popen(
            [*command, bootstrap, "restart"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdin is not None
            assert program.stdout is not None
            late = threading.Timer(TIMEOUT_S, program.kill)
            late.start()
            for line in program.stdout:
                if line == "restart\n":
                    restart()
                    print("go on", file=program.stdin, flush=True)
                else:
                    print(line, end="", flush=True)
            late.cancel()
        return program.returncode


def main(command: list[str], bootstrap: str) -> int:
    quick = [command[0], *QUICK, *command[1:]]
    code = subprocess.run([*quick, bootstrap]).returncode
    return code or interrupted(quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:-1], sys.argv[-1]))
