"""Groups as an operator sees them: who is in one, what they own, what they committed; and changing that.

Groups of the classic and of the consumer protocol look alike here, and so do share groups, except that what they have
done is in `share_groups`. `Groups` joins no group; `membership` does. Every method raises `BrokerError` with the
broker's own words.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from skidway.blocking_client.addresses import Address
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.coordinators import Coordinators, CoordinatorType
from skidway.blocking_client.errors import BrokerError, Unsupported, check
from skidway.blocking_client.reader import Place, by_topic
from skidway.errors import ErrorCode, ProtocolError
from skidway.ports import Buffer
from skidway.wire.registry import codec
from skidway.wire.schema import consumer_group_describe as consumer_protocol_groups
from skidway.wire.schema import share_group_describe as share_groups
from skidway.wire.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from skidway.wire.schema.consumer_protocol import ConsumerProtocolAssignment
from skidway.wire.schema.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from skidway.wire.schema.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from skidway.wire.schema.list_groups import ListGroupsRequest, ListGroupsResponse
from skidway.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from skidway.wire.schema.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from skidway.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

# From version 10 on topics go by id; by name a deleted topic's offsets can still be told.
OFFSETS_BY_NAME_MAX = 9
CONSUMER_PROTOCOL = "consumer"
SHARE = "share"
EMPTY_STATES = ("Empty", "Dead")


@dataclass(slots=True)
class ListedGroup:
    id: str
    protocol: str
    state: str
    type: str


@dataclass(slots=True)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[Place] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    id: str
    state: str
    type: str
    """`classic`, `consumer` or `share`: which protocol its members speak."""
    protocol: str
    assignor: str
    coordinator: Address
    members: list[Member] = field(default_factory=list)

    @property
    def live(self) -> bool:
        return bool(self.members) or self.state not in EMPTY_STATES

    def owner(self, place: Place) -> Member | None:
        return next((member for member in self.members if place in member.partitions), None)


@dataclass(slots=True)
class Committed:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class NoSuchGroup(BrokerError):
    def __init__(self, group: str) -> None:
        super().__init__(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group}")
        self.group = group


class Groups:
    """Not for several threads at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._coordinators = Coordinators(cluster, CoordinatorType.GROUP)

    def all(self, *, states: Iterable[str] = ()) -> list[ListedGroup]:
        """The groups of all brokers, by name."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=[])
        found: dict[str, ListedGroup] = {}

        def ask() -> None:
            for address in self.cluster.refresh([]).brokers.values():
                reply = self.cluster.connect(address).call(request, ListGroupsResponse)
                check(reply.error_code, f"asking {address} for its groups")
                for entry in reply.groups:
                    found[entry.group_id] = ListedGroup(
                        entry.group_id, entry.protocol_type, entry.group_state, entry.group_type.lower()
                    )

        self.cluster.retrying(ask)
        return [found[name] for name in sorted(found)]

    def describe(self, group: str) -> Group:
        """Members and what they own; `NoSuchGroup` if no protocol knows it."""
        for ask in (self._describe_consumer, self._describe_share):
            try:
                return ask(group)
            except NoSuchGroup:
                continue
        return self._describe_classic(group)

    def committed(self, group: str) -> dict[Place, Committed]:
        """Every offset the group has committed; none at all for a group that does not exist."""
        return self._fetch_offsets(group, None)

    def committed_of(
        self, group: str, places: Iterable[Place], *, require_stable: bool = False
    ) -> dict[Place, Committed]:
        """Those of some partitions that have one. With `require_stable` it waits for transactions that are about to
        change them."""
        return self._fetch_offsets(group, by_topic(places), require_stable=require_stable)

    def commit(
        self, group: str, offsets: Mapping[Place, int], *, metadata: str = "", member: tuple[str, int] = ("", -1)
    ) -> None:
        """`member`: its id and epoch. Without one it is as somebody outside the group: brokers take that only while the
        group has no members."""
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offsets[topic, partition],
                        committed_metadata=metadata,
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ]
        member_id, epoch = member
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics
        )

        def ask(coordinator: Connection) -> None:
            version = min(OFFSETS_BY_NAME_MAX, coordinator.version(OffsetCommitRequest.__key__ or 0))
            coordinator.send(request, version=version)
            reply = coordinator.receive(OffsetCommitResponse)
            for answered in reply.topics:
                for answer in answered.partitions:
                    about = f"cannot commit {answered.name} partition {answer.partition_index} for group {group}"
                    check(answer.error_code, about)

        self._coordinators.ask(group, ask)

    def forget(self, group: str, places: Iterable[Place]) -> dict[str, str]:
        """Delete committed offsets. Why some were refused, by topic: members are subscribed to it, for one."""
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index) for index in partitions])
            for topic, partitions in by_topic(places).items()
        ]
        request = OffsetDeleteRequest(group, topics)

        def ask(coordinator: Connection) -> dict[str, str]:
            reply = coordinator.call(request, OffsetDeleteResponse)
            check(reply.error_code, f"cannot alter group {group}")
            return {
                topic.name: str(BrokerError(each.error_code, f"group {group}, topic {topic.name}"))
                for topic in reply.topics
                for each in topic.partitions
                if each.error_code
            }

        return self._coordinators.ask(group, ask)

    def delete(self, group: str) -> None:
        request = DeleteGroupsRequest(groups_names=[group])

        def ask(coordinator: Connection) -> None:
            for result in coordinator.call(request, DeleteGroupsResponse).results:
                if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                    raise NoSuchGroup(group)
                check(result.error_code, f"cannot delete group {group}")

        self._coordinators.ask(group, ask)

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Of a member of the consumer protocol; what the coordinator refuses raises."""

        def ask(coordinator: Connection) -> ConsumerGroupHeartbeatResponse:
            reply = coordinator.call(request, ConsumerGroupHeartbeatResponse)
            check(reply.error_code, f"group {request.group_id}", reply.error_message)
            return reply

        return self._coordinators.ask(request.group_id, ask)

    def coordinator(self, group: str) -> Connection:
        """A connection to the broker that keeps the group. Raises what is worth a retry while there is none."""
        return self._coordinators.find(group)

    def _fetch_offsets(
        self, group: str, topics: Mapping[str, list[int]] | None, *, require_stable: bool = False
    ) -> dict[Place, Committed]:
        by_name = None if topics is None else [OffsetFetchRequestTopic(*entry) for entry in topics.items()]
        wanted = (
            None if topics is None else [OffsetFetchRequestTopics(name, bytes(16), p) for name, p in topics.items()]
        )
        request = OffsetFetchRequest(
            group_id=group,
            topics=by_name,
            groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)],
            require_stable=require_stable,
        )

        def ask(coordinator: Connection) -> dict[Place, Committed]:
            version = min(OFFSETS_BY_NAME_MAX, coordinator.version(OffsetFetchRequest.__key__ or 0))
            coordinator.send(request, version=version)
            return _read_offsets(group, coordinator.receive(OffsetFetchResponse))

        return self._coordinators.ask(group, ask)

    def _describe_consumer(self, group: str) -> Group:
        request = consumer_protocol_groups.ConsumerGroupDescribeRequest(group_ids=[group])

        def ask(coordinator: Connection) -> Group:
            try:
                reply = coordinator.call(request, consumer_protocol_groups.ConsumerGroupDescribeResponse)
            except Unsupported:
                raise NoSuchGroup(group) from None
            (found,) = reply.groups
            if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise NoSuchGroup(group)
            check(found.error_code, f"group {group}", found.error_message)
            return Group(
                id=group,
                state=found.group_state,
                type="consumer",
                protocol=CONSUMER_PROTOCOL,
                assignor=found.assignor_name,
                coordinator=coordinator.address,
                members=[_consumer_member(member) for member in found.members],
            )

        return self._coordinators.ask(group, ask)

    def _describe_share(self, group: str) -> Group:
        request = share_groups.ShareGroupDescribeRequest(group_ids=[group])

        def ask(coordinator: Connection) -> Group:
            try:
                (found,) = coordinator.call(request, share_groups.ShareGroupDescribeResponse).groups
            except Unsupported:
                raise NoSuchGroup(group) from None
            # Whoever has turned share groups off may ask about others.
            if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise NoSuchGroup(group)
            check(found.error_code, f"group {group}", found.error_message)
            members = [_share_member(member) for member in found.members]
            return Group(group, found.group_state, SHARE, SHARE, found.assignor_name, coordinator.address, members)

        return self._coordinators.ask(group, ask)

    def _describe_classic(self, group: str) -> Group:
        request = DescribeGroupsRequest(groups=[group])

        def ask(coordinator: Connection) -> Group:
            (found,) = coordinator.call(request, DescribeGroupsResponse).groups
            if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (
                not found.error_code and found.group_state == "Dead"
            ):
                raise NoSuchGroup(group)
            check(found.error_code, f"group {group}", found.error_message)
            members = [
                Member(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host.lstrip("/"),
                    _assigned(member.member_assignment) if found.protocol_type == CONSUMER_PROTOCOL else [],
                )
                for member in found.members
            ]
            return Group(
                group,
                found.group_state,
                "classic",
                found.protocol_type,
                found.protocol_data,
                coordinator.address,
                members,
            )

        return self._coordinators.ask(group, ask)


