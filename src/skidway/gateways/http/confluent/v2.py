"""Version 2: `POST /topics/{topic}` with the embedded formats json and binary, `GET /topics`, `GET /topics/{topic}`.

A value in the format json is stored as compact JSON, a text with its quotes; null is no value. There is no schema
registry, so the formats avro, protobuf and jsonschema are refused. Consumers of this API are not served.
"""

from __future__ import annotations

import binascii

import msgspec
from msgspec import UNSET, Raw, UnsetType

from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.confluent.refusals import KIND_V2
from skidway.gateways.http.confluent.shapes import (
    BodyV2,
    OffsetV2,
    PartitionV2,
    ProducedV2,
    RawBodyV2,
    RecordV2,
    ReplicaV2,
    TopicV2,
)
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.replies import NO_STORE, Reply
from skidway.gateways.http.topics.decoding import decode_records
from skidway.gateways.http.topics.leaders import create_topic, find_topic, leader_of, may_create
from skidway.gateways.http.topics.once import once_in_steps
from skidway.gateways.http.topics.produce import check_writable
from skidway.gateways.http.topics.production import Production
from skidway.gateways.http.topics.shapes import Produced
from skidway.gateways.http.topics.values import check_depth
from skidway.steps import Steps, sorted_names

KIND_JSON = b"application/vnd.kafka.json.v2+json"
KIND_BINARY = b"application/vnd.kafka.binary.v2+json"
KINDS = (KIND_JSON, KIND_BINARY)
NOT_AGAIN, AGAIN = 1, 2
_BODY = msgspec.json.Decoder(BodyV2)
_RAW_BODY = msgspec.json.Decoder(RawBodyV2)
_RECORD = msgspec.json.Decoder(RecordV2)
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def produce(call: HttpCall) -> Steps[Reply]:
    (name,) = call.values
    check_writable(name)
    call.body = bytes(call.body)
    records = yield from decode_records(call, _BODY, _RAW_BODY, _RECORD, KINDS)
    if may_create(call, name):
        yield from create_topic(call, name)
    production = Production(call, name, (yield from once_in_steps(call)))
    binary = call.content_type == KIND_BINARY
    for record in records:
        key, value = bytes_of("key", record.key, binary), bytes_of("value", record.value, binary)
        production.add(key, value, (), _none(record.partition), _none(record.timestamp))
        yield None
    production.check()
    yield from production.send_all()
    return Reply(200, KIND_V2, _encode(ProducedV2([_offset(each) for each in production.answer()])))


def _none(value: int | UnsetType | None) -> int | None:
    return None if value is UNSET else value


def bytes_of(name: str, given: Raw | UnsetType, binary: bool) -> bytes | None:
    """Raises Problem."""
    raw = b"null" if given is UNSET else bytes(given)
    if raw == b"null":
        return None
    if not binary:
        check_depth(raw)
        try:
            raw.decode()
            return msgspec.json.format(raw, indent=-1)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Problem(400, "bad_json", str(error)) from None
    try:
        return from_base64(name, _decode_text(raw))
    except msgspec.DecodeError as error:
        raise Problem(422, "bad_value", f"a {name} must be text in base64: {error}") from None


def from_base64(name: str, text: str) -> bytes:
    try:
        return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise Problem(422, "bad_value", f"{name} is not base64") from None


def _offset(produced: Produced) -> OffsetV2:
    if produced.error is UNSET:
        return OffsetV2(produced.partition, None if produced.offset is UNSET else produced.offset)
    code = AGAIN if produced.error.retryable else NOT_AGAIN
    return OffsetV2(produced.partition, None, code, produced.error.detail)


def list_topics(call: HttpCall) -> Steps[Reply]:
    names = yield from sorted_names(call.site.node.image.topics)
    return Reply(200, KIND_V2, _encode(names), NO_STORE)


def describe_topic(call: HttpCall) -> Steps[Reply]:
    (name,) = call.values
    topic = find_topic(call, name)
    partitions: list[PartitionV2] = []
    for partition in list(topic.partitions):
        leader = leader_of(call, topic, partition.index)
        replicas = [ReplicaV2(each, each == leader, each in partition.isr) for each in partition.replicas]
        partitions.append(PartitionV2(partition.index, leader, replicas))
        yield None
    configs = dict(sorted(call.site.node.image.topic_config(name).items()))
    return Reply(200, KIND_V2, _encode(TopicV2(name, configs, partitions)), NO_STORE)
