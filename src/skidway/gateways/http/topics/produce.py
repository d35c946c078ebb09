"""`POST /v1/topics/{topic}/produce`: records as JSON, appended by the leaders of their partitions (`production`).

With the header `Idempotency-Key` a request that is sent again is written once (`once`). Without it, a client that sends
again what was refused as `leader_lost` may have it twice.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.replies import Reply, json_reply
from skidway.gateways.http.topics.decoding import decode_records
from skidway.gateways.http.topics.leaders import create_topic, may_create
from skidway.gateways.http.topics.once import once_in_steps, once_of
from skidway.gateways.http.topics.production import Production, Round
from skidway.gateways.http.topics.shapes import ProduceAnswer, ProduceBody, RawBody, RecordToProduce
from skidway.gateways.http.topics.values import bytes_of, headers_of
from skidway.metadata.topic_names import is_internal
from skidway.steps import Steps

BODY_AT_ONCE = 64 << 10
RECORDS_AT_ONCE = 100
_BODY = msgspec.json.Decoder(ProduceBody)
_RAW_BODY = msgspec.json.Decoder(RawBody)
_RECORD = msgspec.json.Decoder(RecordToProduce)


def check_writable(name: str) -> None:
    if is_internal(name):
        raise Problem(403, "internal_topic", f"{name} is kept by the brokers; nobody else writes to it")


def produce(call: HttpCall) -> Reply | Steps[Reply] | None:
    (name,) = call.values
    check_writable(name)
    if len(call.body) > BODY_AT_ONCE or may_create(call, name):
        call.body = bytes(call.body)
        return _produce_in_steps(call, name)
    records = call.decode(_BODY).records
    production = Production(call, name, once_of(call))
    if len(records) > RECORDS_AT_ONCE:
        # What they refer to is read over as soon as this returns.
        call.body = bytes(call.body)
        return _produce_many(production, call.decode(_BODY).records)
    for record in records:
        _add(production, record)
    production.check()
    if production.rounds > 1:
        return _send_all(production)

    def done(_: None) -> None:
        try:
            call.reply(_answer(production))
        except Problem as problem:
            call.refuse(problem)

    Round(production, done).send(production.round(0))
    return None


def _answer(production: Production) -> Reply:
    return json_reply(ProduceAnswer(production.answer()))


def _produce_in_steps(call: HttpCall, name: str) -> Steps[Reply]:
    records = yield from decode_records(call, _BODY, _RAW_BODY, _RECORD)
    if may_create(call, name):
        yield from create_topic(call, name)
    once = yield from once_in_steps(call)
    return (yield from _produce_many(Production(call, name, once), records))


def _produce_many(production: Production, records: list[RecordToProduce]) -> Steps[Reply]:
    for record in records:
        _add(production, record)
        yield None
    production.check()
    return (yield from _send_all(production))


def _send_all(production: Production) -> Steps[Reply]:
    yield from production.send_all()
    return _answer(production)


def _add(production: Production, given: RecordToProduce) -> None:
    try:
        key = bytes_of("key", given.key, given.key_base64)
        value = bytes_of("value", given.value, given.value_base64)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Problem(400, "bad_json", f"{error} in `$.records[{len(production)}]`") from None
    index = None if given.partition is UNSET else given.partition
    timestamp = None if given.timestamp is UNSET else given.timestamp
    production.add(key, value, headers_of(given), index, timestamp)
