"""Metadata (key 3), v0–v13.

Brokers, and of each topic asked for: its id and who leads its partitions. No list means all topics (v0: an empty
list does). An unknown topic is created when the request and the broker allow that; the answer then waits until the
topic is there, so the client need not come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.authorized import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from skidway.errors import ErrorCode
from skidway.metadata import image as metadata
from skidway.metadata.topic_names import is_internal, is_legal
from skidway.wire.schema.create_topics import CreatableTopic
from skidway.wire.schema.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

NO_ID = bytes(16)
IDS_SINCE = 12


def handle(node: Node, call: Call, request: MetadataRequest) -> MetadataResponse | None:
    missing = _to_create(node, request)
    if not missing:
        return _response(node, call, request, {})

    def answer(failed: dict[str, tuple[ErrorCode, str]]) -> None:
        call.reply(_response(node, call, request, {name: code for name, (code, _) in failed.items()}))

    node.create_missing_topics([CreatableTopic(name, -1, -1) for name in missing], call.now_ms, answer)
    return None


def _to_create(node: Node, request: MetadataRequest) -> list[str]:
    if not (request.topics and request.allow_auto_topic_creation and node.settings.auto_create_topics):
        return []
    names = dict.fromkeys(topic.name for topic in request.topics if topic.name is not None)
    missing = [name for name in names if name not in node.image.topics and is_legal(name)]
    # The rest is unknown for now; a client that really wants it asks again.
    return missing[: node.limits.topics_auto_created_max]


def _response(node: Node, call: Call, request: MetadataRequest, failed: dict[str, ErrorCode]) -> MetadataResponse:
    all_topics = request.topics is None or (call.version == 0 and not request.topics)
    with_operations = request.include_topic_authorized_operations
    if all_topics:
        topics = [_topic(node, call, topic, with_operations) for topic in node.image.topics.values()]
    else:
        # Each once: a topic of many partitions, named a thousand times, would be a reply of gigabytes.
        once = {(asked.name, asked.topic_id): asked for asked in request.topics or ()}
        topics = [
            _refused(asked)
            if call.version < IDS_SINCE and (asked.name is None or asked.topic_id != NO_ID)
            else _asked_topic(node, call, asked, failed, with_operations)
            for asked in once.values()
        ]
    return MetadataResponse(
        brokers=_brokers(node),
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _brokers(node: Node) -> list[MetadataResponseBroker]:
    """Those that are up. If none is, all that are known: after all nodes were killed there is a moment in which some
    answer and none is unfenced yet. Told of no broker, librdkafka forgets those it knew, and may never find back.
    """
    known = node.image.brokers.values()
    named = [broker for broker in known if not broker.fenced] or known
    found = [
        MetadataResponseBroker(broker.id, broker.endpoints[0].host, broker.endpoints[0].port, broker.rack)
        for broker in named
    ]
    settings = node.settings
    if not found and settings.is_broker:
        found.append(MetadataResponseBroker(settings.node_id, settings.host, settings.port, settings.rack))
    return found


def _asked_topic(
    node: Node, call: Call, asked: MetadataRequestTopic, failed: dict[str, ErrorCode], with_operations: bool
) -> MetadataResponseTopic:
    operations = TOPIC_OPERATIONS if with_operations else NOT_ASKED
    if asked.name is None or asked.topic_id != NO_ID:
        by_id = node.image.topics_by_id.get(asked.topic_id)
        if by_id is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
        return _topic(node, call, by_id, with_operations)
    topic = node.image.topics.get(asked.name)
    if topic is not None:
        return _topic(node, call, topic, with_operations)
    if not is_legal(asked.name):
        return MetadataResponseTopic(
            ErrorCode.INVALID_TOPIC_EXCEPTION, asked.name, topic_authorized_operations=operations
        )
    code = failed.get(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return MetadataResponseTopic(code, asked.name, topic_authorized_operations=operations)


def _refused(asked: MetadataRequestTopic) -> MetadataResponseTopic:
    """Versions 10 and 11 have a field for ids, but cannot be asked by them: their answers need a name."""
    return MetadataResponseTopic(ErrorCode.INVALID_REQUEST, asked.name or "", asked.topic_id)


def _topic(node: Node, call: Call, topic: metadata.Topic, with_operations: bool) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        0,
        topic.name,
        topic.id,
        is_internal(topic.name),
        [_partition(node, call, topic, partition) for partition in topic.partitions],
        TOPIC_OPERATIONS if with_operations else NOT_ASKED,
    )


def _partition(
    node: Node, call: Call, topic: metadata.Topic, partition: metadata.Partition
) -> MetadataResponsePartition:
    leader = node.hosting.leader_of(topic, partition.index)
    if node.peers.is_lost(leader, call.now_ms):
        # Clients that are sent back to a leader that just died ask again late; without a leader they ask soon.
        leader = metadata.NO_LEADER
    return MetadataResponsePartition(
        ErrorCode.LEADER_NOT_AVAILABLE if leader == metadata.NO_LEADER else 0,
        partition.index,
        leader,
        partition.leader_epoch,
        partition.replicas,
        partition.isr,
        node.hosting.offline_replicas_of(topic, partition.index),
    )
