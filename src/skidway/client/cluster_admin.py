"""The cluster from outside: its nodes, its quorum, moving replicas, electing leaders."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from skidway.client.addresses import Address
from skidway.client.admin import Admin
from skidway.client.cluster import Partition
from skidway.client.connection import Connection
from skidway.client.errors import BrokerError, ClientError, NoController, ReplyTimeout, check
from skidway.client.moves import PartitionKey
from skidway.errors import ErrorCode
from skidway.wire.schema.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from skidway.wire.schema.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from skidway.wire.schema.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from skidway.wire.schema.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
)
from skidway.wire.schema.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from skidway.wire.schema.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from skidway.wire.schema.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from skidway.wire.schema.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

METADATA_TOPIC = "__cluster_metadata"
LISTENER = "CONTROLLER"
PREFERRED = 0
UNCLEAN = 1
POLL_MS = 200
PROBE_TIMEOUT_MS = 1_000


@dataclass(slots=True)
class BrokerState:
    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


@dataclass(slots=True)
class QuorumMember:
    id: int
    end_offset: int
    lag: int
    caught_up_ms: int
    """When it last had all that the leader had, in wall time; -1 if not known."""
    directory_id: bytes = bytes(16)


@dataclass(slots=True)
class Quorum:
    leader: int
    epoch: int
    high_watermark: int
    voters: list[QuorumMember] = field(default_factory=list)
    observers: list[QuorumMember] = field(default_factory=list)
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Where voters listen, as far as it is known."""


