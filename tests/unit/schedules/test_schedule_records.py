"""Records of schedules and their bytes, and what a coordinator refuses."""

from typing import Any

import pytest
from schedule_world import WALL_AT_START_MS, World, topic_id

from skidway.errors import ErrorCode, StorageError
from skidway.records.record import Record
from skidway.schedules.operations import Create, Created
from skidway.schedules.records import FORMAT, Defined, PlanMade, Progressed, decode, decode_record, encode
from skidway.schedules.schedule import NO_KEY, Definition, Plan, Planned, ScheduledMessage
from skidway.schedules.settings import DAY_MS, ScheduleSettings

TOPIC = topic_id("x")
MESSAGE = ScheduledMessage(b"k", b"value", (("a", b"1"), ("b", None)), 7)


@pytest.mark.parametrize(
    "record",
    [
        Defined(TOPIC, "id", Definition(1, 2, MESSAGE)),
        Defined(TOPIC, "id", Definition(1, 2, ScheduledMessage(None, None, (), NO_KEY), "0 8 * * *", "Europe/Berlin")),
        Defined(TOPIC, "id", None),
        Progressed(TOPIC, "id", 3),
        Progressed(TOPIC, "id", None),
        PlanMade(TOPIC, Plan(1, 2, 0, (Planned("a", 1), Planned("b", 2)))),
        PlanMade(TOPIC, None),
    ],
)
def test_a_record_comes_back_from_its_bytes(record: Any) -> None:
    assert decode(*encode(record)) == record
    (read,) = FORMAT.from_batches(FORMAT.to_batch([record], 0))
    assert encode(read) == encode(record)


def test_a_kind_that_is_not_known_is_passed_over() -> None:
    assert decode(b"\0\x09rest", b"") is None
    assert decode_record(Record(0, 0, None, b"", ())) is None


def test_what_should_be_readable_and_is_not_is_told() -> None:
    key, value = encode(Defined(TOPIC, "id", Definition(1, 2, MESSAGE)))
    assert value is not None
    with pytest.raises(StorageError, match="unreadable schedule record"):
        decode(key, value[:-3])


def asked(world: World, id_: str = "a", ahead_ms: int = 1_000, **more: Any) -> Any:
    answers: list[Any] = []
    message = more.pop("message", MESSAGE)
    definition = Definition(0, WALL_AT_START_MS + ahead_ms, message, **more)
    world.submit(Create(TOPIC, id_, definition), answers.append)
    return answers[0]


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        ({"id_": ""}, ErrorCode.INVALID_REQUEST, "1 to 128 letters"),
        ({"id_": "a b"}, ErrorCode.INVALID_REQUEST, "1 to 128 letters"),
        ({"ahead_ms": 367 * DAY_MS}, ErrorCode.INVALID_TIMESTAMP, "more than 366 days ahead"),
        ({"ahead_ms": -WALL_AT_START_MS}, ErrorCode.INVALID_TIMESTAMP, "milliseconds since 1970"),
        ({"message": ScheduledMessage(None, bytes(300), ())}, ErrorCode.MESSAGE_TOO_LARGE, "250 at most"),
        ({"message": ScheduledMessage(None, b"", (("", b""),) * 101)}, ErrorCode.MESSAGE_TOO_LARGE, "bytes"),
        ({"cron": "x"}, ErrorCode.INVALID_REQUEST, "not a time zone"),
        ({"cron": "x", "zone": "UTC"}, ErrorCode.INVALID_REQUEST, "five fields"),
        ({"cron": "* * * * *", "zone": "Mars/Olympus"}, ErrorCode.INVALID_REQUEST, "does not know the time zone"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(more: dict[str, Any], code: ErrorCode, text: str) -> None:
    world = World(ScheduleSettings(message_bytes_max=250))
    refused = asked(world, **more)
    assert refused.code == code
    assert text in str(refused)
    assert not world.written


def test_a_year_ahead_is_possible() -> None:
    assert asked(World(ScheduleSettings()), ahead_ms=366 * DAY_MS) == Created(WALL_AT_START_MS + 366 * DAY_MS, False)


def test_the_same_asked_again_is_there_and_another_under_its_id_is_refused() -> None:
    world = World(ScheduleSettings())
    assert asked(world) == Created(WALL_AT_START_MS + 1_000, existed=False)
    assert asked(world) == Created(WALL_AT_START_MS + 1_000, existed=True)
    assert asked(world, ahead_ms=2_000).code == ErrorCode.DUPLICATE_RESOURCE


def test_a_fifo_queue_takes_no_schedules() -> None:
    world = World(ScheduleSettings())
    world.fifo.add("x")
    assert "only a standard queue" in str(asked(world))


def test_schedules_and_their_bytes_are_bounded() -> None:
    world = World(ScheduleSettings(schedules_max=2, bytes_max=1_000))
    assert isinstance(asked(world, "a"), Created)
    large = ScheduledMessage(None, bytes(900), ())
    assert "1000 bytes" in str(asked(world, "b", message=large))
    assert isinstance(asked(world, "b"), Created)
    assert "2 schedules" in str(asked(world, "c"))
