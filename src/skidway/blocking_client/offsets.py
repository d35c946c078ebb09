"""Where in a partition to begin: special places, offsets and times, turned into offsets by asking the leaders."""

from collections.abc import Mapping

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import check
from skidway.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
READ_UNCOMMITTED = 0
READ_COMMITTED = 1


def find_offsets(
    cluster: Cluster, topic: str, timestamps: Mapping[int, int], *, isolation_level: int = READ_UNCOMMITTED
) -> dict[int, int]:
    """The first offset at or after a time in ms, for each partition; or one of the special places above.

    A partition with nothing at or after the time has -1.
    """
    found: dict[int, int] = {}

    def ask() -> dict[int, int]:
        missing = [partition for partition in timestamps if partition not in found]
        by_leader: dict[Connection, list[int]] = {}
        for partition in missing:
            by_leader.setdefault(cluster.leader(topic, partition), []).append(partition)
        for connection, partitions in by_leader.items():
            wanted = [
                ListOffsetsPartition(partition_index=partition, timestamp=timestamps[partition])
                for partition in partitions
            ]
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                topics=[ListOffsetsTopic(name=topic, partitions=wanted)],
                timeout_ms=cluster.timeout_ms,
            )
            reply = connection.call(request, ListOffsetsResponse)
            for answer in (answer for answered in reply.topics for answer in answered.partitions):
                check(answer.error_code, f"{topic} partition {answer.partition_index}")
                found[answer.partition_index] = answer.offset
        return found

    return cluster.retrying(ask, topics=[topic])


def offsets_at(
    cluster: Cluster, topic: str, partitions: list[int], place: int, isolation_level: int = 0
) -> dict[int, int]:
    """`LATEST`, `EARLIEST` or one time for all the partitions; the end where nothing is as young as the time."""
    found = find_offsets(cluster, topic, dict.fromkeys(partitions, place), isolation_level=isolation_level)
    after_all = [partition for partition, offset in found.items() if offset < 0]
    if after_all:
        ends = dict.fromkeys(after_all, LATEST)
        found |= find_offsets(cluster, topic, ends, isolation_level=isolation_level)
    return found
