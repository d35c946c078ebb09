"""A broker under measurement: started, awaited, watched through /proc, stopped."""

import os
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path

from bench.frames import BenchError, Peer

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"
SCHEDULED = 2
"""Of the three clocks that Linux has for another process, the one of its time on processors."""


class Unavailable(Exception):
    """This subject cannot be run here; the message says why."""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def fine_cpu_seconds(pid: int) -> float:
    """The same to the nanosecond, where ticks of 10 ms are too coarse."""
    return time.clock_gettime(~pid << 3 | SCHEDULED)  # as clock_getcpuclockid(3) names that clock


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise BenchError(f"no resident size for process {pid}")


class Subject(ABC):
    """One broker process with its own temporary data directory."""

    name: str
    ready_timeout_s = 60.0

    def __init__(self) -> None:
        self.bootstrap = ""
        self.startup_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @abstractmethod
    def launch(self, folder: Path) -> subprocess.Popen[bytes]:
        """Start the process with its data under folder and set `bootstrap`; need not wait until it is ready."""

    @abstractmethod
    def topic_configs(self, flush: str) -> dict[str, str]:
        """What a benchmark topic is created with; flush is 'os' or 'sync'."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and measure the time until the first Metadata answer that names a broker."""
        self._folder = tempfile.TemporaryDirectory(prefix=f"bench-{self.name}-", ignore_cleanup_errors=True)
        try:
            self._process = self.launch(Path(self._folder.name))
            started = time.monotonic()
            self._await_ready(started)
        except BaseException:
            self.stop()
            raise

    def _await_ready(self, started: float) -> None:
        assert self._process is not None
        while True:
            try:
                if self.bootstrap:
                    with Peer(self.bootstrap, 5.0) as peer:
                        if peer.brokers() > 0:
                            break
            except OSError:
                pass
            if self._process.poll() is not None:
                raise BenchError(f"{self.name} ended with status {self._process.returncode}: {self.last_words()}")
            if time.monotonic() - started > self.ready_timeout_s:
                raise BenchError(f"{self.name} was not ready in {self.ready_timeout_s:.0f} s: {self.last_words()}")
            time.sleep(0.005)
        self.startup_s = time.monotonic() - started

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def last_words(self, lines: int = 20) -> str:
        """The end of what the process printed."""
        if self._folder is None:
            return ""
        log = Path(self._folder.name) / "output.log"
        return "\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    def __enter__(self) -> "Subject":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
