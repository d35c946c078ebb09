"""What the tests of a cluster ask of it: topics, leaders, reassignments, and produce requests to one certain node."""

import time
from collections.abc import Mapping

from skidway.blocking_client.addresses import Address
from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.cluster import Partition
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import ClientError, check
from skidway.errors import ErrorCode
from skidway.records.record import Record, build_batch
from skidway.testing import Cluster
from skidway.wire.schema.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from skidway.wire.schema.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from skidway.wire.schema.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from waiting import comes_true

ACKS_ALL = -1
NAMED_PRODUCE = 12
PATIENCE_S = 60.0
ANSWER_MS = 5_000
PREFERRED = 0
ELECTION_NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED
SMALL = {"internal.segment.bytes": str(256 * 1024), "index.interval.bytes": "1024"}
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""Where a node's clock is behind, messages are not refused for being from the future."""


def create_topic(cluster: Cluster, name: str, partitions: int = 3, **configs: str) -> list[tuple[str, int]]:
    """Three replicas, two of which must be in sync; returns its places."""
    settings = {
        "min.insync.replicas": "2",
        **SMALL,
        **ANY_TIME,
        **{key.replace("_", "."): value for key, value in configs.items()},
    }
    with Client(cluster.bootstrap) as client:
        Admin(client).create_topic(name, partitions=partitions, replication=3, configs=settings)
    return [(name, index) for index in range(partitions)]


def described(cluster: Cluster, topic: str, partition: int, *nodes: int) -> Partition:
    """As one of these nodes says (none named: any that runs)."""
    bootstrap = ",".join(cluster[node].bootstrap for node in nodes or cluster.running)
    with Client(bootstrap, timeout_ms=ANSWER_MS) as client:
        return client.look_up(topic).partitions[partition]


def connect(cluster: Cluster, node: int) -> Connection:
    return Connection(Address(cluster[node].host, cluster[node].port))


def await_leader(cluster: Cluster, topic: str, partition: int, *, other_than: int = -1) -> int:
    found = [-1]

    def elected() -> bool:
        try:
            found[0] = described(cluster, topic, partition).leader
        except ClientError:
            return False
        return found[0] not in (-1, other_than)

    assert comes_true(elected, PATIENCE_S), f"{topic}-{partition} has no other leader than {found[0]}"
    return found[0]


def produce_request(topic: str, partition: int, value: bytes, acks: int, timeout_ms: int) -> ProduceRequest:
    batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, value)])
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])
    return ProduceRequest(None, acks, timeout_ms, [data])


def produce_to(
    connection: Connection, topic: str, partition: int, value: bytes, *, acks: int = ACKS_ALL, timeout_ms: int = 2_000
) -> ErrorCode:
    connection.send(produce_request(topic, partition, value, acks, timeout_ms), version=NAMED_PRODUCE)
    return produced(connection)


def produced(connection: Connection) -> ErrorCode:
    (answer,) = connection.receive(ProduceResponse).responses[0].partition_responses
    return ErrorCode(answer.error_code)


def reassign(cluster: Cluster, topic: str, replicas: Mapping[int, list[int]], *, wait: bool = True) -> None:
    """Returns when it is done, or with `wait=False` when it has begun."""
    partitions = [ReassignablePartition(index, list(wanted)) for index, wanted in replicas.items()]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, partitions)])

    def ask() -> None:
        with Client(cluster.bootstrap) as client:
            client.refresh([])
            reply = client.controller().call(request, AlterPartitionReassignmentsResponse)
            check(reply.error_code, "reassigning", reply.error_message)
            for answer in (answer for answered in reply.responses for answer in answered.partitions):
                check(answer.error_code, f"reassigning {topic}", answer.error_message)

    def done() -> bool:
        try:
            with Client(cluster.bootstrap) as client:
                client.refresh([])
                reply = client.controller().call(
                    ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse
                )
                return not reply.error_code and not any(found.name == topic for found in reply.topics)
        except ClientError:
            return False

    with Client(cluster.bootstrap) as client:
        client.refresh([])
        client.retrying(ask)
    assert not wait or comes_true(done, PATIENCE_S), f"the reassignment of {topic} to {replicas} does not end"


def elect_preferred_leaders(cluster: Cluster) -> None:
    """Every partition is led by the first of its replicas, where that one is in sync."""
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
    with Client(cluster.bootstrap) as client:
        client.refresh([])
        reply = client.controller().call(request, ElectLeadersResponse)
    check(reply.error_code, "electing preferred leaders")
