"""What a message of SQS may be, its checksums, and its way into a record and back."""

import pytest

from skidway.gateways.queues.types import Received
from skidway.gateways.sqs import shapes
from skidway.gateways.sqs.batches import check_entries, check_total, failed
from skidway.gateways.sqs.digests import md5_of_attributes, md5_of_body
from skidway.gateways.sqs.errors import SqsError
from skidway.gateways.sqs.outgoing import (
    check_attribute_name,
    check_attribute_value,
    check_content,
    check_delay_for_fifo,
    check_for_fifo,
    check_for_standard,
)
from skidway.gateways.sqs.records import NOTES, attributes_of, body_of, notes_of, to_send
from skidway.gateways.sqs.shapes import AttributeValue, SendMessage, SendMessageBatchEntry
from skidway.gateways.sqs.texts import is_allowed, shown

MIB = 1 << 20


def refused(act: object) -> SqsError:
    assert callable(act)
    with pytest.raises(SqsError) as found:
        act()
    return found.value


def test_checksums_of_attributes_are_those_of_clients() -> None:
    def of(name: str, value: AttributeValue) -> str | None:
        return md5_of_attributes({name: value})

    assert of("attribName1", AttributeValue("String", "attribValue 1")) == "19e27d4e946b072f3f58da80d94fd778"
    assert of("Foo", AttributeValue("String", "Bar")) == "ae7155c6026991b6d54b11589678bf9c"
    binary = AttributeValue("Binary", None, b"Hello binary world!")
    assert of("binaryAttribute", binary) == "31a92b15d92f8db860eda32aceb656c3"
    assert md5_of_attributes({}) is None  # bug 23 of others: a checksum of nothing
    assert md5_of_body(b"This is a test message") == "fafb00f5732ab283681e124bf8747ed1"


@pytest.mark.parametrize("text", ["\t\n\r ~", "\x7f\x80", "\ud7ff\ue000\ufffd", "\U00010000\U0010ffff", "&<\"'"])
def test_characters_of_xml_are_allowed(text: str) -> None:
    assert is_allowed(text.encode())
    assert shown(text.encode()) == text
    assert check_content(SendMessage(message_body=text), MIB).body == text.encode()


@pytest.mark.parametrize("text", ["\x00", "\x0b", "\x1f", "\ufffe", "\uffff"])
def test_other_characters_are_not(text: str) -> None:
    assert not is_allowed(text.encode())
    assert shown(f"a{text}b".encode()) == "a\ufffdb"
    error = refused(lambda: check_content(SendMessage(message_body=f"a{text}"), MIB))
    assert error.code == "InvalidMessageContents"
    attributes = {"a": AttributeValue("String", text)}
    error = refused(lambda: check_content(SendMessage(message_body="a", message_attributes=attributes), MIB))
    assert error.code == "InvalidMessageContents"


def test_a_size_is_counted_in_bytes_with_all_of_the_attributes() -> None:
    """Bug 27 of others: characters were counted."""
    attributes = {"nn": AttributeValue("String", "v" * 10), "b": AttributeValue("Binary.x", None, b"\x00" * 5)}
    given = SendMessage(message_body="é" * 500, message_attributes=attributes)
    size = 1000 + 2 + 6 + 10 + 1 + 8 + 5
    assert check_content(given, size).size == size
    error = refused(lambda: check_content(given, size - 1))
    assert error.code == "InvalidParameterValue"
    assert error.message.endswith(f"Message must be shorter than {size - 1} bytes.")


def test_a_body_cannot_be_empty_and_a_delay_has_bounds() -> None:
    assert refused(lambda: check_content(SendMessage(message_body=""), MIB)).code == "MissingParameter"
    for delay in (-1, 901):
        error = refused(lambda delay=delay: check_content(SendMessage(message_body="a", delay_seconds=delay), MIB))
        assert error.message.startswith(f"Value {delay} for parameter DelaySeconds is invalid. Reason: ")
    assert check_content(SendMessage(message_body="a", delay_seconds=0), MIB).delay_s == 0


