"""Records as Apache Kafka 4.3.1 wrote them into its `__consumer_offsets`, and what else may be found there."""

from typing import Any

import pytest

from skidway.errors import StorageError
from skidway.groups.classic.group import ClassicGroup
from skidway.groups.placement import partition_of
from skidway.groups.records import GroupRecord, decode, encode, from_batches, to_batch
from skidway.records.record import Record, build_batch
from skidway.wire.registry import codec
from skidway.wire.schema.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

EMPTY_GROUP = ("000200047761726d", "00030008636f6e73756d657200000002ffffffff000001a1e1a402f700000000")
COMMIT = (
    "000100146f6666736574732d313739343738373136382d6700017400000000",
    "00040000000000000005000000030668656c6c6f000001a1e1a6d4860100102bcafb5dcead4fc0a1595a2d13de0071",
)
TOPIC_ID = bytes.fromhex("2bcafb5dcead4fc0a1595a2d13de0071")


def test_a_commit_is_read_and_written_as_kafka_does() -> None:
    key, value = map(bytes.fromhex, COMMIT)
    expected = GroupRecord(
        OffsetCommitKey("offsets-1794787168-g", "t", 0),
        OffsetCommitValue(5, 3, "hello", 0x01A1E1A6D486, -1, TOPIC_ID),
    )
    assert decode(key, value) == expected
    assert encode(expected) == (key, value)


def test_an_empty_group_is_read_and_written_as_kafka_does() -> None:
    key, value = map(bytes.fromhex, EMPTY_GROUP)
    record = decode(key, value)
    assert record == GroupRecord(
        GroupMetadataKey("warm"), GroupMetadataValue("consumer", 2, None, None, 0x01A1E1A402F7)
    )
    assert encode(record) == (key, value)


def test_a_tombstone_has_a_key_and_no_value() -> None:
    tombstone = GroupRecord(OffsetCommitKey("g", "t", 3), None)
    key, value = encode(tombstone)
    assert value is None
    assert decode(key, None) == tombstone


def test_an_expiry_that_a_client_asked_for_is_written_in_the_version_that_can_say_it() -> None:
    record = GroupRecord(OffsetCommitKey("g", "t", 0), OffsetCommitValue(7, -1, "", 1_000, 2_000))
    key, value = encode(record)
    assert value is not None
    assert value[:2] == b"\0\1"
    assert decode(key, value) == record


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_groups_written_by_older_brokers_are_read(version: int) -> None:
    member = MemberMetadata("m", None, "client", "/host", 4_000 if version else -1, 3_000, b"", b"assigned")
    value = GroupMetadataValue("other", 4, "p", "m", -1, [member])
    key, _ = encode(GroupRecord(GroupMetadataKey("g"), None))
    parts: list[Any] = [version.to_bytes(2, "big")]
    codec(GroupMetadataValue).encoder(version)(value, parts)
    record = decode(key, b"".join(parts))
    assert record is not None
    assert isinstance(record.value, GroupMetadataValue)
    group = ClassicGroup.from_record("g", record.value)
    assert group.state_name == "Stable"
    assert group.durable.members["m"].rebalance_timeout_ms == (4_000 if version else 3_000)
    assert group.durable.members["m"].assignment == b"assigned"


def test_records_of_streams_groups_and_of_times_to_come_are_passed_over() -> None:
    assert decode(b"\0\x11\0\1g", b"\0\0") is None
    key, value = map(bytes.fromhex, COMMIT)
    batch = build_batch([Record(0, 0, b"\0\x11\0\1g", b"\0\0"), Record(0, 0, key, value)])
    assert len(list(from_batches(batch))) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("0001", None), ("0001000167", None), (COMMIT[0], "0004"), (COMMIT[0], "0063"), (EMPTY_GROUP[0], "0003ffff")],
)
def test_what_cannot_be_read_is_never_guessed(key: str, value: str | None) -> None:
    with pytest.raises(StorageError):
        decode(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_a_damaged_batch_is_refused() -> None:
    batch = to_batch([GroupRecord(OffsetCommitKey("g", "t", 3), None)], 0)
    batch[-1] ^= 1
    with pytest.raises(StorageError):
        list(from_batches(batch))


def test_groups_live_where_kafka_puts_them() -> None:
    assert partition_of("", 50) == 0
    assert partition_of("g", 50) == ord("g") % 50
    assert partition_of("gg", 50) == 32 * ord("g") % 50
    # Two UTF-16 units, 0xD834 and 0xDD1E.
    assert partition_of("𝄞", 50) == (31 * 0xD834 + 0xDD1E) % 50
    # The one hash whose absolute value does not fit.
    assert partition_of("polygenelubricants", 50) == 0
    # Long ones wrap.
    assert partition_of("my-consumer-group", 50) == java_hash("my-consumer-group") % 50


def java_hash(text: str) -> int:
    total = sum(ord(char) * 31 ** (len(text) - 1 - place) for place, char in enumerate(text)) % 2**32
    return int(abs(total - 2**32 if total >= 2**31 else total))
