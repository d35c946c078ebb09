"""The cluster from outside: its nodes, its quorum, moving replicas, electing leaders."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from skidway.blocking_client.addresses import Address
from skidway.blocking_client.admin import BROKER_RESOURCE, DELETE, SET, TOPIC_RESOURCE, Admin, ConfigChange
from skidway.blocking_client.cluster import Partition
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.controller_watch import describe_quorum_request
from skidway.blocking_client.errors import BrokerError, ClientError, NoController, check
from skidway.blocking_client.moves import PartitionKey
from skidway.errors import ErrorCode
from skidway.wire.schema.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from skidway.wire.schema.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from skidway.wire.schema.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from skidway.wire.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from skidway.wire.schema.describe_quorum import DescribeQuorumResponse, ReplicaState
from skidway.wire.schema.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from skidway.wire.schema.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from skidway.wire.schema.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from skidway.wire.schema.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

LISTENER = "CONTROLLER"
ROLES = "process.roles"
ADVERTISED = "advertised.listeners"
INTER_BROKER = "inter.broker.listener.name"
DRAINED = "skidway.drained"
MIN_IN_SYNC = "min.insync.replicas"
PREFERRED = 0
UNCLEAN = 1
OBSERVER_WAIT_S = 10.0
POLL_MS = 200
PROBE_TIMEOUT_MS = 1_000


@dataclass(slots=True)
class BrokerState:
    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool
    drained: bool = False
    """It is given no new replicas."""


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

    @property
    def wiped(self) -> set[int]:
        """Voters that came back with another directory: they follow the log like observers and do not vote."""
        return {voter.id for voter in self.voters} & {observer.id for observer in self.observers}


@dataclass(slots=True)
class Reassignment:
    """One that is under way."""

    replicas: list[int]
    """All that it has while it moves."""
    adding: list[int]
    removing: list[int]

    @property
    def target(self) -> list[int]:
        """The replicas it will have at the end."""
        return [broker for broker in self.replicas if broker not in self.removing]


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
        for broker_id in self._drained(brokers):
            brokers[broker_id].drained = True
        return ClusterState(reply.cluster_id, reply.controller_id, brokers)

    def _drained(self, brokers: Iterable[int]) -> list[int]:
        """As far as whoever is asked knows: another broker than a Skidway knows nothing of it."""
        resources = [
            DescribeConfigsResource(
                resource_type=BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=[DRAINED]
            )
            for broker_id in brokers
        ]
        reply = self.cluster.any_broker().call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        return [
            int(result.resource_name)
            for result in reply.results
            for entry in result.configs
            if entry.name == DRAINED and (entry.value or "").strip().lower() == "true"
        ]

    def keep_drained(self, broker_id: int, drained: bool) -> None:
        """Whether new replicas may be placed on a broker; those that it has stay."""
        change = ConfigChange(DRAINED, SET, "true") if drained else ConfigChange(DRAINED, DELETE)
        self.cluster.retrying(lambda: self.alter_broker(broker_id, [change]))

    def describe_quorum(self, timeout_ms: int | None = None) -> Quorum:
        """As its leader says. `NoController` if none is found in time."""
        patience_ms = self.cluster.timeout_ms if timeout_ms is None else min(timeout_ms, self.cluster.timeout_ms)
        request = describe_quorum_request()
        doing = "describing the metadata quorum"

        def ask() -> Quorum:
            connection = self.cluster.any_broker()
            reply = self.cluster.ask_for_controller(connection, request, DescribeQuorumResponse, patience_ms)
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

    def min_in_sync(self, topics: Iterable[str]) -> dict[str, int]:
        """How many replicas of each topic must be in sync for acks=all."""
        resources = [
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[MIN_IN_SYNC])
            for name in topics
        ]
        reply = self.cluster.any_broker().call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        return {
            result.resource_name: int(entry.value or 1)
            for result in reply.results
            for entry in result.configs
            if entry.name == MIN_IN_SYNC
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

    def await_reassignments(
        self, keys: set[PartitionKey], on_progress: Callable[[int], None], timeout_s: float
    ) -> set[PartitionKey]:
        """Wait until these have moved or time is up; those that still move. `on_progress` is told how many are left."""
        deadline = time.monotonic() + timeout_s
        while left := keys & set(self.reassignments()):
            on_progress(len(left))
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL_MS / 1000)
        return left

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

    def add_voter(self, node_id: int, at: Address | None = None) -> Address:
        """A node that follows the metadata becomes one of those that decide on it; answers where they reach it.

        `at`: where the node can be asked about itself. Only brokers are registered with their address.
        """
        about = f"node {node_id} cannot become a voter"
        member = self._observer(node_id, about)
        address = self._address_of_controller(node_id, at, about)
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=self.cluster.timeout_ms,
            voter_id=node_id,
            voter_directory_id=member.directory_id,
            listeners=[Listener(name=LISTENER, host=address.host, port=address.port)],
        )

        def ask() -> None:
            reply = self.cluster.ask_controller(request, AddRaftVoterResponse)
            # It was no voter a moment ago: an answer was lost, and the request that is repeated finds its work done.
            if reply.error_code != ErrorCode.DUPLICATE_VOTER:
                check(reply.error_code, about, reply.error_message)

        self.cluster.retrying(ask)
        return address

    def _observer(self, node_id: int, about: str) -> QuorumMember:
        """One that was just started, or has to find a new leader first, is seen with its next fetch: in seconds."""
        until = time.monotonic() + min(OBSERVER_WAIT_S, self.cluster.timeout_ms / 1000)
        while True:
            quorum = self.describe_quorum()
            if any(voter.id == node_id for voter in quorum.voters):
                text = "if its disk or its address is new, remove the voter first"
                raise BrokerError(ErrorCode.DUPLICATE_VOTER, f"node {node_id} is a voter already", text)
            for member in quorum.observers:
                if member.id == node_id:
                    return member
            if time.monotonic() > until:
                text = "it does not follow the metadata; start it with the cluster's voters and the role controller"
                raise BrokerError(ErrorCode.VOTER_NOT_FOUND, about, text)
            time.sleep(POLL_MS / 1000)

    def _address_of_controller(self, node_id: int, at: Address | None, about: str) -> Address:
        """What the node itself says, for the others: `at` may be a name that only this machine knows."""
        state = self.describe_cluster()
        broker = state.brokers.get(node_id)
        if at is not None:
            asked = at
        elif broker is not None:
            asked = Address(broker.host, broker.port)
        else:
            text = "it is not a broker, so the cluster does not know its address; give the address with --at HOST:PORT"
            raise BrokerError(ErrorCode.INVALID_REQUEST, about, text)
        # Not one of the cluster's connections: it may turn out to be a node of another cluster.
        with Connection(asked, client_id=self.cluster.client_id, reply_timeout_ms=self.cluster.timeout_ms) as node:
            cluster_id = node.call(DescribeClusterRequest(), DescribeClusterResponse).cluster_id
            if cluster_id != state.cluster_id:
                text = f"the node at {asked} belongs to the cluster {cluster_id}, not to {state.cluster_id}"
                raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, about, text)
            configs = _own_configs(node, node_id, f"{about}: asked at {asked}")
        if "controller" not in configs[ROLES].split(","):
            text = f"its roles are {configs[ROLES]}; restart it with the role controller too"
            raise BrokerError(ErrorCode.INVALID_REQUEST, about, text)
        return _address_for_nodes(configs) or asked

    def remove_voter(self, node_id: int) -> int:
        """Answers how many voters are left."""
        about = f"voter {node_id} cannot be removed"
        voters = self.describe_quorum().voters
        member = next((each for each in voters if each.id == node_id), None)
        if member is None:
            raise BrokerError(ErrorCode.VOTER_NOT_FOUND, about, "it is not one of the voters")
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=member.directory_id)

        def ask() -> None:
            reply = self.cluster.ask_controller(request, RemoveRaftVoterResponse)
            # It was a voter a moment ago: an answer was lost, and the request that is repeated finds its work done.
            if reply.error_code != ErrorCode.VOTER_NOT_FOUND:
                check(reply.error_code, about, reply.error_message)

        self.cluster.retrying(ask)
        return len(voters) - 1

    def unregister_broker(self, broker_id: int) -> None:
        """The cluster forgets a broker that is gone for good."""
        request = UnregisterBrokerRequest(broker_id=broker_id)
        reply = self.cluster.ask_controller(request, UnregisterBrokerResponse)
        check(reply.error_code, f"cannot unregister broker {broker_id}", reply.error_message)


def _address_for_nodes(configs: Mapping[str, str]) -> Address | None:
    """Of the listener by which nodes speak to each other, as the node itself says. Kafka's nodes may not name it."""
    named = (text.partition("://") for text in configs[ADVERTISED].split(","))
    addresses = {name: address for name, _, address in named}
    only = next(iter(addresses.values())) if len(addresses) == 1 else ""
    host, _, port = addresses.get(configs.get(INTER_BROKER, ""), only).rpartition(":")
    return Address(host, int(port)) if host and port.isdecimal() else None


def _own_configs(node: Connection, node_id: int, about: str) -> dict[str, str]:
    """Which roles a node has and where the others reach it; refused by any node but that one."""
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=[ROLES, ADVERTISED, INTER_BROKER]
    )
    reply = node.call(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    for result in reply.results:
        check(result.error_code, about, result.error_message)
    found = {entry.name: entry.value or "" for result in reply.results for entry in result.configs}
    if not {ROLES, ADVERTISED} <= found.keys():
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, about, "the node does not report its roles and its address")
    return found


def _member(state: ReplicaState, end_offset: int) -> QuorumMember:
    behind = max(0, end_offset - state.log_end_offset) if state.log_end_offset >= 0 else end_offset
    caught_up_ms = state.last_caught_up_timestamp
    return QuorumMember(state.replica_id, state.log_end_offset, behind, caught_up_ms, bytes(state.replica_directory_id))


def _refusal(key: PartitionKey, code: int, message: str | None) -> BrokerError | None:
    # It leads already: all that was wanted.
    if code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
        return None
    return BrokerError(code, f"{key[0]} partition {key[1]}", message)
