"""What a stranger may send: every malformed input ends in DecodeError, and costs no more memory than it has bytes."""

import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest
from wire_samples import api_messages, encode, random_message, record_messages, versions_of

from skidway.limits import DEFAULT_LIMITS
from skidway.wire.compile import Decoder
from skidway.wire.headers import read_request_header, write_request_header
from skidway.wire.message import Message
from skidway.wire.primitives import TAGS_MAX, DecodeError, encode_uvarint
from skidway.wire.registry import codec
from skidway.wire.schema.api_versions import ApiVersionsRequest
from skidway.wire.schema.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from skidway.wire.schema.delete_topics import DeleteTopicsRequest
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from skidway.wire.schema.join_group import JoinGroupRequest
from skidway.wire.schema.list_transactions import ListTransactionsRequest
from skidway.wire.schema.metadata import MetadataRequest
from skidway.wire.schema.metadata_records import PartitionRecord
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MESSAGES = [*api_messages(), *record_messages()]
INT32_MAX = (2**31 - 1).to_bytes(4)
UVARINT_MAX = b"\xff\xff\xff\xff\x0f"
MUTANTS = 80_000


def decode(message: type[Message], version: int, data: bytes, **budget: int) -> Message:
    return codec(message).decoder(version)(data, 0, **budget)[0]


def pairs() -> Iterator[tuple[type[Message], int]]:
    for message in MESSAGES:
        for version in {versions_of(message)[0], versions_of(message)[-1]}:
            yield message, version


def small_sample(message: type[Message], version: int) -> bytes:
    """The shortest of a few random ones that is not trivial."""
    random = Random(f"small {message.__name__} {version}")
    samples = [encode(random_message(message, version, random), version) for _ in range(12)]
    return min(samples, key=lambda data: (len(data) < 40, len(data)))


def test_a_message_cut_anywhere_is_refused() -> None:
    for message, version in pairs():
        random = Random(f"cut {message.__name__} {version}")
        data = min((encode(random_message(message, version, random), version) for _ in range(12)), key=len)
        for size in range(len(data)):
            with pytest.raises(DecodeError):
                decode(message, version, data[:size])


def test_mutated_messages_decode_or_are_refused() -> None:
    random = Random(2024)
    corpus = [(message, version, small_sample(message, version)) for message, version in pairs()]
    refused = accepted = 0
    while refused + accepted < MUTANTS:
        message, version, data = random.choice(corpus)
        try:
            decoded = decode(message, version, mutate(data, random))
        except DecodeError:
            refused += 1
            continue
        accepted += 1
        # What was accepted means something: written again it is read as the same.
        rewritten = encode(decoded, version)
        assert encode(decode(message, version, rewritten), version) == rewritten
    # Both outcomes must be common, or the mutations are too mild or too wild to find anything.
    assert min(accepted, refused) > (accepted + refused) // 20


def mutate(data: bytes, random: Random) -> bytes:
    mutant = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(mutant) + 1)
        match random.randrange(5):
            case 0:
                mutant[at : at + 1] = random.randbytes(1)
            case 1:
                mutant[at : at + 1] = random.choice((b"\x00", b"\x7f", b"\x80", b"\xff"))
            case 2:
                del mutant[at : at + random.randrange(1, 9)]
            case 3:
                mutant[at:at] = random.randbytes(random.randrange(1, 9))
            case 4:
                mutant[at : at + 4] = random.choice((b"\xff\xff\xff\xff", INT32_MAX, UVARINT_MAX))
    return bytes(mutant)


def test_random_bytes_decode_or_are_refused() -> None:
    random = Random(7)
    for message, version in pairs():
        for _ in range(10):
            try:
                decode(message, version, random.randbytes(random.randrange(120)))
            except DecodeError:
                pass


# Bombs: small inputs that promise much.