def _read_offsets(group: str, reply: OffsetFetchResponse) -> dict[Place, Committed]:
    answers: list[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]] = []
    check(reply.error_code, f"group {group}")
    for answered in reply.groups:
        check(answered.error_code, f"group {group}")
        answers += [(topic.name, entry) for topic in answered.topics for entry in topic.partitions]
    answers += [(topic.name, entry) for topic in reply.topics for entry in topic.partitions]
    found: dict[Place, Committed] = {}
    for topic, entry in answers:
        check(entry.error_code, f"group {group}, {topic} partition {entry.partition_index}")
        if entry.committed_offset >= 0:
            committed = Committed(entry.committed_offset, entry.committed_leader_epoch, entry.metadata or "")
            found[topic, entry.partition_index] = committed
    return found


def _consumer_member(member: consumer_protocol_groups.Member) -> Member:
    owned = [
        (topic.topic_name, partition)
        for topic in member.assignment.topic_partitions
        for partition in sorted(topic.partitions)
    ]
    return Member(member.member_id, member.instance_id, member.client_id, member.client_host.lstrip("/"), owned)


def _share_member(member: share_groups.Member) -> Member:
    owned = [
        (topic.topic_name, partition)
        for topic in member.assignment.topic_partitions
        for partition in sorted(topic.partitions)
    ]
    return Member(member.member_id, None, member.client_id, member.client_host.lstrip("/"), owned)


def _assigned(assignment: Buffer) -> list[Place]:
    """What a classic member's leader wrote for it. Bytes that are no assignment own nothing: they are the clients'."""
    if len(assignment) < 2:
        return []
    (version,) = struct.unpack_from(">h", assignment)
    try:
        decoded, _ = codec(ConsumerProtocolAssignment).decoder(min(max(version, 0), 3))(assignment, 2)
    except ProtocolError:
        return []
    return [(entry.topic, partition) for entry in decoded.assigned_partitions for partition in sorted(entry.partitions)]
