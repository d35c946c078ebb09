"""Metadata (key 3), v0–v13.

Brokers, and of each topic asked for: its id and who leads its partitions. No list means all topics (v0: an empty
list does). An unknown topic is created when the request and the broker allow that; the answer then waits until the
topic is there, so the client need not come back.

Brokers have the addresses of the listener by which the client came, and those without such a listener are left out.
Of a partition that one of those leads, the client hears LISTENER_NOT_FOUND (before v6 LEADER_NOT_AVAILABLE) and no
leader; their replicas count as offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.authorized import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from skidway.broker.api.call import answer_later
from skidway.errors import ErrorCode
from skidway.metadata import image as metadata
from skidway.metadata.topic_names import is_internal, is_legal
from skidway.steps import Steps
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
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

NO_ID = bytes(16)
IDS_SINCE = 12
LISTENER_ERROR_SINCE = 6
PER_STEP = 10
"""Topics, and partitions of one of them. A request for few is over in its first step."""


def handle(node: Services, call: Call, request: MetadataRequest) -> Steps[MetadataResponse | None]:
    missing = yield from _to_create(node, request)
    if not missing:
        return (yield from _response(node, call, request, {}))

    def answer(failed: dict[str, tuple[ErrorCode, str]]) -> None:
        codes = {name: code for name, (code, _) in failed.items()}
        answer_later(node.world.slices, call, _response(node, call, request, codes))

    node.controller.create_missing_topics([CreatableTopic(name, -1, -1) for name in missing], call.now_ms, answer)
    return None


def _to_create(node: Services, request: MetadataRequest) -> Steps[list[str]]:
    if not (request.topics and request.allow_auto_topic_creation and node.world.settings.auto_create_topics):
        return []
    image, missing_max = node.image, node.world.limits.topics_auto_created_max
    missing: dict[str, None] = {}
    for number, topic in enumerate(request.topics, 1):
        if len(missing) >= missing_max:
            break  # the rest is unknown for now; a client that really wants it asks again
        name = topic.name
        if name is not None and name not in image.topics and is_legal(name):
            missing[name] = None
        if not number % PER_STEP:
            yield None
    return list(missing)


def _response(
    node: Services, call: Call, request: MetadataRequest, failed: dict[str, ErrorCode]
) -> Steps[MetadataResponse]:
    all_topics = request.topics is None or (call.version == 0 and not request.topics)
    with_operations = request.include_topic_authorized_operations
    topics: list[MetadataResponseTopic] = []
    if all_topics:
        image = node.image
        for number, name in enumerate(list(image.topics), 1):
            topic = image.topics.get(name)
            if topic is not None:
                topics.append((yield from _topic(node, call, topic, with_operations)))
            if not number % PER_STEP:
                yield None
    else:
        # Each once: a topic of many partitions, named a thousand times, would be a reply of gigabytes.
        once: dict[tuple[str | None, bytes], MetadataRequestTopic] = {}
        for number, asked in enumerate(request.topics or (), 1):
            once[asked.name, asked.topic_id] = asked
            if not number % PER_STEP:
                yield None
        for number, asked in enumerate(once.values(), 1):
            if call.version < IDS_SINCE and (asked.name is None or asked.topic_id != NO_ID):
                topics.append(_refused(asked))
            else:
                topics.append((yield from _asked_topic(node, call, asked, failed, with_operations)))
            if not number % PER_STEP:
                yield None
    return MetadataResponse(
        brokers=_brokers(node, call.caller.listener),
        cluster_id=node.cluster_id,
        controller_id=node.controller.node_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _brokers(node: Services, listener: str | None) -> list[MetadataResponseBroker]:
    """Those that are up. If none is, all that are known: after all nodes were killed there is a moment in which some
    answer and none is unfenced yet. Told of no broker, librdkafka forgets those it knew, and may never find back.
    """
    known = node.image.brokers.values()
    named = [broker for broker in known if not broker.fenced] or known
    found = [
        MetadataResponseBroker(broker.id, endpoint.host, endpoint.port, broker.rack)
        for broker in named
        if (endpoint := broker.endpoint(listener)) is not None
    ]
    if found:
        return found
    settings = node.world.settings
    own = settings.listeners.find(listener)
    if settings.is_broker and own is not None:
        found.append(MetadataResponseBroker(settings.node_id, own.advertised.host, own.advertised.port, settings.rack))
    return found


def _asked_topic(
    node: Services, call: Call, asked: MetadataRequestTopic, failed: dict[str, ErrorCode], with_operations: bool
) -> Steps[MetadataResponseTopic]:
    operations = TOPIC_OPERATIONS if with_operations else NOT_ASKED
    image = node.image
    if asked.name is None or asked.topic_id != NO_ID:
        by_id = image.topics_by_id.get(asked.topic_id)
        if by_id is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
        return (yield from _topic(node, call, by_id, with_operations))
    topic = image.topics.get(asked.name)
    if topic is not None:
        return (yield from _topic(node, call, topic, with_operations))
    if not is_legal(asked.name):
        return MetadataResponseTopic(
            ErrorCode.INVALID_TOPIC_EXCEPTION, asked.name, topic_authorized_operations=operations
        )
    code = failed.get(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return MetadataResponseTopic(code, asked.name, topic_authorized_operations=operations)


def _refused(asked: MetadataRequestTopic) -> MetadataResponseTopic:
    """Versions 10 and 11 have a field for ids, but cannot be asked by them: their answers need a name."""
    return MetadataResponseTopic(ErrorCode.INVALID_REQUEST, asked.name or "", asked.topic_id)


def _topic(node: Services, call: Call, topic: metadata.Topic, with_operations: bool) -> Steps[MetadataResponseTopic]:
    partitions = []
    hidden = node.image.brokers_without(call.caller.listener)
    for number, partition in enumerate(topic.partitions, 1):
        partitions.append(_partition(node, call, topic, partition, hidden))
        if not number % PER_STEP:
            yield None
    operations = TOPIC_OPERATIONS if with_operations else NOT_ASKED
    return MetadataResponseTopic(0, topic.name, topic.id, is_internal(topic.name), partitions, operations)


def _partition(
    node: Services, call: Call, topic: metadata.Topic, partition: metadata.Partition, hidden: set[int]
) -> MetadataResponsePartition:
    whereabouts = node.hosting.whereabouts
    leader = whereabouts.leader_of(topic, partition.index)
    offline = whereabouts.offline_replicas_of(topic, partition.index)
    if node.peers.is_lost(leader, call.now_ms):
        # Clients that are sent back to a leader that just died ask again late; without a leader they ask soon.
        leader = metadata.NO_LEADER
    error = ErrorCode.LEADER_NOT_AVAILABLE if leader == metadata.NO_LEADER else ErrorCode.NONE
    if hidden:
        offline += [replica for replica in partition.replicas if replica in hidden and replica not in offline]
    if leader in hidden:
        leader = metadata.NO_LEADER
        error = ErrorCode.LISTENER_NOT_FOUND if call.version >= LISTENER_ERROR_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error,
        partition.index,
        leader,
        partition.leader_epoch,
        partition.replicas,
        partition.isr,
        offline,
    )
