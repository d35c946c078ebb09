"""Apache Kafka as a peer: the jars from Maven Central, one KRaft node on loopback, gone afterwards.

    with Kafka() as kafka:
        print(kafka.bootstrap)

or `python -m bench.kafka serve`, which prints the address and serves until it is interrupted.
Needs `java` (17 or newer) and, the first time, `mvn`; raises Unavailable with the reason where they are missing.
The heap is what kafka-server-start.sh gives (1 GB), the JVM flags are its own, and so are the thread counts.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

from bench.maven import fetch
from bench.subject import Subject, Unavailable
from skidway.testing.free_ports import free_ports

VERSION = os.environ.get("BENCH_KAFKA_VERSION", "4.3.1")
CLUSTER_ID = "c2tpZHdheS1iZW5jaDEyMw"
JVM = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]


def jars() -> Path:
    """The folder with Kafka's jars."""
    needed = f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36"
    return fetch("Apache Kafka", "kafka", VERSION, *needed)


def jvm_flags(heap: str) -> list[str]:
    return [f"-Xm{flag[3]}{heap}" if flag.startswith("-Xm") else flag for flag in JVM]


class Kafka(Subject):
    """A single node, broker and controller in one, with Kafka's own defaults unless `overrides` says otherwise."""

    name = "kafka"

    def __init__(self, overrides: dict[str, str] | None = None, *, heap: str = "1G") -> None:
        super().__init__()
        self.overrides = overrides or {}
        self.jvm = jvm_flags(heap)

    def topic_configs(self, flush: str) -> dict[str, str]:
        """Kafka leaves flushing to the system unless told to flush after every append."""
        return {"flush.messages": "1"} if flush == "sync" else {}

    def launch(self, folder: Path) -> subprocess.Popen[bytes]:
        port, controller = free_ports(), free_ports()
        self.bootstrap = f"127.0.0.1:{port}"
        settings = properties(folder, 1, port, {1: controller}) | self.overrides
        return launch_node(folder, settings, self.jvm)


def properties(folder: Path, node: int, port: int, controllers: dict[int, int]) -> dict[str, str]:
    """Of one node, broker and controller in one; `controllers` has the port of each node's controller."""
    replicas = str(min(3, len(controllers)))
    in_sync = str(min(2, len(controllers)))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(f"{one}@127.0.0.1:{at}" for one, at in controllers.items()),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers[node]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
    }


def launch_node(folder: Path, settings: dict[str, str], jvm: list[str]) -> subprocess.Popen[bytes]:
    """Format the folder if that was not done yet, and start the process."""
    java = shutil.which("java")
    if java is None:
        raise Unavailable("Apache Kafka skipped: `java` is not installed")
    classes = f"{jars()}/*"
    file = folder / "server.properties"
    if not file.exists():
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        storage = [java, "-Xmx256M", "-cp", classes, "kafka.tools.StorageTool"]
        storage += ["format", "--cluster-id", CLUSTER_ID, "--config", str(file)]
        formatted = subprocess.run(storage, capture_output=True, text=True, timeout=120)
        if formatted.returncode != 0:
            raise Unavailable(f"Apache Kafka skipped: formatting failed: {formatted.stderr.strip()[-500:]}")
    with (folder / "output.log").open("ab") as log:
        command = [java, *jvm, f"-Dkafka.logs.dir={folder}", "-cp", classes, "kafka.Kafka", str(file)]
        # Its own session: an interrupt at the terminal must reach it through stop(), once.
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["fetch"]:
        print(jars())
        return 0
    if arguments[:1] != ["serve"]:
        print(
            "usage: python -m bench.kafka serve [key=value …]   (a node on a free port, until interrupted)\n"
            "       python -m bench.kafka fetch                 (only the jars)",
            file=sys.stderr,
        )
        return 2
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with Kafka(dict(pair.split("=", 1) for pair in arguments[1:])) as kafka:
        print(f"kafka {VERSION} ready on {kafka.bootstrap} pid {kafka.pid} after {kafka.startup_s:.1f} s", flush=True)
        stopped.wait()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        sys.exit(3)
