"""How many brokers and partitions there are, so that nobody counts on a dead broker or looks for internal topics."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from skidway.cli.output import count_of

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster


def numbers(nodes: list[int]) -> str:
    """node 1, or nodes 1, 2."""
    return f"{'node' if len(nodes) == 1 else 'nodes'} {', '.join(map(str, nodes))}"


def of_brokers(count: int, down: list[int]) -> str:
    """3 brokers, 1 of them down (node 2)."""
    return count_of(count, "broker") + (f", {len(down)} of them down ({numbers(down)})" if down else "")


def of_partitions(count: int, internal: int) -> str:
    """54 partitions (50 internal)."""
    return count_of(count, "partition") + (f" ({internal} internal)" if internal else "")


def internal_among(cluster: "Cluster", topics: Iterable[str]) -> int:
    """Of partitions, given by their topics as the cluster has just listed them."""
    known = cluster.picture.topics
    return sum(topic in known and known[topic].internal for topic in topics)