@pytest.mark.parametrize("name", ["a", "A.b-c_1", "Größe", "x" * 256, "awsome", "1"])
def test_names_of_attributes(name: str) -> None:
    check_attribute_name(name)


@pytest.mark.parametrize(
    "name", ["", "x" * 257, "a b", ".a", "a.", "a..b", "AWS.a", "aws.a", "Amazon.x", "amAzon.x", "a:b", "a\n"]
)
def test_names_that_attributes_cannot_have(name: str) -> None:
    assert refused(lambda: check_attribute_name(name)).code == "InvalidParameterValue"


@pytest.mark.parametrize(
    "value",
    [
        AttributeValue(),
        AttributeValue("Text", "a"),
        AttributeValue("String"),
        AttributeValue("String", ""),
        AttributeValue("String", None, b"a"),
        AttributeValue("Binary", "a"),
        AttributeValue("Binary", None, b""),
        AttributeValue("Number", "seven"),
        AttributeValue("String.", "a"),
        AttributeValue("string", "a"),
        AttributeValue("String", "a", string_list_values=["a"]),
    ],
    ids=range(11),
)
def test_values_that_attributes_cannot_have(value: AttributeValue) -> None:
    assert refused(lambda: check_attribute_value("n", value)).code == "InvalidParameterValue"


def test_an_empty_value_is_named() -> None:
    text = refused(lambda: check_attribute_value("n", AttributeValue("String", ""))).message
    assert text == "Message (user) attribute 'n' must contain a non-empty value of type 'String'."


def test_ten_attributes_are_the_most() -> None:
    many = {f"a{number}": AttributeValue("String", "v") for number in range(11)}
    error = refused(lambda: check_content(SendMessage(message_body="a", message_attributes=many), MIB))
    assert error.message == "Number of message attributes [11] exceeds the allowed maximum [10]."
    del many["a10"]
    assert len(check_content(SendMessage(message_body="a", message_attributes=many), MIB).attributes) == 10


def test_standard_queues_know_groups_but_no_deduplication() -> None:
    check_for_standard(SendMessage(message_group_id="tenant-1"))
    error = refused(lambda: check_for_standard(SendMessage(message_deduplication_id="d")))
    assert error.message.startswith("Value d for parameter MessageDeduplicationId is invalid.")


def test_fifo_queues_need_a_group_and_something_to_deduplicate_by() -> None:
    check_for_fifo(SendMessage(message_group_id="g", message_deduplication_id="d"), deduplicates_content=False)
    check_for_fifo(SendMessage(message_group_id="g"), deduplicates_content=True)
    nothing = SendMessage()
    assert refused(lambda: check_for_fifo(nothing, deduplicates_content=True)).code == "MissingParameter"
    in_batch = refused(lambda: check_for_fifo(nothing, deduplicates_content=True, in_batch=True))
    assert in_batch.code == "InvalidParameterValue"
    only_group = SendMessage(message_group_id="g")
    error = refused(lambda: check_for_fifo(only_group, deduplicates_content=False))
    assert error.message.startswith("The queue should either have ContentBasedDeduplication enabled or")
    for group in ("", "a b", "ä", "g" * 129):
        given = SendMessage(message_group_id=group, message_deduplication_id="d")
        assert (
            "MessageGroupId" in refused(lambda given=given: check_for_fifo(given, deduplicates_content=False)).message
        )
    check_delay_for_fifo(SendMessage(delay_seconds=0))  # bug 11 of others
    assert "DelaySeconds" in refused(lambda: check_delay_for_fifo(SendMessage(delay_seconds=1))).message


def entries(*ids: str | None, body: str = "b") -> list[SendMessageBatchEntry]:
    return [SendMessageBatchEntry(id=each, message_body=body) for each in ids]


