"""ConsumerGroupDescribe (key 69), v0–v1: groups of the new protocol, what each member has and is to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.many_groups import describe_each
from skidway.groups.consumer.operations import ConsumerDescribe, DescribedConsumer, DescribedConsumerGroup
from skidway.steps import Steps
from skidway.wire.schema.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
PARTITIONS_PER_ELEMENT = 8
"""A partition is a number and no more."""


def handle(node: Services, call: Call, request: ConsumerGroupDescribeRequest) -> Steps[None]:
    response = ConsumerGroupDescribeResponse()
    yield from describe_each(
        node,
        request,
        response.groups,
        lambda name: DescribedGroup(group_id=name),
        ConsumerDescribe,
        _size,
        _fill,
        lambda: call.reply(response),
    )


def _size(group: DescribedConsumerGroup) -> tuple[int, int]:
    return sum(map(_elements, group.members)), _characters(group)


def _elements(member: DescribedConsumer) -> int:
    assigned = sum(len(partitions) for _, _, partitions in (*member.assignment, *member.target_assignment))
    return 1 + len(member.topics) + assigned // PARTITIONS_PER_ELEMENT


def _characters(group: DescribedConsumerGroup) -> int:
    return sum(len(name) for member in group.members for name in (*member.topics, member.regex or ""))


def _fill(entry: DescribedGroup, reply: DescribedConsumerGroup) -> None:
    entry.group_state = reply.state
    entry.group_epoch = reply.group_epoch
    entry.assignment_epoch = reply.assignment_epoch
    entry.assignor_name = reply.assignor
    entry.members = [_member(member) for member in reply.members]


def _member(member: DescribedConsumer) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        member.topics,
        member.regex,
        _assignment(member.assignment),
        _assignment(member.target_assignment),
        CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(topics: list[tuple[bytes, str, list[int]]]) -> Assignment:
    return Assignment([TopicPartitions(topic_id, name, partitions) for topic_id, name, partitions in topics])
