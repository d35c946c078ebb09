"""Headers and frames, against bytes written by hand."""

import pytest
from wire_samples import encode

from skidway.ports import FileSlice
from skidway.wire.framing import LENGTH_BYTES, frame, frame_size
from skidway.wire.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    response_header,
    write_request_header,
)
from skidway.wire.primitives import DecodeError
from skidway.wire.registry import codec
from skidway.wire.schema.fetch import FetchableTopicResponse, FetchResponse, PartitionData

PRODUCE, SASL_HANDSHAKE, API_VERSIONS = 0, 17, 18


class StandInFile:
    """A file that only has to be told from bytes."""


def slice_of(length: int) -> FileSlice:
    return FileSlice(StandInFile(), 0, length)  # type: ignore[arg-type]


def test_a_request_header_before_flexible_versions_ends_with_the_client_id() -> None:
    data = b"\0\0\0\x07\0\0\0\x2a\0\x05bench" + b"body"
    assert read_request_header(memoryview(data)) == RequestHeader(PRODUCE, 7, 42, "bench", 15)
    assert write_request_header(PRODUCE, 7, 42, "bench") + b"body" == data


def test_a_flexible_request_header_has_tagged_fields_but_no_compact_client_id() -> None:
    data = b"\0\0\0\x09\0\0\0\x2a\0\x05bench\0"
    assert read_request_header(data) == RequestHeader(PRODUCE, 9, 42, "bench", 16)
    assert write_request_header(PRODUCE, 9, 42, "bench") == data
    with_tags = data[:-1] + b"\1\x09\2hi"
    assert read_request_header(with_tags).body_position == len(with_tags)


def test_a_client_need_not_say_who_it_is() -> None:
    assert read_request_header(write_request_header(PRODUCE, 7, 1, None)).client_id is None
    assert read_request_header(write_request_header(PRODUCE, 7, 1, "")).client_id == ""


def test_sasl_handshake_never_became_flexible() -> None:
    assert read_request_header(b"\0\x11\0\x01\0\0\0\1\xff\xff").body_position == 10


def test_of_an_unknown_api_the_common_part_is_read() -> None:
    assert read_request_header(b"\x7f\xff\0\x09\0\0\0\1\xff\xff") == RequestHeader(32767, 9, 1, None, 10)


@pytest.mark.parametrize("version", [7, 9])
def test_a_request_header_cut_anywhere_is_refused(version: int) -> None:
    data = write_request_header(PRODUCE, version, 42, "bench")
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            read_request_header(data[:size])


def test_a_client_id_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DecodeError):
        read_request_header(b"\0\0\0\x07\0\0\0\x2a\0\x01\xff")


def test_response_headers_grow_tagged_fields_in_flexible_versions() -> None:
    assert response_header(PRODUCE, 8, 42) == b"\0\0\0\x2a"
    assert response_header(PRODUCE, 9, 42) == b"\0\0\0\x2a\0"
    assert read_response_header(PRODUCE, 8, b"\0\0\0\x2a") == (42, 4)
    assert read_response_header(PRODUCE, 9, b"\0\0\0\x2a\1\7\1x") == (42, 8)
    with pytest.raises(DecodeError):
        read_response_header(PRODUCE, 9, b"\0\0\0\x2a")


def test_the_answer_to_api_versions_always_has_the_oldest_header() -> None:
    for version in range(5):
        assert response_header(API_VERSIONS, version, 42) == b"\0\0\0\x2a"
        assert read_response_header(API_VERSIONS, version, b"\0\0\0\x2a\0") == (42, 4)


def test_small_parts_become_one_buffer_behind_their_length() -> None:
    assert frame([b"ab", bytearray(b"c"), memoryview(b"de")]) == [b"\0\0\0\5abcde"]
    assert frame([]) == [b"\0\0\0\0"]


def test_file_slices_keep_their_place_and_count_into_the_length() -> None:
    first, second = slice_of(100), slice_of(7)
    assert frame([b"a", b"b", first, second, b"c", b"d"]) == [b"\0\0\0\x6fab", first, second, b"cd"]


def test_large_buffers_are_not_copied() -> None:
    large = bytes(200_000)
    prefix, same, tail = frame([b"a", large, b"b", b"c"])
    assert same is large
    assert (prefix, tail) == ((200_003).to_bytes(4) + b"a", b"bc")


def test_a_fetch_reply_carries_a_file_slice_as_its_records() -> None:
    records = slice_of(5)
    reply = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(records=records)])])
    parts: list[bytes | bytearray | memoryview | FileSlice] = []
    codec(FetchResponse).encoder(12)(reply, parts)
    assert [part for part in parts if isinstance(part, FileSlice)] == [records]
    reply.responses[0].partitions[0].records = b"batch"
    assert b"".join(b"batch" if isinstance(part, FileSlice) else part for part in parts) == encode(reply, 12)


def test_a_frame_says_its_size_and_must_not_exceed_the_limit() -> None:
    assert frame_size(b"??\0\0\0\5", 2, 5) == 5
    assert LENGTH_BYTES == 4
    with pytest.raises(DecodeError, match="the limit is 4"):
        frame_size(b"\0\0\0\5", 0, 4)
    with pytest.raises(DecodeError):
        frame_size(b"\xff\xff\xff\xff", 0, 4)
