"""What share groups have done: where they stand in each partition, what is locked; and moving them.

Who is in a share group, `groups.Groups` tells as of any group. Every method raises `BrokerError` with the broker's own
words.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.coordinators import Coordinators, CoordinatorType
from skidway.blocking_client.errors import BrokerError, Unsupported, check
from skidway.blocking_client.reader import Place, by_topic
from skidway.errors import ErrorCode
from skidway.wire.schema.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from skidway.wire.schema.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from skidway.wire.schema.describe_share_delivery import (
    DeliveryTopic,
    DescribeShareDeliveryRequest,
    DescribeShareDeliveryResponse,
)
from skidway.wire.schema.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)


@dataclass(slots=True)
class ShareOffset:
    start: int
    """The first message that is neither settled nor given up."""
    lag: int | None
    """Messages that are neither; None where nobody knows."""


@dataclass(slots=True)
class Deliveries:
    """Of one partition, as its leader knows them."""

    locked: int
    settling: int
    """What consumers have said of these is not stored yet."""
    waiting: int
    """Delivered, and to be delivered again."""
    counts: dict[int, int] | None
    """Unsettled messages by how often they were delivered. None: nobody has fetched since this broker leads."""


class ShareGroups:
    """Not for several threads at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._coordinators = Coordinators(cluster, CoordinatorType.GROUP)

    def offsets(self, group: str) -> dict[Place, ShareOffset]:
        """For every partition that the group has begun with; none at all for a group that does not exist."""
        request = DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group, None)])

        def ask(coordinator: Connection) -> dict[Place, ShareOffset]:
            (answered,) = coordinator.call(request, DescribeShareGroupOffsetsResponse).groups
            if answered.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return {}
            check(answered.error_code, f"group {group}", answered.error_message)
            found: dict[Place, ShareOffset] = {}
            for topic in answered.topics:
                for entry in topic.partitions:
                    about = f"group {group}, {topic.topic_name} partition {entry.partition_index}"
                    check(entry.error_code, about, entry.error_message)
                    if entry.start_offset >= 0:
                        lag = entry.lag if entry.lag >= 0 else None
                        found[topic.topic_name, entry.partition_index] = ShareOffset(entry.start_offset, lag)
            return found

        return self._coordinators.ask(group, ask)

    def alter(self, group: str, starts: Mapping[Place, int]) -> None:
        """Have a group without members begin elsewhere. The group is made if it is not there."""
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic, [AlterShareGroupOffsetsRequestPartition(number, starts[topic, number]) for number in partitions]
            )
            for topic, partitions in by_topic(starts).items()
        ]
        request = AlterShareGroupOffsetsRequest(group_id=group, topics=topics)

        def ask(coordinator: Connection) -> None:
            reply = coordinator.call(request, AlterShareGroupOffsetsResponse)
            check(reply.error_code, f"cannot move share group {group}", reply.error_message)
            for topic in reply.responses:
                for entry in topic.partitions:
                    about = f"cannot move share group {group} in {topic.topic_name} partition {entry.partition_index}"
                    check(entry.error_code, about, entry.error_message)

        self._coordinators.ask(group, ask)

    def forget(self, group: str, topics: Iterable[str]) -> dict[str, str]:
        """Have a group without members forget topics: who subscribes again begins anew. Why some were refused."""
        asked = [DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics]
        request = DeleteShareGroupOffsetsRequest(group_id=group, topics=asked)

        def ask(coordinator: Connection) -> dict[str, str]:
            reply = coordinator.call(request, DeleteShareGroupOffsetsResponse)
            check(reply.error_code, f"cannot alter share group {group}", reply.error_message)
            return {
                each.topic_name: str(
                    BrokerError(each.error_code, f"group {group}, topic {each.topic_name}", each.error_message)
                )
                for each in reply.responses
                if each.error_code
            }

        return self._coordinators.ask(group, ask)

    def deliveries(self, group: str, places: Iterable[Place]) -> dict[Place, Deliveries]:
        """As the leaders know them. Nothing from brokers that do not tell, such as Apache Kafka's, and of partitions
        without a leader."""
        found: dict[Place, Deliveries] = {}
        served = [place for place in places if not self.cluster.unserved(place[0], [place[1]])]
        ids = {topic: self.cluster.topic(topic).id for topic, _ in served}
        names = {topic_id: topic for topic, topic_id in ids.items()}

        def ask() -> dict[Place, Deliveries]:
            by_leader: dict[Connection, list[Place]] = {}
            for place in served:
                if place not in found:
                    by_leader.setdefault(self.cluster.leader(*place), []).append(place)
            for leader, led in by_leader.items():
                topics = [DeliveryTopic(ids[name], numbers) for name, numbers in by_topic(led).items()]
                reply = leader.call(DescribeShareDeliveryRequest(group, topics), DescribeShareDeliveryResponse)
                check(reply.error_code, f"deliveries of group {group}", reply.error_message)
                for topic in reply.topics:
                    for entry in topic.partitions:
                        name = names[bytes(topic.topic_id)]
                        about = f"deliveries of group {group}, {name} partition {entry.partition_index}"
                        check(entry.error_code, about, entry.error_message)
                        counts = {each.count: each.records for each in entry.counts} if entry.in_use else None
                        found[name, entry.partition_index] = Deliveries(
                            entry.locked, entry.settling, entry.waiting, counts
                        )
            return found

        try:
            return self.cluster.retrying(ask, topics=list(names.values()))
        except Unsupported:
            return found
