"""Spark's own cluster manager on loopback: a Master and two Workers with a host each, 127.0.0.1 and 127.0.0.2.

Spark runs a speculative attempt on another host only, and a `local-cluster` has one. Every address of 127.0.0.0/8 is
this machine on Linux.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fault_harness import descendants, kill

from skidway.testing.free_ports import free_ports
from waiting import SPARK_PATIENCE_S, eventually

HOSTS = ("127.0.0.1", "127.0.0.2")
MASTER, WORKER = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker"))


@contextmanager
def standalone_cluster(spark_home: Path, folder: Path) -> Iterator[str]:
    """The address of the master, once it answers. Workers come to it by themselves, with one core each."""
    folder.mkdir(parents=True)
    port = free_ports(1)
    with ExitStack() as started:
        master = daemon(spark_home, folder / "master", MASTER, "--host", HOSTS[0], "--port", str(port))
        started.enter_context(master)
        eventually(lambda: answers(port), SPARK_PATIENCE_S)
        for host in HOSTS:
            one = ("--host", host, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / host / "work"))
            started.enter_context(daemon(spark_home, folder / host, WORKER, *one, f"spark://{HOSTS[0]}:{port}"))
        yield f"spark://{HOSTS[0]}:{port}"


@contextmanager
def daemon(spark_home: Path, folder: Path, name: str, *words: str) -> Iterator[None]:
    """It ends with whatever it has started: a worker's executors, and their Python."""
    folder.mkdir()
    environment = {**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_DIRS": str(folder)}
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [str(spark_home / "bin" / "spark-class"), name, "--webui-port", "0", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
        )
    try:
        yield
    finally:
        family = [one.pid for one in descendants(process.pid)]
        process.kill()
        kill(family)
        process.wait()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOSTS[0], port)) == 0
