"""Several brokers on this machine as one cluster under measurement: three of Skidway, or three of Apache Kafka.

Each node is a process with a folder and a port that it keeps over restarts. All clients here are Skidway's own, which
speak to either.
"""

import contextlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from bench import kafka
from bench.broker import COMMAND
from bench.frames import BenchError
from bench.subject import cpu_seconds, resident_mb
from skidway.blocking_client.addresses import Address
from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster, Partition
from skidway.blocking_client.cluster_admin import ClusterAdmin
from skidway.blocking_client.errors import ClientError
from skidway.blocking_client.offsets import LATEST, find_offsets
from skidway.testing.free_ports import free_ports
from skidway.wire.schema.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)

READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
PAUSE_S = 0.005
ASK_TIMEOUT_MS = 5_000
CREATE_TIMEOUT_MS = 120_000


def await_true(condition: Callable[[], object], what: str, timeout_s: float = READY_TIMEOUT_S) -> float:
    """Seconds until it was so."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise BenchError(f"waited {timeout_s:.0f} s in vain for {what}")
        time.sleep(PAUSE_S)
    return time.monotonic() - began


def end_nodes_when_terminated() -> None:
    """SIGTERM ends this process like an interrupt: through the `with` blocks that end the nodes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Nodes(ABC):
    name: str

    def __init__(self, count: int = 3) -> None:
        self.numbers = list(range(1, count + 1))
        self.ports = {number: free_ports() for number in self.numbers}
        self.startup_s = 0.0
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @abstractmethod
    def launch(self, number: int, folder: Path) -> subprocess.Popen[bytes]:
        """Start the process of a node; need not wait until it is ready."""

    @abstractmethod
    def topic_configs(self, flush: str) -> dict[str, str]: ...

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(number) for number in self.numbers)

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.ports[number]}"

    def pid(self, number: int) -> int:
        return self._processes[number].pid

    def folder(self, number: int) -> Path:
        assert self._folder is not None
        return Path(self._folder.name, str(number))

    def up(self) -> list[int]:
        return [number for number, process in self._processes.items() if process.poll() is None]

    def cpu_s(self) -> float:
        """Of all nodes together."""
        return sum(cpu_seconds(self.pid(number)) for number in self.up())

    def resident_mb(self) -> float:
        """Of the largest node."""
        return max(resident_mb(self.pid(number)) for number in self.up())

    def __enter__(self) -> "Nodes":
        self._folder = tempfile.TemporaryDirectory(prefix=f"bench-{self.name}-", ignore_cleanup_errors=True)
        began = time.monotonic()
        try:
            for number in self.numbers:
                self.folder(number).mkdir()
                self._processes[number] = self.launch(number, self.folder(number))
            for number in self.numbers:
                self.await_ready(number)
        except BaseException:
            self.__exit__()
            raise
        self.startup_s = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        self._processes.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def start(self, number: int) -> float:
        """Seconds until it answers and knows all that are up."""
        began = time.monotonic()
        self._processes[number] = self.launch(number, self.folder(number))
        self.await_ready(number)
        return time.monotonic() - began

    def kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()

    def stop(self, number: int) -> float:
        """Seconds that the clean shutdown took."""
        began = time.monotonic()
        self._processes[number].send_signal(signal.SIGTERM)
        try:
            self._processes[number].wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill(number)
            raise BenchError(f"{self.name} node {number} did not stop in {STOP_TIMEOUT_S:.0f} s") from None
        return time.monotonic() - began

    def await_ready(self, number: int) -> None:
        def ready() -> bool:
            if self._processes[number].poll() is not None:
                raise BenchError(f"{self.name} node {number} ended:{self.last_words(number)}")
            with contextlib.suppress(ClientError), self.client(number) as client:
                return set(client.refresh([]).brokers) >= set(self.up())
            return False

        try:
            await_true(ready, f"{self.name} node {number}")
        except BenchError as problem:
            raise BenchError(f"{problem}{self.last_words(number)}") from None

    def last_words(self, number: int, lines: int = 15) -> str:
        log = self.folder(number) / "output.log"
        return "\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    # What clients see.

    def client(self, number: int | None = None, *, timeout_ms: int = ASK_TIMEOUT_MS) -> Cluster:
        bootstrap = self.bootstrap if number is None else self.address(number)
        return Cluster(bootstrap, timeout_ms=timeout_ms)

    def create_topic(self, topic: str, partitions: int, flush: str = "os") -> None:
        with self.client(timeout_ms=CREATE_TIMEOUT_MS) as client:
            configs = {**self.topic_configs(flush), "min.insync.replicas": "2"}
            Admin(client).create_topic(topic, partitions=partitions, replication=3, configs=configs)
            # A leader is named a moment before it knows of it itself.
            find_offsets(client, topic, dict.fromkeys(range(partitions), LATEST))
        self.await_in_sync(topic)

    def delete_topic(self, topic: str) -> None:
        with self.client() as client:
            client.refresh([])
            Admin(client).delete_topic(topic)

    def partitions(self, topic: str) -> dict[int, Partition]:
        with self.client() as client:
            return client.look_up(topic).partitions

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.partitions(topic)[partition].leader

    def move_leader(self, topic: str, to: int, partition: int = 0) -> None:
        """By making it the preferred replica."""
        others = [number for number in self.numbers if number != to]
        with self.client() as client:
            admin = ClusterAdmin(client)
            admin.reassign({(topic, partition): [to, *others]})
            await_true(lambda: not admin.reassignments(), "the new order of replicas")
            admin.elect_leaders([(topic, partition)])
        await_true(lambda: self.leader(topic, partition) == to, f"{topic} to be led by node {to}")

    def controller(self) -> int:
        """As the quorum says: what a client is told may be any broker."""
        return controller_of(self)

    def await_in_sync(self, topic: str, replicas: int = 3, timeout_s: float = READY_TIMEOUT_S) -> float:
        behind = [topic]

        def in_sync() -> bool:
            try:
                found = self.partitions(topic)
            except ClientError as error:
                behind[:] = [str(error)]
                return False
            behind[:] = [f"{one}" for one in found.values() if len(one.in_sync) < replicas]
            return not behind

        try:
            return await_true(in_sync, f"all replicas of {topic} to be in sync", timeout_s)
        except BenchError as problem:
            raise BenchError(f"{problem}: {len(behind)}, first {behind[0]}") from None

    def leader_addresses(self, topic: str) -> list[str]:
        return [self.address(found.leader) for _, found in sorted(self.partitions(topic).items())]


