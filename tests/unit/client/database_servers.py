"""Real Redis and PostgreSQL servers for tests: on free ports, in temporary directories, gone afterwards.

`Absent` with the reason where they are not installed; `.ci/run` installs them.
"""

import glob
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from skidway.testing.free_ports import free_ports

START_TIMEOUT_S = 60


class Absent(Exception):
    """The server is not here; the text says why."""


@contextmanager
def redis_server() -> Iterator[str]:
    """Its URL."""
    program = shutil.which("redis-server")
    if program is None:
        raise Absent("redis-server is not installed")
    with tempfile.TemporaryDirectory(prefix="skidway-redis-") as folder:
        port = free_ports()
        words = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        with running(words, lambda: answers(port), Path(folder) / "log"):
            yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def postgres_server() -> Iterator[str]:
    """Its connection string. The server refuses to run as root, so root runs it as the user `postgres`."""
    programs = postgres_programs()
    as_user = unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="skidway-postgres-"))
    try:
        if as_user:
            shutil.chown(folder, "postgres")
        data = folder / "data"
        initdb = [*as_user, f"{programs}/initdb", "-D", str(data), "-A", "trust", "-U", "skidway", "-N", "--locale=C"]
        made = subprocess.run(initdb, capture_output=True, text=True, cwd=folder, timeout=START_TIMEOUT_S)
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stderr}")
        port = free_ports()
        words = [*as_user, f"{programs}/postgres", "-D", str(data), "-p", str(port), "-k", str(folder)]
        words += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        place = f"host=127.0.0.1 port={port} user=skidway dbname=postgres"
        with running(words, lambda: accepts(place), folder / "log"):
            yield place
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def postgres_programs() -> str:
    """Debian keeps them out of the path."""
    on_path = shutil.which("initdb")
    if on_path:
        return str(Path(on_path).resolve().parent)
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
    if not found:
        raise Absent("postgresql is not installed")
    return str(Path(found[-1]).parent)


def unprivileged() -> list[str]:
    if os.geteuid() != 0:
        return []
    try:
        import pwd

        pwd.getpwnam("postgres")
    except KeyError:
        raise Absent("PostgreSQL does not run as root, and there is no user postgres") from None
    program = shutil.which("runuser")
    if program is None:
        raise Absent("PostgreSQL does not run as root, and there is no runuser")
    return [program, "-u", "postgres", "--"]


@contextmanager
def running(words: list[str], ready: Callable[[], bool], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=log.parent)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{words[0]} did not start: {log.read_text()}")
            time.sleep(0.05)
        yield
    finally:
        # SIGINT: PostgreSQL's fast stop; runuser passes SIGTERM on, which would wait for clients.
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as peer:
            peer.sendall(b"PING\r\n")
            return peer.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def accepts(place: str) -> bool:
    import psycopg

    try:
        psycopg.connect(place, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