def test_the_rules_of_batches() -> None:
    action = "SendMessageBatch"
    check_entries(entries(*"abcdefghij"), action)
    assert refused(lambda: check_entries([], action)).shape == "EmptyBatchRequest"
    assert refused(lambda: check_entries(None, action)).shape == "EmptyBatchRequest"
    error = refused(lambda: check_entries(entries(*map(str, range(20))), action))
    assert error.message == "Maximum number of entries per request are 10. You have sent 20."
    assert refused(lambda: check_entries(entries("x", "y", "x"), action)).message == "Id x repeated."
    for wrong in ("", "a b", "é", "x" * 81):
        assert refused(lambda wrong=wrong: check_entries(entries(wrong), action)).shape == "InvalidBatchEntryId"
    error = refused(lambda: check_entries(entries("a", None), action))
    assert error.message == "The request must contain the parameter SendMessageBatchRequestEntry.2.Id."
    error = refused(lambda: check_entries([shapes.DeleteMessageBatchEntry(id="a")], "DeleteMessageBatch"))
    assert error.message.endswith("DeleteMessageBatchRequestEntry.1.ReceiptHandle.")


def test_a_batch_has_a_size_of_its_own() -> None:
    check_total(entries("a", "b", body="x" * (MIB // 2)))
    error = refused(lambda: check_total(entries("a", "b", body="é" * (MIB // 4 + 1))))
    assert error.message == f"Batch requests cannot be longer than 1048576 bytes. You have sent {MIB + 4} bytes."
    assert failed("a", error) == shapes.FailedEntry(id="a", sender_fault=True, code=error.code, message=error.message)


def receive(body: bytes | None, headers: list[tuple[str, bytes | None]]) -> Received:
    return Received(
        message_id="m",
        receipt="r",
        body=body,
        key=None,
        headers=headers,
        partition=0,
        offset=0,
        delivery_count=1,
        sent_ms=0,
        first_received_ms=0,
    )


def test_a_message_comes_out_of_its_record_as_it_went_in() -> None:
    attributes = {
        "text": AttributeValue("String", "é"),
        "count": AttributeValue("Number.int", "7"),
        "raw": AttributeValue("Binary", None, b"text"),
        "queue.name": AttributeValue("String.x", "mine"),
    }
    system = {"AWSTraceHeader": AttributeValue("String", "Root=1")}
    given = SendMessage(
        message_body="body", message_attributes=attributes, message_system_attributes=system, message_group_id="g"
    )
    message = to_send(check_content(given, MIB), "me", is_fifo=False)
    assert dict(message.headers)["text"] == "é".encode()  # what a Kafka consumer sees
    assert message.key == b"g"
    assert dict(message.headers)["skidway.group-id"] == b"g"  # what the leader of a fair queue sees
    in_order = to_send(check_content(given, MIB), "me", is_fifo=True)
    assert in_order.key == b"g"
    assert "skidway.group-id" not in dict(in_order.headers)
    received = receive(message.body, [*message.headers, ("added.later", b"x")])
    notes = notes_of(received.headers)
    assert (notes.sender, notes.trace) == ("me", "Root=1")
    assert attributes_of(received.headers, notes) == attributes
    assert body_of(received, notes) == ("body", md5_of_body(b"body"))


def test_a_record_of_another_door_is_shown_as_far_as_sqs_can() -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("trace", b"7"),
        ("raw", b"\xff"),
        ("a b", b"x"),
        ("empty", b""),
        ("none", None),
        ("dlq.topic", b"t"),
        (NOTES, b"{not json"),
    ]
    received = receive(b"\xff\x00a", headers)
    notes = notes_of(headers)
    assert attributes_of(headers, notes) == {
        "trace": AttributeValue("String", "7"),
        "raw": AttributeValue("Binary", None, b"\xff"),
    }
    text, checksum = body_of(received, notes)
    assert text == "\ufffd\ufffda"
    assert checksum == md5_of_body(text.encode())
    assert body_of(receive(None, []), notes)[0] == ""