def controller_of(nodes: Nodes) -> int:
    asked = DescribeQuorumRequest(topics=[RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])])
    found = [-1]

    def known() -> bool:
        try:
            with nodes.client(nodes.up()[0]) as client:
                reply = client.any_broker().call(asked, DescribeQuorumResponse)
        except ClientError:
            return False
        for partition in (one for topic in reply.topics for one in topic.partitions):
            found[0] = partition.leader_id if not partition.error_code else -1
        return found[0] in nodes.up()

    await_true(known, "a controller")
    return found[0]


class SkidwayNodes(Nodes):
    name = "skidway"

    def launch(self, number: int, folder: Path) -> subprocess.Popen[bytes]:
        voters = ",".join(f"{other}@{self.address(other)}" for other in self.numbers)
        command = shlex.split(COMMAND) or [sys.executable, "-m", "skidway.server"]
        command += ["--listen", self.address(number), "--data-dir", str(folder / "data")]
        command += ["--node-id", str(number), "--voters", voters]
        command += ["--set", "groups.initial_rebalance_delay_ms=0"]
        with (folder / "output.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def topic_configs(self, flush: str) -> dict[str, str]:
        return {"flush": flush}


class KafkaNodes(Nodes):
    name = "kafka"

    def __init__(self, count: int = 3, heap: str = "1G") -> None:
        super().__init__(count)
        self.controllers = {number: free_ports() for number in self.numbers}
        self.jvm = kafka.jvm_flags(heap)

    def launch(self, number: int, folder: Path) -> subprocess.Popen[bytes]:
        settings = kafka.properties(folder, number, self.ports[number], self.controllers)
        return kafka.launch_node(folder, settings, self.jvm)

    def topic_configs(self, flush: str) -> dict[str, str]:
        return {"flush.messages": "1"} if flush == "sync" else {}


def address_of(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))
