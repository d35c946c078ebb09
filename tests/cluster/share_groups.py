"""What tests of share groups ask of a cluster: settings, partitions made ready, how much is left."""

import uuid

from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.coordinators import Coordinators, CoordinatorType
from skidway.blocking_client.errors import ClientError, check
from skidway.wire.schema.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from skidway.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from skidway.wire.schema.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from waiting import eventually

GROUP_RESOURCE = 32
LEAVE_EPOCH = -1
ANSWER_MS = 10_000


def configure(bootstrap: str, group: str, settings: dict[str, str]) -> None:
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in settings.items()]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    with Client(bootstrap) as client:
        (answer,) = client.ask_controller(request, IncrementalAlterConfigsResponse).responses
        check(answer.error_code, f"settings of {group}", answer.error_message)


def initialise(bootstrap: str, group: str, topic: str, partitions: int) -> None:
    """A member joins, waits until it has all partitions, and leaves: from then on leaders deliver."""
    member, epoch, has = str(uuid.uuid4()), 0, 0
    with Client(bootstrap) as client:
        coordinators = Coordinators(client, CoordinatorType.GROUP)

        def beat(epoch: int) -> ShareGroupHeartbeatResponse:
            topics = [topic] if epoch == 0 else None
            request = ShareGroupHeartbeatRequest(
                group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
            )

            def ask(connection: Connection) -> ShareGroupHeartbeatResponse:
                answer = connection.call(request, ShareGroupHeartbeatResponse)
                check(answer.error_code, f"a heartbeat of {group}", answer.error_message)
                return answer

            return coordinators.ask(group, ask)

        def complete() -> bool:
            nonlocal epoch, has
            answer = beat(epoch)
            epoch = answer.member_epoch
            if answer.assignment is not None:
                has = sum(len(given.partitions) for given in answer.assignment.topic_partitions)
            return has == partitions

        eventually(complete)
        beat(LEAVE_EPOCH)


def lag(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """Partition to what is left of it; -1 while nobody can tell."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[asked])
    try:
        with Client(bootstrap, timeout_ms=ANSWER_MS) as client:
            coordinators = Coordinators(client, CoordinatorType.GROUP)
            answer = coordinators.ask(
                group, lambda connection: connection.call(request, DescribeShareGroupOffsetsResponse)
            )
    except ClientError:
        return {0: -1}
    (found,) = answer.groups
    if found.error_code:
        return {0: -1}
    return {
        one.partition_index: one.lag if one.error_code == 0 else -1
        for described in found.topics
        if described.topic_name == topic
        for one in described.partitions
    } or {0: -1}
