"""DescribeShareGroupOffsets (key 90), v0–v1: where share groups stand, and how far behind they are (v1).

Answered by the group's coordinator, which asks the share coordinators for the start offsets and the leaders for the
ends. Of a partition that the group has never read from: start offset -1, and no error. The lag is what was neither
delivered for good nor given up: -1 while nobody knows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from skidway.broker.api.share_requests import share_work
from skidway.broker.coordinators.share_work import LATEST
from skidway.errors import ErrorCode, PolicyViolation, ProtocolError
from skidway.groups.share.operations import KnownShares, StateItem
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.operations import Summary
from skidway.steps import Question, Steps
from skidway.wire.schema.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

GROUPS_MAX = 100
"""In one request: each is asked about by itself."""
PARTITIONS_MAX = 10_000
UNKNOWN = -1

Entry = DescribeShareGroupOffsetsResponsePartition


def handle(
    node: Services, call: Call, request: DescribeShareGroupOffsetsRequest
) -> Steps[DescribeShareGroupOffsetsResponse]:
    response = DescribeShareGroupOffsetsResponse()
    for number, asked in enumerate(request.groups):
        group = DescribeShareGroupOffsetsResponseGroup(asked.group_id)
        response.groups.append(group)
        try:
            if number >= GROUPS_MAX:
                raise PolicyViolation(f"offsets of more than {GROUPS_MAX} share groups in one request")
            yield from _describe(node, asked, group)
        except ProtocolError as error:
            group.error_code, group.error_message = error.code, error.message
        yield None
    return response


def _describe(
    node: Services, asked: DescribeShareGroupOffsetsRequestGroup, group: DescribeShareGroupOffsetsResponseGroup
) -> Steps[None]:
    known = yield Question(partial(_ask_group, node, asked.group_id))
    if isinstance(known, ProtocolError):
        raise known
    entries: dict[tuple[bytes, int], Entry] = {}
    if asked.topics is None:
        for topic_id, name, numbers in known:
            partitions = [Entry(number, UNKNOWN, 0) for number in numbers]
            group.topics.append(DescribeShareGroupOffsetsResponseTopic(name, topic_id, partitions))
            entries |= {(topic_id, entry.partition_index): entry for entry in partitions}
            yield None
    else:
        for topic in asked.topics:
            known_topic = node.image.topics.get(topic.topic_name)
            topic_id = bytes(16) if known_topic is None else known_topic.id
            partitions = [Entry(number, UNKNOWN, 0) for number in topic.partitions]
            group.topics.append(DescribeShareGroupOffsetsResponseTopic(topic.topic_name, topic_id, partitions))
            count = 0 if known_topic is None else len(known_topic.partitions)
            for entry in partitions:
                if 0 <= entry.partition_index < count:
                    entries[topic_id, entry.partition_index] = entry
            yield None
    if len(entries) > PARTITIONS_MAX:
        raise PolicyViolation(f"more than {PARTITIONS_MAX} partitions of one share group: ask for some of them")
    summaries = yield Question(partial(_ask_summaries, node, asked.group_id, list(entries)))
    ends = yield Question(partial(_ask_ends, node, list(entries)))
    for place, entry in entries.items():
        _fill(entry, summaries[place], ends.get(place, UNKNOWN))
        yield None


def _ask_group(node: Services, group_id: str, answer: Any) -> None:
    node.groups.submit(group_id, KnownShares(group_id), node.world.clock.monotonic_ms(), answer)


def _ask_summaries(node: Services, group_id: str, places: list[tuple[bytes, int]], answer: Any) -> None:
    found: dict[tuple[bytes, int], Any] = {}
    missing = len(places)
    if not missing:
        answer(found)

    def take(place: tuple[bytes, int], reply: Summary | ProtocolError) -> None:
        nonlocal missing
        found[place] = reply
        missing -= 1
        if missing == 0:
            answer(found)

    now_ms = node.world.clock.monotonic_ms()
    for place in places:
        node.share_states.read_summary(ShareKey(group_id, *place), now_ms, partial(take, place))


def _ask_ends(node: Services, places: list[tuple[bytes, int]], answer: Any) -> None:
    share_work(node).find([StateItem(*place) for place in places], LATEST, answer)


def _fill(entry: Entry, summary: Summary | ProtocolError, end: int | ErrorCode) -> None:
    if isinstance(summary, ProtocolError):
        entry.error_code, entry.error_message = summary.code, summary.message
        return
    entry.start_offset, entry.leader_epoch = summary.start_offset, max(summary.leader_epoch, 0)
    known = summary.start_offset >= 0 and summary.complete_count >= 0
    if known and not isinstance(end, ErrorCode) and end >= 0:
        entry.lag = max(end - summary.start_offset - summary.complete_count, 0)
