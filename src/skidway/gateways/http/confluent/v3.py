"""Version 3: `POST /v3/clusters/{cluster}/topics/{topic}/records` and `GET /v3/clusters`.

A body has one record, or several one behind the other, as the streaming mode sends them; each has a report, in their
order. The request is answered when all of it has come: a stream that never ends has no answer here.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.confluent.refusals import CODES_V3, RETRYABLE
from skidway.gateways.http.confluent.shapes import (
    ClustersV3,
    ClusterV3,
    DataV3,
    Failure,
    ListV3,
    RecordV3,
    Related,
    ReportV3,
    ResourceV3,
    SizeV3,
)
from skidway.gateways.http.confluent.v2 import bytes_of, from_base64
from skidway.gateways.http.dates import from_rfc3339, rfc3339
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.replies import JSON, NO_STORE, Reply, json_reply
from skidway.gateways.http.topics.decoding import decode_concatenated
from skidway.gateways.http.topics.leaders import create_topic, may_create
from skidway.gateways.http.topics.once import once_in_steps
from skidway.gateways.http.topics.produce import check_writable
from skidway.gateways.http.topics.production import Production
from skidway.gateways.http.topics.shapes import Produced
from skidway.gateways.http.topics.values import HEADERS_MAX
from skidway.records.record import Headers
from skidway.steps import Steps

DONE = 200
_RECORD = msgspec.json.Decoder(RecordV3)
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


class _Sent(msgspec.Struct):
    """What a report repeats of a record."""

    timestamp: int
    key: SizeV3 | UnsetType
    value: SizeV3 | UnsetType


def produce(call: HttpCall) -> Steps[Reply]:
    cluster, name = call.values
    if cluster != call.site.node.cluster_id:
        raise Problem(404, "no_such_cluster", f"this is the cluster {call.site.node.cluster_id}")
    check_writable(name)
    call.body = bytes(call.body)
    records = yield from decode_concatenated(call, _RECORD)
    if not records:
        raise Problem(400, "bad_json", "the body is empty")
    if may_create(call, name):
        yield from create_topic(call, name)
    production = Production(call, name, (yield from once_in_steps(call)))
    sent: list[_Sent] = []
    for record in records:
        sent.append(_add(production, record))
        yield None
    production.check()
    yield from production.send_all()
    reports: list[bytes] = []
    for produced, about in zip(production.answer(), sent, strict=True):
        reports.append(_encode(_report(cluster, name, produced, about)))
        yield None
    return Reply(200, JSON, b"\r\n".join(reports))


def _add(production: Production, record: RecordV3) -> _Sent:
    key, value = _bytes("key", record.key), _bytes("value", record.value)
    timestamp = production.wall_ms
    if record.timestamp is not UNSET and record.timestamp is not None:
        try:
            timestamp = from_rfc3339(record.timestamp)
            if timestamp < 0:
                raise ValueError(record.timestamp)
        except ValueError:
            text = f"a timestamp must look like 2026-11-18T06:30:00Z, from 1970 on; got {record.timestamp[:50]!r}"
            raise Problem(422, "bad_value", text) from None
    index = None if record.partition_id is UNSET else record.partition_id
    production.add(key, value, _headers(record), index, timestamp)
    return _Sent(timestamp, _size(record.key, key), _size(record.value, value))


def _bytes(name: str, given: DataV3 | UnsetType | None) -> bytes | None:
    if given is UNSET or given is None or given.data is UNSET:
        return None
    if given.type != "STRING":
        return bytes_of(name, given.data, given.type == "BINARY")
    if bytes(given.data) == b"null":
        return None
    try:
        return _decode_text(bytes(given.data)).encode()
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Problem(422, "bad_value", f"a {name} of type STRING must be text: {error}") from None


def _headers(record: RecordV3) -> Headers:
    if record.headers is UNSET:
        return ()
    if len(record.headers) > HEADERS_MAX:
        raise Problem(
            422, "bad_value", f"a record has {len(record.headers)} headers; at most {HEADERS_MAX} are allowed"
        )
    return [
        (header.name, None if header.value is None else from_base64("the value of a header", header.value))
        for header in record.headers
    ]


def _size(given: DataV3 | UnsetType | None, data: bytes | None) -> SizeV3 | UnsetType:
    return UNSET if given is UNSET or given is None else SizeV3(given.type, len(data or b""))


def _report(cluster: str, name: str, produced: Produced, sent: _Sent) -> ReportV3 | Failure:
    if produced.error is not UNSET:
        code = RETRYABLE if produced.error.retryable else CODES_V3.get(produced.error.code, 400)
        return Failure(code, produced.error.detail)
    assert produced.offset is not UNSET, "what was not refused was written"
    when = rfc3339(sent.timestamp)
    return ReportV3(DONE, cluster, name, produced.partition, produced.offset, when, sent.key, sent.value)


def list_clusters(call: HttpCall) -> Reply:
    node = call.site.node
    host = call.head.headers.get(b"host", b"localhost").decode("latin-1")
    base = f"http://{host}/v3/clusters"
    own = f"{base}/{node.cluster_id}"
    cluster = ClusterV3(
        "KafkaCluster",
        ResourceV3(own, f"crn:///kafka={node.cluster_id}"),
        node.cluster_id,
        Related(f"{own}/brokers/{node.quorum.leader_id}"),
        Related(f"{own}/acls"),
        Related(f"{own}/brokers"),
        Related(f"{own}/broker-configs"),
        Related(f"{own}/consumer-groups"),
        Related(f"{own}/topics"),
        Related(f"{own}/topics/-/partitions/-/reassignment"),
    )
    return json_reply(ClustersV3("KafkaClusterList", ListV3(base), [cluster]), headers=NO_STORE)
