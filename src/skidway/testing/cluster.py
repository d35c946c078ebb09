"""Real brokers in processes of their own that are one cluster, and everything that can happen to them.

    with Cluster(3) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(cluster.leader_of("orders", 0))

Nodes have the numbers 1, 2, 3, …; all of them keep the metadata, unless `voters` says how many. Settings are those of
`skidway.testing.Broker`, for every node the same, or for one of them by `node_settings={2: {"rack": "b"}}`. Between
the nodes (not between clients and nodes) lies a network that can be cut, one way or both; `network=False` connects
them directly.
All processes end with the cluster, or with the one that made it.
"""

import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.cluster import Partition, Picture
from skidway.blocking_client.cluster_admin import ClusterAdmin
from skidway.blocking_client.errors import ClientError, Unsupported
from skidway.testing.broker import Broker, BrokerFailed
from skidway.testing.network import Network

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
PATIENCE_S = 30.0
REPLY_TIMEOUT_MS = 2_000
PAUSE_S = 0.02
REPLICATION_MAX = 3

Found = TypeVar("Found")


class Cluster:
    def __init__(
        self,
        nodes: int = 3,
        *,
        voters: int | None = None,
        data_dir: str | Path | None = None,
        network: bool = True,
        node_settings: Mapping[int, Mapping[str, Any]] | None = None,
        **settings: Any,
    ) -> None:
        """`voters`: only the first so many keep the metadata, the others are brokers alone.

        Without `data_dir` the data lives in a temporary directory that goes when the cluster is closed.
        """
        if nodes < 1:
            raise ValueError(f"a cluster of {nodes} nodes: expected 1 or more")
        if voters is not None and not 1 <= voters <= nodes:
            raise ValueError(f"{voters} voters in a cluster of {nodes} nodes: expected 1 to {nodes}")
        self._own = tempfile.TemporaryDirectory(prefix="skidway-cluster-", ignore_cleanup_errors=True)
        self._keep = data_dir is not None
        root = Path(data_dir) if data_dir is not None else Path(self._own.name)
        ids = range(1, nodes + 1)
        self._held = {node: _hold_port() for node in ids}
        self._addresses = {node: (HOST, int(held.getsockname()[1])) for node, held in self._held.items()}
        self.network = Network(self._addresses).start() if network else None
        self._paused: set[int] = set()
        self._voters = [node for node in ids if voters is None or node <= voters]
        common: dict[str, Any] = {
            "default_replication_factor": min(REPLICATION_MAX, nodes),
            "cluster_id": secrets.token_hex(11),
            **settings,
        }
        own = node_settings or {}
        each = {node: {**common, **self._whereabouts(node), **own.get(node, {})} for node in ids}
        self._serving = {node for node in ids if "broker" in each[node].get("roles", "broker")}
        self.brokers = {
            node: Broker(
                data_dir=root / f"node-{node}", host=HOST, port=self._addresses[node][1], node_id=node, **each[node]
            )
            for node in ids
        }

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getitem__(self, node: int) -> Broker:
        if node not in self.brokers:
            raise KeyError(f"no node {node} in this cluster; there are {sorted(self.brokers)}")
        return self.brokers[node]

    @property
    def bootstrap(self) -> str:
        """What a client takes as `bootstrap.servers`: all nodes that are brokers, running or not."""
        return ",".join(broker.bootstrap for node, broker in self.brokers.items() if node in self._serving)

    @property
    def running(self) -> list[int]:
        """The nodes that run and are not paused."""
        return [node for node, broker in self.brokers.items() if broker.running and node not in self._paused]

    # --- what can happen to nodes ---

    def start(self, *nodes: int, wait: bool = True) -> "Cluster":
        """Start these nodes (none named: all), and wait until they are part of the cluster."""
        chosen = nodes or tuple(self.brokers)
        try:
            for node in chosen:
                self[node].launch()
            for node in chosen if wait else ():
                self[node].await_ready(START_TIMEOUT_S)
            if wait:
                self.await_members()
        except BaseException:
            for node in chosen:
                self[node].kill()
            raise
        return self

    def kill(self, *nodes: int) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        for node in nodes:
            self[node].kill()
            self._paused.discard(node)

    def stop(self, *nodes: int) -> None:
        """SIGTERM, one after the other: each hands over what it leads and says good-bye."""
        for node in nodes:
            self.resume(node)
            self[node].stop()

    def restart(self, *nodes: int, kill: bool = False, wait: bool = True) -> None:
        """Down (cleanly, or by `kill`) and up again, one after the other."""
        for node in nodes:
            if kill:
                self.kill(node)
            else:
                self.stop(node)
            self.start(node, wait=wait)

    def pause(self, *nodes: int) -> None:
        """SIGSTOP: connections stay open and nobody answers, as on a machine that hangs."""
        for node in nodes:
            self[node].pause()
            self._paused.add(node)

    def resume(self, *nodes: int) -> None:
        for node in nodes:
            self[node].resume()
            self._paused.discard(node)

    def partition(self, *groups: Iterable[int]) -> None:
        """Nodes of different groups do not reach each other; those not named are one more group."""
        self._cuttable().partition(groups)

    def cut(self, source: int, target: int) -> None:
        """One way: what `source` sends does not arrive at `target`; the other direction goes on."""
        self._cuttable().cut([(source, target)])

    def heal(self) -> None:
        """All nodes reach each other again."""
        self._cuttable().heal()

    # --- what is the case ---

    def leader_of(self, topic: str, partition: int = 0, seconds: float = PATIENCE_S) -> int:
        """Who leads a partition: a node that runs, waited for if there is none."""

        def leader() -> int | None:
            found = self._partition(topic, partition)
            return found.leader if found is not None and found.leader in self.running else None

        def missing() -> str:
            if not self.running or self._partition(topic, partition) is not None:
                return ""
            return f": there is no topic {topic} with a partition {partition}; create it first"

        return self.wait_for(leader, f"a leader of {topic} partition {partition}", seconds, missing)

    def followers_of(self, topic: str, partition: int = 0) -> list[int]:
        leader = self.leader_of(topic, partition)
        found = self._partition(topic, partition)
        return [] if found is None else [node for node in found.replicas if node != leader]

    def controller(self) -> int:
        """The leader of the metadata quorum: a node that runs, waited for if there is none."""

        def leader() -> int | None:
            said = [answer for node in self.running if (answer := self._ask(node, _quorum_leader)) is not None]
            _, newest = max(said, default=(-1, -1))
            return newest if newest in self.running else None

        return self.wait_for(leader, "a controller")

    def await_members(self, *nodes: int) -> None:
        """Wait until each of these nodes (none named: all that run) sees all of them in the cluster."""

        def complete() -> bool | None:
            wanted = set(nodes or self.running) & self._serving
            return all(wanted <= (self._ask(node, _members) or set()) for node in wanted) or None

        self.wait_for(complete, f"all of {sorted(nodes or self.running)} in the cluster")

    def await_in_sync(self, *topics: str) -> None:
        """Wait until every replica of these topics that runs is in sync, as every running node says."""

        def complete() -> bool | None:
            running = set(self.running) & self._serving
            for node in running:
                picture = self._ask(node, lambda client: client.refresh(topics))
                if picture is None or not all(
                    topic in picture.topics and _is_in_sync(picture, topic, running) for topic in topics
                ):
                    return None
            return True

        self.wait_for(complete, f"all replicas of {', '.join(topics)} in sync")

    def wait_for(
        self,
        condition: Callable[[], Found | None],
        what: str,
        seconds: float = PATIENCE_S,
        explain: Callable[[], str] = str,
    ) -> Found:
        """`explain` is asked when the time is up."""
        deadline = time.monotonic() + seconds
        while (found := condition()) is None:
            if time.monotonic() > deadline:
                raise BrokerFailed(f"waited {seconds:g} s without success for {what}{explain()}{self._printed()}")
            time.sleep(PAUSE_S)
        return found

    def close(self) -> None:
        """End every process. Data in a directory of the caller's is left in good order; may be called twice."""
        try:
            if self._keep:
                with ThreadPoolExecutor(len(self.brokers)) as pool:
                    list(pool.map(Broker.stop, [self[node] for node in self.running]))
        finally:
            for broker in self.brokers.values():
                broker.kill()
                broker.close()
            if self.network is not None:
                self.network.close()
            for held in self._held.values():
                held.close()
            self._own.cleanup()

    # --- inside ---

    def _whereabouts(self, node: int) -> dict[str, Any]:
        """Every node has a list of its own, in which the others are where the network has them."""
        places = {
            other: address if self.network is None or other == node else self.network.address(node, other)
            for other, address in self._addresses.items()
        }
        texts = {other: f"{other}@{host}:{port}" for other, (host, port) in places.items()}
        others = [text for other, text in texts.items() if other != node]
        settings: dict[str, Any] = {"voters": ",".join(texts[voter] for voter in self._voters)}
        if node not in self._voters:
            settings["roles"] = "broker"
        if self.network is not None and others:
            settings["peer_addresses"] = ",".join(others)
        return settings

    def _cuttable(self) -> Network:
        if self.network is None:
            raise RuntimeError("this cluster was made with network=False: there is nothing to cut")
        return self.network

    def _partition(self, topic: str, partition: int) -> Partition | None:
        """As whoever knows most says: a node that is cut off may still think that it leads."""
        newest: Partition | None = None
        for node in set(self.running) & self._serving:
            picture = self._ask(node, lambda client: client.refresh([topic]))
            if picture is None or topic not in picture.topics:
                continue
            said = picture.topics[topic].partitions.get(partition)
            if said is not None and (newest is None or said.leader_epoch > newest.leader_epoch):
                newest = said
        return newest

    def _ask(self, node: int, question: Callable[[Client], Found]) -> Found | None:
        """What one node says; None if it does not answer."""
        try:
            with Client(self[node].bootstrap, client_id="skidway-testing", timeout_ms=REPLY_TIMEOUT_MS) as client:
                return question(client)
        except ClientError:
            return None

    def _printed(self) -> str:
        return "".join(f"\nnode {node}:\n{broker.output[-2_000:]}" for node, broker in self.brokers.items())


def _hold_port() -> socket.socket:
    """A free port that nobody else gets, and that a broker can listen on: it is bound here and never listened to."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((HOST, 0))
    return held


def _members(client: Client) -> set[int]:
    return set(client.refresh([]).brokers)


def _is_in_sync(picture: Picture, topic: str, running: set[int]) -> bool:
    partitions = picture.topics[topic].partitions.values()
    return all(running & set(partition.replicas) <= set(partition.in_sync) for partition in partitions)


def _quorum_leader(client: Client) -> tuple[int, int]:
    """(epoch, node); -1 if this node knows of none."""
    admin = ClusterAdmin(client)
    try:
        quorum = admin.describe_quorum()
    except Unsupported:
        return -1, admin.describe_cluster().controller
    return quorum.epoch, quorum.leader
