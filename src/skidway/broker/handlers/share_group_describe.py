"""ShareGroupDescribe (key 77), v1: share groups, and what each member has.

GROUP_ID_NOT_FOUND for a group that is not there or of another type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.many_groups import describe_each
from skidway.groups.share.operations import DescribedShareGroup, DescribedShareMember, ShareDescribe
from skidway.steps import Steps
from skidway.wire.schema.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

ASSIGNOR = "simple"
PARTITIONS_PER_ELEMENT = 8
"""A partition is a number and no more."""


def handle(node: Services, call: Call, request: ShareGroupDescribeRequest) -> Steps[None]:
    response = ShareGroupDescribeResponse()
    yield from describe_each(
        node,
        request,
        response.groups,
        lambda name: DescribedGroup(group_id=name),
        ShareDescribe,
        _size,
        _fill,
        lambda: call.reply(response),
    )


def _size(group: DescribedShareGroup) -> tuple[int, int]:
    return sum(map(_elements, group.members)), _characters(group)


def _elements(member: DescribedShareMember) -> int:
    assigned = sum(len(partitions) for _, _, partitions in member.assignment)
    return 1 + len(member.topics) + assigned // PARTITIONS_PER_ELEMENT


def _characters(group: DescribedShareGroup) -> int:
    return sum(len(name) for member in group.members for name in member.topics)


def _fill(entry: DescribedGroup, reply: DescribedShareGroup) -> None:
    entry.group_state = reply.state
    entry.group_epoch = reply.group_epoch
    entry.assignment_epoch = reply.assignment_epoch
    entry.assignor_name = ASSIGNOR
    entry.members = [_member(member) for member in reply.members]


def _member(member: DescribedShareMember) -> Member:
    return Member(
        member.member_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        member.topics,
        Assignment([TopicPartitions(topic_id, name, numbers) for topic_id, name, numbers in member.assignment]),
    )
