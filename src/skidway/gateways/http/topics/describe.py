"""`GET /v1/topics` and `GET /v1/topics/{topic}`."""

from __future__ import annotations

import msgspec

from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.replies import JSON, NO_STORE, Reply, json_reply
from skidway.gateways.http.topics.leaders import find_topic, leader_of
from skidway.gateways.http.topics.shapes import Partition, Topic, TopicName
from skidway.metadata.topic_names import is_internal
from skidway.steps import Steps, sorted_names

_encode = msgspec.json.Encoder().encode


def list_topics(call: HttpCall) -> Steps[Reply]:
    image = call.site.node.image
    names = yield from sorted_names(image.topics)
    found: list[bytes] = []
    for name in names:
        if (topic := image.topics.get(name)) is not None:
            found.append(_encode(TopicName(name, len(topic.partitions), is_internal(name))))
        yield None
    return Reply(200, JSON, b'{"topics":[' + b",".join(found) + b"]}", NO_STORE)


def describe_topic(call: HttpCall) -> Steps[Reply]:
    (name,) = call.values
    topic = find_topic(call, name)
    partitions: list[Partition] = []
    for partition in list(topic.partitions):
        leader = leader_of(call, topic, partition.index)
        partitions.append(Partition(partition.index, leader, partition.replicas, partition.isr))
        yield None
    return json_reply(Topic(name, topic.id.hex(), is_internal(name), partitions), headers=NO_STORE)
