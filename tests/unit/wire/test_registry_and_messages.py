"""The registry, and message classes as the rest of the broker uses them."""

import struct
import subprocess
import sys

import pytest
from wire_samples import encode, record_messages

from skidway.errors import ErrorCode, InvalidRequest, UnsupportedVersion
from skidway.wire.apis import FACTS
from skidway.wire.message import Message, array, blob, int32
from skidway.wire.primitives import DecodeError
from skidway.wire.registry import APIS, api, codec
from skidway.wire.schema.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from skidway.wire.schema.metadata import MetadataRequest, MetadataRequestTopic
from skidway.wire.schema.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from skidway.wire.schema.transaction_records import TransactionLogValue


def test_the_table_of_apis_says_what_the_schemas_say() -> None:
    assert len(APIS) == 96
    assert not {4, 5, 6, 7} & APIS.keys()
    for facts in FACTS:
        known = api(facts.key)
        for message in (known.request.message, known.response.message):
            assert message.__key__ == facts.key
            assert tuple(message.__versions__) == known.versions == (facts.version_min, facts.version_max)
            assert (message.__flexible__.first if message.__flexible__.last else None) == facts.flexible_from


def test_importing_the_registry_imports_no_schema() -> None:
    probe = (
        "import sys, skidway.wire.registry, skidway.wire.headers;"
        "print([name for name in sys.modules if 'wire.schema.' in name])"
    )
    assert subprocess.check_output([sys.executable, "-c", probe], text=True).strip() == "[]"


def test_unknown_keys_and_versions() -> None:
    with pytest.raises(KeyError):
        api(4)
    with pytest.raises(UnsupportedVersion):
        api(0).request.decoder(2)
    with pytest.raises(UnsupportedVersion):
        api(0).response.encoder(14)
    assert api(1).supports(4)
    assert not api(1).supports(3)
    assert api(1).is_flexible(12)
    assert not api(1).is_flexible(11)
    assert not api(17).is_flexible(1)


def test_codecs_are_built_once() -> None:
    assert api(1).request.decoder(12) is api(1).request.decoder(12)
    assert api(1).response.encoder(12) is codec(FetchResponse).encoder(12)


def test_a_decode_error_is_an_invalid_request_to_the_client() -> None:
    assert issubclass(DecodeError, InvalidRequest)
    assert DecodeError.code == ErrorCode.INVALID_REQUEST


def test_fields_have_their_defaults_by_position_and_by_name() -> None:
    partition = FetchPartition(3, fetch_offset=7)
    assert (partition.partition, partition.current_leader_epoch, partition.fetch_offset) == (3, -1, 7)
    assert partition == FetchPartition(3, -1, 7)
    assert partition != FetchPartition(3, -1, 8)
    assert partition != "something else"
    assert repr(EpochEndOffset(1, 2)) == "EpochEndOffset(epoch=1, end_offset=2)"
    with pytest.raises(TypeError):
        FetchPartition(no_such_field=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        partition.no_such_field = 1  # type: ignore[attr-defined]


def test_each_message_has_lists_of_its_own() -> None:
    FetchTopic().partitions.append(FetchPartition())
    assert FetchTopic().partitions == []


def test_a_default_struct_is_shared_and_therefore_refuses_to_change() -> None:
    first, second = PartitionData(), PartitionData()
    assert first.diverging_epoch is second.diverging_epoch
    assert first.diverging_epoch == EpochEndOffset()
    with pytest.raises(AttributeError, match="shared default"):
        first.diverging_epoch.epoch = 5
    first.diverging_epoch = EpochEndOffset(5, 10)
    assert second.diverging_epoch == EpochEndOffset(-1, -1)


def test_a_tagged_struct_equal_to_its_default_stays_at_home() -> None:
    reply = PartitionData(diverging_epoch=EpochEndOffset(-1, -1))
    assert encode_partition(reply) == encode_partition(PartitionData())
    assert len(encode_partition(PartitionData(diverging_epoch=EpochEndOffset(5, 10)))) > len(encode_partition(reply))


def encode_partition(partition: PartitionData) -> bytes:
    return encode(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), 12)


def test_strings_longer_than_the_protocol_allows_are_not_written() -> None:
    long = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)])
    with pytest.raises(struct.error):
        encode(long, 8)
    with pytest.raises(ValueError, match="32767"):
        encode(long, 9)


def test_metadata_records_lie_on_disk_as_kraft_writes_them() -> None:
    topic_id = bytes(range(16))
    assert encode(TopicRecord("a", topic_id), 0) == b"\x02a" + topic_id + b"\0"
    # Of a partition change only what changed is written: tag 0 the in-sync set, tag 1 the leader.
    change = PartitionChangeRecord(partition_id=1, topic_id=topic_id, isr=[2], leader=3)
    assert encode(change, 0) == b"\0\0\0\1" + topic_id + b"\2" + b"\0\5\2\0\0\0\2" + b"\1\4\0\0\0\3"
    assert PartitionRecord().eligible_leader_replicas is None


def test_record_types_of_the_metadata_log_are_unique() -> None:
    keys = [record.__key__ for record in record_messages() if record.__key__ is not None]
    assert len(keys) == len(set(keys)) == 24


def test_the_oldest_transaction_record_has_no_tagged_fields() -> None:
    assert len(encode(TransactionLogValue(transaction_partitions=None), 0)) == 8 + 2 + 4 + 1 + 4 + 8 + 8


class Probe(Message, versions="0-1", flexible="1+"):
    """Corners that no message of the protocol has had yet."""

    late: int = int32("1+", tag=9)
    numbers: list[int] | None = array("int32", "1+", nullable="1+", tag=3)
    content: bytes | None = blob("1+", nullable="1+", tag=200)


def test_tagged_fields_travel_in_the_order_of_their_tags() -> None:
    data = encode(Probe(late=1, numbers=[7], content=b"c"), 1)
    assert data == b"\3" + b"\3\5\2\0\0\0\7" + b"\x09\4\0\0\0\1" + b"\xc8\1\2\2c"
    assert codec(Probe).decoder(1)(data) == (Probe(late=1, numbers=[7], content=b"c"), len(data))


def test_null_is_written_where_the_default_is_not_null() -> None:
    data = encode(Probe(numbers=None, content=None), 1)
    assert data == b"\2" + b"\3\1\0" + b"\xc8\1\1\0"
    assert codec(Probe).decoder(1)(data) == (Probe(numbers=None, content=None), len(data))


def test_fields_that_a_version_lacks_are_left_out_and_read_as_defaults() -> None:
    assert encode(Probe(late=1, numbers=[7]), 0) == b""
    assert codec(Probe).decoder(0)(b"") == (Probe(), 0)
