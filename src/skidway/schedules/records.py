"""Records of `__queue_schedule` <-> bytes.

Three kinds, by the version of the key: 0 what was asked for, 1 when a recurring schedule is due next, 2 what is being
delivered to a queue. Values have version 0; a key without a value takes away what it names. What should be readable
and is not raises StorageError.
"""

from collections.abc import Callable

import msgspec

from skidway.errors import ProtocolError, StorageError
from skidway.ports import Buffer
from skidway.records.record import Record
from skidway.runtime.log_store import Format
from skidway.schedules.schedule import Definition, Plan, Planned, ScheduledMessage
from skidway.wire.compile import Codec
from skidway.wire.message import Message
from skidway.wire.registry import codec, encoded
from skidway.wire.schema import schedule_records as wire

DEFINITION_TYPE, PROGRESS_TYPE, PLAN_TYPE = 0, 1, 2
VALUE_VERSION = 0
NOWHERE = -1

# Said once: the cache in front of `codec` hides its type.
_codec: Callable[[type[Message]], Codec[Message]] = codec


class Defined(msgspec.Struct):
    topic_id: bytes
    id: str
    definition: Definition | None
    offset: int = NOWHERE
    """Where it lies in the log, as soon as it is there."""


class Progressed(msgspec.Struct):
    topic_id: bytes
    id: str
    due_ms: int | None


class PlanMade(msgspec.Struct):
    topic_id: bytes
    plan: Plan | None


ScheduleRecord = Defined | Progressed | PlanMade


def encode(record: ScheduleRecord) -> tuple[bytes, bytes | None]:
    match record:
        case Defined(topic_id, id_, definition):
            value = None if definition is None else _encode(_definition_to_wire(definition), VALUE_VERSION)
            return _encode(wire.ScheduleKey(topic_id, id_), DEFINITION_TYPE), value
        case Progressed(topic_id, id_, due_ms):
            value = None if due_ms is None else _encode(wire.ScheduleProgressValue(due_ms), VALUE_VERSION)
            return _encode(wire.ScheduleProgressKey(topic_id, id_), PROGRESS_TYPE), value
        case PlanMade(topic_id, plan):
            value = None if plan is None else _encode(_plan_to_wire(plan), VALUE_VERSION)
            return _encode(wire.SchedulePlanKey(topic_id), PLAN_TYPE), value


def decode(key: Buffer, value: Buffer | None) -> ScheduleRecord | None:
    """None for a record of a kind that is not known here."""
    kind = int.from_bytes(key[:2], "big", signed=True)
    try:
        if kind == DEFINITION_TYPE:
            named = _decode(wire.ScheduleKey, key)
            assert isinstance(named, wire.ScheduleKey)
            return Defined(bytes(named.topic_id), named.id, None if value is None else _definition(value))
        if kind == PROGRESS_TYPE:
            moved = _decode(wire.ScheduleProgressKey, key)
            assert isinstance(moved, wire.ScheduleProgressKey)
            return Progressed(bytes(moved.topic_id), moved.id, None if value is None else _due_ms(value))
        if kind == PLAN_TYPE:
            planned = _decode(wire.SchedulePlanKey, key)
            assert isinstance(planned, wire.SchedulePlanKey)
            return PlanMade(bytes(planned.topic_id), None if value is None else _plan(value))
    except (ProtocolError, KeyError, ValueError) as error:
        raise StorageError(f"unreadable schedule record: {error}") from error
    return None


def _definition_to_wire(definition: Definition) -> wire.ScheduleValue:
    message = definition.message
    return wire.ScheduleValue(
        definition.created_ms,
        definition.due_ms,
        definition.cron,
        definition.zone,
        message.key_hash,
        message.key,
        message.value,
        [wire.ScheduledHeader(name, value) for name, value in message.headers],
    )


def _definition(value: Buffer) -> Definition:
    stored = _decode(wire.ScheduleValue, value)
    assert isinstance(stored, wire.ScheduleValue)
    headers = tuple((each.name, _bytes(each.value)) for each in stored.headers)
    message = ScheduledMessage(_bytes(stored.key), _bytes(stored.value), headers, stored.key_hash)
    return Definition(stored.created_ms, stored.due_ms, message, stored.cron, stored.zone)


def _bytes(value: Buffer | None) -> bytes | None:
    return None if value is None else bytes(value)


def _due_ms(value: Buffer) -> int:
    stored = _decode(wire.ScheduleProgressValue, value)
    assert isinstance(stored, wire.ScheduleProgressValue)
    return stored.due_ms


def _plan_to_wire(plan: Plan) -> wire.SchedulePlanValue:
    messages = [wire.PlannedMessage(each.id, each.due_ms) for each in plan.messages]
    return wire.SchedulePlanValue(plan.producer_id, plan.sequence, plan.partition, messages)


def _plan(value: Buffer) -> Plan:
    stored = _decode(wire.SchedulePlanValue, value)
    assert isinstance(stored, wire.SchedulePlanValue)
    messages = tuple(Planned(each.id, each.due_ms) for each in stored.messages)
    return Plan(stored.producer_id, stored.sequence, stored.partition, messages)


def _encode(message: Message, version: int) -> bytes:
    return encoded(message, version, version.to_bytes(2, "big"))


def _decode(cls: type[Message], data: Buffer) -> Message:
    version = int.from_bytes(data[:2], "big", signed=True)
    message, _ = _codec(cls).decoder(version)(data, 2)
    return message


def decode_record(record: Record) -> ScheduleRecord | None:
    return None if record.key is None else decode(record.key, record.value)


def _placed(record: ScheduleRecord, offset: int) -> None:
    if isinstance(record, Defined):
        record.offset = offset


FORMAT: Format[ScheduleRecord] = Format("schedule", encode, decode_record, placed=_placed)