@dataclass(slots=True)
class Reassignment:
    """One that is under way."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


@dataclass(slots=True)
class ClusterState:
    cluster_id: str
    controller: int
    brokers: dict[int, BrokerState]


class ClusterAdmin(Admin):
    def describe_cluster(self) -> ClusterState:
        """Fenced brokers included."""
        request = DescribeClusterRequest(include_fenced_brokers=True)
        reply = self.cluster.any_broker().call(request, DescribeClusterResponse)
        check(reply.error_code, "describing the cluster", reply.error_message)
        brokers = {
            broker.broker_id: BrokerState(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
            for broker in sorted(reply.brokers, key=lambda broker: broker.broker_id)
        }
        return ClusterState(reply.cluster_id, reply.controller_id, brokers)

    def describe_quorum(self, timeout_ms: int | None = None) -> Quorum:
        """As its leader says. `NoController` if none is found in time."""
        patience_ms = self.cluster.timeout_ms if timeout_ms is None else min(timeout_ms, self.cluster.timeout_ms)
        asked = RequestTopicData(topic_name=METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])
        request = DescribeQuorumRequest(topics=[asked])
        doing = "describing the metadata quorum"

        def ask() -> Quorum:
            connection = self.cluster.any_broker()
            try:
                reply = connection.call(request, DescribeQuorumResponse, timeout_ms=patience_ms)
            except ReplyTimeout:
                raise NoController(patience_ms, connection.address) from None
            check(reply.error_code, doing, reply.error_message)
            for partition in (partition for topic in reply.topics for partition in topic.partitions):
                check(partition.error_code, doing, partition.error_message)
                end_offset = max((voter.log_end_offset for voter in partition.current_voters), default=0)
                return Quorum(
                    partition.leader_id,
                    partition.leader_epoch,
                    partition.high_watermark,
                    [_member(voter, end_offset) for voter in partition.current_voters],
                    [_member(observer, end_offset) for observer in partition.observers],
                    {node.node_id: (at.host, at.port) for node in reply.nodes for at in node.listeners[:1]},
                )
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, doing, "the answer has no partition in it")

        try:
            return self.cluster.retrying(ask, timeout_ms=patience_ms)
        except BrokerError as error:
            if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            raise NoController(patience_ms, ",".join(map(str, self.cluster.bootstrap))) from None

    def answers(self, broker: BrokerState) -> bool:
        """Whether a broker can be reached at this moment, whatever the metadata says of it."""
        try:
            Connection(
                Address(broker.host, broker.port),
                connect_timeout_ms=PROBE_TIMEOUT_MS,
                reply_timeout_ms=PROBE_TIMEOUT_MS,
            ).close()
        except ClientError:
            return False
        return True

    def partitions(self) -> dict[PartitionKey, Partition]:
        """All there are, internal topics included."""
        return {
            (topic.name, partition.index): partition
            for topic in self.topics()
            for partition in topic.partitions.values()
        }

    def reassign(self, wanted: Mapping[PartitionKey, list[int] | None]) -> None:
        """Begin to move partitions to these replicas; None cancels a move that is under way."""
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, index), replicas in sorted(wanted.items()):
            topics.setdefault(topic, []).append(ReassignablePartition(partition_index=index, replicas=replicas))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self.cluster.timeout_ms,
            topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )

        def ask() -> None:
            reply = self.cluster.ask_controller(request, AlterPartitionReassignmentsResponse)
            check(reply.error_code, "moving replicas", reply.error_message)
            for topic in reply.responses:
                for result in topic.partitions:
                    about = f"{topic.name} partition {result.partition_index}"
                    check(result.error_code, about, result.error_message)

        self.cluster.retrying(ask)

    def reassignments(self) -> dict[PartitionKey, Reassignment]:
        """All that are under way."""
        request = ListPartitionReassignmentsRequest(timeout_ms=self.cluster.timeout_ms, topics=None)

        def ask() -> dict[PartitionKey, Reassignment]:
            reply = self.cluster.ask_controller(request, ListPartitionReassignmentsResponse)
            check(reply.error_code, "asking which replicas move", reply.error_message)
            return {
                (topic.name, moving.partition_index): Reassignment(
                    list(moving.replicas), list(moving.adding_replicas), list(moving.removing_replicas)
                )
                for topic in reply.topics
                for moving in topic.partitions
            }

        return self.cluster.retrying(ask)

    def await_reassignments(self, keys: set[PartitionKey], on_progress: Callable[[int], None]) -> None:
        """Wait until these have moved, however long it takes; `on_progress` is told how many are left."""
        while left := keys & set(self.reassignments()):
            on_progress(len(left))
            time.sleep(POLL_MS / 1000)

    def elect_leaders(
        self, keys: list[PartitionKey] | None = None, *, unclean: bool = False
    ) -> dict[PartitionKey, BrokerError | None]:
        """The preferred replica of each leads from now on, if it can; None: of all partitions that another one leads.

        `unclean`: a partition without a leader gets one even if it has lost records.
        """
        topics: dict[str, list[int]] = {}
        for topic, index in keys or []:
            topics.setdefault(topic, []).append(index)
        request = ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED,
            topic_partitions=None
            if keys is None
            else [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
            timeout_ms=self.cluster.timeout_ms,
        )
        reply = self.cluster.ask_controller(request, ElectLeadersResponse)
        check(reply.error_code, "electing leaders")
        results: dict[PartitionKey, BrokerError | None] = {}
        for election in reply.replica_election_results:
            for result in election.partition_result:
                key = election.topic, result.partition_id
                results[key] = _refusal(key, result.error_code, result.error_message)
        return results

    def add_voter(self, node_id: int) -> None:
        """A node that follows the metadata becomes one of those that decide on it."""
        about = f"node {node_id} cannot become a voter"
        member = next((each for each in self.describe_quorum().observers if each.id == node_id), None)
        broker = self.describe_cluster().brokers.get(node_id)
        if member is None or broker is None:
            text = "it does not follow the metadata; start it with the cluster's voters and the role controller"
            raise BrokerError(ErrorCode.VOTER_NOT_FOUND, about, text)
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=self.cluster.timeout_ms,
            voter_id=node_id,
            voter_directory_id=member.directory_id,
            listeners=[Listener(name=LISTENER, host=broker.host, port=broker.port)],
        )

        def ask() -> None:
            reply = self.cluster.ask_controller(request, AddRaftVoterResponse)
            check(reply.error_code, about, reply.error_message)

        self.cluster.retrying(ask)

    def remove_voter(self, node_id: int) -> None:
        about = f"voter {node_id} cannot be removed"
        member = next((each for each in self.describe_quorum().voters if each.id == node_id), None)
        if member is None:
            raise BrokerError(ErrorCode.VOTER_NOT_FOUND, about, "it is not one of the voters")
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=member.directory_id)

        def ask() -> None:
            reply = self.cluster.ask_controller(request, RemoveRaftVoterResponse)
            check(reply.error_code, about, reply.error_message)

        self.cluster.retrying(ask)

    def unregister_broker(self, broker_id: int) -> None:
        """The cluster forgets a broker that is gone for good."""
        request = UnregisterBrokerRequest(broker_id=broker_id)
        reply = self.cluster.ask_controller(request, UnregisterBrokerResponse)
        check(reply.error_code, f"broker {broker_id} cannot be forgotten", reply.error_message)


def _member(state: ReplicaState, end_offset: int) -> QuorumMember:
    behind = max(0, end_offset - state.log_end_offset) if state.log_end_offset >= 0 else end_offset
    caught_up_ms = state.last_caught_up_timestamp
    return QuorumMember(state.replica_id, state.log_end_offset, behind, caught_up_ms, bytes(state.replica_directory_id))


def _refusal(key: PartitionKey, code: int, message: str | None) -> BrokerError | None:
    # It leads already: all that was wanted.
    if code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
        return None
    return BrokerError(code, f"{key[0]} partition {key[1]}", message)
