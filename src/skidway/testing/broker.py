"""A real broker in a process of its own, on a free port, with its data in a temporary directory.

    with Broker(flush="os") as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

Settings are those of the configuration, as keywords; a table is a dict: `flush="os"`, `limits={"connections_max": 5}`,
`topic_defaults={"retention.ms": 1000}`. The process never outlives the one
that started it (see `hosted`), and what it printed is part of the exception when it fails to start.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from skidway.testing import bytecode

READY = re.compile(rb"^skidway \S+ ready on (?:[A-Z0-9_-]+=)?(\[[^\]\s]+\]|[^:\s]+):(\d+)", re.MULTILINE)
HTTP = re.compile(r"^skidway \S+ ready on .*?HTTP=([^\s;,]+)", re.MULTILINE)
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 45.0
"""A stop waits for the last syncs, for 30 s at most."""
OUTPUT_BYTES_SHOWN = 8_000


class BrokerFailed(RuntimeError):
    """The broker did not start, or did not stop in time; the text ends with what it printed."""


class Broker:
    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        arguments: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        **settings: object,
    ) -> None:
        """Without `data_dir` the data lives in a temporary directory that goes when the broker is closed."""
        self._own = tempfile.TemporaryDirectory(prefix="skidway-", ignore_cleanup_errors=True)
        self.data_dir = Path(data_dir) if data_dir is not None else Path(self._own.name, "data")
        self.host = host
        self.port = port
        # Nobody wants to wait in a test for members that do not come, nor should brokers of many tests at once want the
        # port for HTTP; a later flag of the same name wins.
        waits = ["--set", "groups.initial_rebalance_delay_ms=0"]
        self._arguments = ["--no-http", *waits, *_flags(settings), *arguments]
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._output = Path(self._own.name, "output.txt")
        self._printed_before = 0

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # For whoever started one by hand and forgot it. The attribute is missing when __init__ failed.
        if getattr(self, "_process", None) is not None:
            self.kill()

    @property
    def bootstrap(self) -> str:
        """What a client takes as `bootstrap.servers`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def http(self) -> str:
        """Where a broker with `http="127.0.0.1:0"` answers HTTP, as `http://127.0.0.1:1234`."""
        found = HTTP.findall(self.output)
        if not found:
            raise BrokerFailed(f'it does not answer HTTP; Broker(http="127.0.0.1:0") does{self._printed()}')
        return f"http://{found[-1]}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerFailed("the broker has not been started")
        return self._process.pid

    @property
    def output(self) -> str:
        """All that the broker printed, restarts included."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def start(self) -> "Broker":
        """Returns when the broker is ready for clients. The port chosen first stays for every later start."""
        if not self.running:
            self.launch()
            self.await_ready()
        return self

    def launch(self) -> None:
        """Begin to start, if it does not run; `await_ready` is the rest."""
        if self.running:
            return
        listen = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        command = [sys.executable, "-m", "skidway.testing.hosted", "--listen", listen, "--data-dir", str(self.data_dir)]
        with self._output.open("ab") as output:
            self._printed_before = output.tell()
            self._process = subprocess.Popen(
                [*command, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**_environment(), **self._environment},
                start_new_session=True,  # Ctrl-C at the tests is theirs to handle; the broker goes with the fixture.
            )

    def await_ready(self, timeout_s: float | None = None) -> None:
        try:
            self.port = self._await_ready(START_TIMEOUT_S if timeout_s is None else timeout_s)
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, wait for the clean shutdown, return the exit code."""
        process = self._process
        if process is None:
            return 0
        self.resume()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"the broker did not stop within {timeout_s:g} s{self._printed()}") from None
        self._forget()
        return code

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said. Also when paused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def restart(self, *, kill: bool = False) -> "Broker":
        """Down (cleanly, or by `kill`) and up again with the same port and data."""
        if kill:
            self.kill()
        else:
            self.stop()
        return self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nobody answers, as on a machine that hangs."""
        if self._guard is not None or not self.running:
            return
        # A stopped process cannot notice that its parent died; this one notices for it.
        watch = 'read -r word; [ "$word" = over ] || kill -KILL "$1"'
        self._guard = subprocess.Popen(["/bin/sh", "-c", watch, "sh", str(self.pid)], stdin=subprocess.PIPE)
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self._guard is None:
            return
        if self.running:
            os.kill(self.pid, signal.SIGCONT)
        self._guard.communicate(b"over\n")
        self._guard = None

    def close(self) -> None:
        """Stop whatever runs and remove the temporary directory. May be called twice."""
        try:
            if self._guard is None:
                self.stop()
        finally:
            self.kill()
            self._own.cleanup()

    def _await_ready(self, timeout_s: float) -> int:
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        pause_s = 0.002
        while time.monotonic() < deadline:
            exited = self._process.poll()
            ready = READY.search(self._output.read_bytes()[self._printed_before :])
            if ready:
                return int(ready[2])
            if exited is not None:
                raise BrokerFailed(f"the broker ended at start with exit code {exited}{self._printed()}")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.02)
        raise BrokerFailed(f"the broker was not ready within {timeout_s:g} s{self._printed()}")

    def _forget(self) -> None:
        """The process is gone: so are the pipe to it and its guard."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        if self._guard is not None:
            self._guard.communicate(b"over\n")
            self._guard = None
        self._process = None

    def _printed(self) -> str:
        printed = self.output[-OUTPUT_BYTES_SHOWN:].strip()
        return f"; it printed:\n{printed}" if printed else "; it printed nothing"


def _flags(settings: dict[str, object]) -> list[str]:
    """`flush="os", limits={"connections_max": 5}` → `--set flush=os --set limits.connections_max=5`."""
    flags: list[str] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flags += _flags({f"{name}.{inner}": content for inner, content in value.items()})
        elif value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            flags += ["--set", f"{name}={text}"]
    return flags


def _environment() -> dict[str, str]:
    """Without SKIDWAY_* of whoever runs the tests: a test says what its broker is like."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKIDWAY_")}
    return {**bytecode.environment(kept), "PYTHONUNBUFFERED": "1"}