BOMBS: dict[str, tuple[type[Message], int, bytes]] = {
    "an array of 2^31-1 topics": (MetadataRequest, 4, INT32_MAX),
    "a compact array of 2^32-2 topics": (MetadataRequest, 12, UVARINT_MAX),
    "an array of 2^31-1 integers": (FetchRequest, 11, bytes(25) + bytes(4) + b"\0\0\0\1\0\1t" + INT32_MAX),
    "more topics than bytes": (MetadataRequest, 4, (400_000).to_bytes(4) + bytes(100)),
    "more integers than bytes": (ListTransactionsRequest, 0, b"\1" + encode_uvarint(400_001) + bytes(100)),
    "more UUIDs than bytes": (
        PartitionRecord,
        1,
        bytes(20) + b"\1\1\1\1" + bytes(12) + encode_uvarint(400_001) + bytes(100),
    ),
    "a string of 2^32-2 bytes": (ApiVersionsRequest, 3, UVARINT_MAX + b"x"),
    "a blob of 2^31-1 bytes": (JoinGroupRequest, 0, b"\0\1g\0\0\0\1\0\1m\0\1c\0\0\0\1\0\1p" + INT32_MAX),
    "records of 2^31-1 bytes": (
        ProduceRequest,
        3,
        b"\xff\xff" + bytes(6) + b"\0\0\0\1\0\1t\0\0\0\1" + bytes(4) + INT32_MAX,
    ),
    "2^32-1 tagged fields": (ApiVersionsRequest, 3, b"\2a\2b" + UVARINT_MAX),
    "a tagged field of 2^32-1 bytes": (ApiVersionsRequest, 3, b"\2a\2b\1\5" + UVARINT_MAX),
    "a known tagged field of 2^32-1 bytes": (FetchRequest, 12, bytes(25) + b"\1\1\1\1\0" + UVARINT_MAX + b"\2a"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused_without_allocating(bomb: str) -> None:
    message, version, data = BOMBS[bomb]
    peak = peak_bytes(codec(message).decoder(version), data, DEFAULT_LIMITS.request_elements_max)
    assert peak < 64 * 1024


def peak_bytes(decoder: Decoder[Message], data: bytes, budget: int) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=r"too many|too long|longer than"):
            decoder(data, 0, budget)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_long_frame_of_empty_names_is_refused_by_its_count() -> None:
    data = encode_uvarint(4_000_001) + b"\1" * 4_000_000
    peak = peak_bytes(codec(DeleteTopicsRequest).decoder(5), data, DEFAULT_LIMITS.request_elements_max)
    assert peak < 64 * 1024


def test_nested_arrays_cost_no_more_than_the_budget_allows() -> None:
    topic = CreatableTopic(assignments=[CreatableReplicaAssignment()] * 50, configs=[CreatableTopicConfig()] * 50)
    data = encode(CreateTopicsRequest(topics=[topic] * 5_000), 7)
    budget = 20_000
    peak = peak_bytes(codec(CreateTopicsRequest).decoder(7), data, budget)
    assert budget * 20 < peak < budget * 300


def test_nested_arrays_share_one_budget() -> None:
    topics = [FetchTopic(topic=f"t{number}", partitions=[FetchPartition()] * 10) for number in range(10)]
    data = encode(FetchRequest(topics=topics), 11)
    assert decode(FetchRequest, 11, data, budget=110) == decode(FetchRequest, 11, data)
    with pytest.raises(DecodeError, match="partitions has too many elements"):
        decode(FetchRequest, 11, data, budget=109)


def test_known_and_unknown_tagged_fields_are_taken_from_the_budget() -> None:
    unknown = b"".join(encode_uvarint(100) + b"\3abc" for _ in range(60))
    body = encode(ApiVersionsRequest(), 3)[:-1] + encode_uvarint(60) + unknown
    assert codec(ApiVersionsRequest).decoder(3)(body, 0, 60) == (ApiVersionsRequest(), len(body))
    with pytest.raises(DecodeError, match="tagged"):
        decode(ApiVersionsRequest, 3, body, budget=59)
    fetch = encode(FetchRequest(), 12)[:-1] + encode_uvarint(60) + unknown
    assert codec(FetchRequest).decoder(12)(fetch, 0, 60) == (FetchRequest(), len(fetch))
    with pytest.raises(DecodeError, match="tagged"):
        decode(FetchRequest, 12, fetch, budget=59)


def test_repeating_a_known_tag_does_not_escape_the_budget() -> None:
    cluster_id = b"\0\3\3ab"
    data = encode(FetchRequest(), 12)[:-1] + encode_uvarint(2) + cluster_id * 2
    decoded = decode(FetchRequest, 12, data)
    assert isinstance(decoded, FetchRequest)
    assert decoded.cluster_id == "ab"
    with pytest.raises(DecodeError):
        decode(FetchRequest, 12, data, budget=1)


def test_the_default_budget_is_the_limit_for_requests() -> None:
    count = DEFAULT_LIMITS.request_elements_max
    data = encode(MetadataRequest(topics=[]), 4)
    names = b"\0\1t" * (count + 1)
    within = count.to_bytes(4) + names[:-3] + data[4:]
    beyond = (count + 1).to_bytes(4) + names + data[4:]
    decoded = decode(MetadataRequest, 4, within)
    assert isinstance(decoded, MetadataRequest)
    assert decoded.topics is not None
    assert len(decoded.topics) == count
    with pytest.raises(DecodeError):
        decode(MetadataRequest, 4, beyond)


# Rules of single values.


def test_null_is_refused_where_it_is_not_allowed() -> None:
    with pytest.raises(DecodeError, match="topics is null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff") == MetadataRequest(topics=None)
    with pytest.raises(DecodeError, match="name is null"):
        decode(MetadataRequest, 1, b"\0\0\0\1\xff\xff")
    with pytest.raises(DecodeError, match="client_software_name is null"):
        decode(ApiVersionsRequest, 3, b"\0\1\0")


def test_strings_must_be_utf8_and_no_longer_than_the_protocol_allows() -> None:
    with pytest.raises(DecodeError):
        decode(MetadataRequest, 1, b"\0\0\0\1\0\2\xc3\x28")
    longest = "x" * 32767
    data = encode(ApiVersionsRequest(client_software_name=longest), 3)
    assert decode(ApiVersionsRequest, 3, data) == ApiVersionsRequest(client_software_name=longest)
    with pytest.raises(DecodeError, match="client_software_name is too long"):
        decode(ApiVersionsRequest, 3, encode_uvarint(32769) + b"x" * 32768 + b"\1\0")


def test_varints_end_after_five_bytes_and_fit_in_32_bits() -> None:
    for varint in (b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x1f", b"\x80" * 10):
        with pytest.raises(DecodeError, match="varint"):
            decode(ApiVersionsRequest, 3, varint + bytes(100))


def test_a_known_tagged_field_must_fill_the_length_it_declares() -> None:
    data = encode(FetchRequest(), 12)[:-1]
    assert decode(FetchRequest, 12, data + b"\1\0\3\3ab") == FetchRequest(cluster_id="ab")
    with pytest.raises(DecodeError, match="cluster_id"):
        decode(FetchRequest, 12, data + b"\1\0\4\3ab\0")


def test_unknown_tagged_fields_are_passed_over_at_every_level() -> None:
    unknown = b"\2\x63\3abc\xc8\1\0"
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    plain = encode(CreateTopicsRequest(topics=[topic], timeout_ms=5), 7)
    head, tail = plain[:-7], plain[-6:-1]
    assert head + b"\0" + tail + b"\0" == plain
    strange = head + unknown + tail + unknown
    # One topic and two fields at each of two levels.
    assert decode(CreateTopicsRequest, 7, strange, budget=5) == decode(CreateTopicsRequest, 7, plain)
    with pytest.raises(DecodeError, match="tagged"):
        decode(CreateTopicsRequest, 7, strange, budget=4)


def test_a_message_ends_where_it_ends_and_what_follows_is_left_to_the_caller() -> None:
    data = encode(MetadataRequest(topics=None), 12)
    assert codec(MetadataRequest).decoder(12)(b"??" + data + b"trailing", 2) == (
        MetadataRequest(topics=None),
        2 + len(data),
    )


def test_records_are_slices_of_the_buffer_not_copies() -> None:
    request = ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, b"batch")])])
    buffer = bytearray(encode(request, 9))
    decoded, _ = codec(ProduceRequest).decoder(9)(memoryview(buffer), 0)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"batch")] = ord("B")
    assert bytes(records) == b"Batch"


def test_a_struct_has_a_bounded_number_of_tagged_fields() -> None:
    """They are passed over in one go, and each takes two bytes only."""
    many = encode_uvarint(TAGS_MAX + 1) + b"\x7f\0" * (TAGS_MAX + 1)
    with pytest.raises(DecodeError, match="too many tagged fields"):
        decode(ApiVersionsRequest, 3, encode(ApiVersionsRequest(), 3)[:-1] + many)
    with pytest.raises(DecodeError, match="too many tagged fields"):
        decode(FetchRequest, 12, encode(FetchRequest(), 12)[:-1] + many)
    with pytest.raises(DecodeError, match="too many tagged fields"):
        read_request_header(write_request_header(18, 3, 1, "client")[:-1] + many)
