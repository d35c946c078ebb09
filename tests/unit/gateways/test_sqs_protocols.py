"""Requests and answers of SQS in both protocols, with botocore on the other side."""

from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlencode

import msgspec
import pytest
from http_world import read_answers
from hypothesis import given, settings
from hypothesis import strategies as st
from sqs_models import json_model, parse, serialize

from skidway.gateways.http.replies import Reply
from skidway.gateways.sqs import errors, json_protocol, query_protocol, shapes
from skidway.gateways.sqs.actions import ACTIONS
from skidway.gateways.sqs.bounds import JSON_TOKENS_MAX, PARAMETERS_MAX
from skidway.gateways.sqs.errors import SqsError
from skidway.gateways.sqs.forms import parse_form, unquote
from skidway.gateways.sqs.shapes import Answer, Request

URL = "http://localhost/000000000000/jobs"
VALUES = {
    "text": {"DataType": "String", "StringValue": "a\r\n&<\"'😀"},
    "count": {"DataType": "Number.int", "StringValue": "7"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "AddPermission": {"QueueUrl": URL, "Label": "l", "AWSAccountIds": ["1" * 12], "Actions": ["SendMessage", "*"]},
    "CancelMessageMoveTask": {"TaskHandle": "handle"},
    "ChangeMessageVisibility": {"QueueUrl": URL, "ReceiptHandle": "r", "VisibilityTimeout": 0},
    "ChangeMessageVisibilityBatch": {
        "QueueUrl": URL,
        "Entries": [{"Id": "a", "ReceiptHandle": "r", "VisibilityTimeout": 5}],
    },
    "CreateQueue": {"QueueName": "jobs.fifo", "Attributes": {"FifoQueue": "true"}, "tags": {"team": "a b", "e": ""}},
    "DeleteMessage": {"QueueUrl": URL, "ReceiptHandle": "r+/="},
    "DeleteMessageBatch": {
        "QueueUrl": URL,
        "Entries": [{"Id": f"{number}", "ReceiptHandle": "r"} for number in range(10)],
    },
    "DeleteQueue": {"QueueUrl": URL},
    "GetQueueAttributes": {"QueueUrl": URL, "AttributeNames": ["All"]},
    "GetQueueUrl": {"QueueName": "jobs", "QueueOwnerAWSAccountId": "1" * 12},
    "ListDeadLetterSourceQueues": {"QueueUrl": URL, "MaxResults": 5, "NextToken": "n"},
    "ListMessageMoveTasks": {"SourceArn": "arn", "MaxResults": 3},
    "ListQueueTags": {"QueueUrl": URL},
    "ListQueues": {"QueueNamePrefix": "j", "MaxResults": 1000, "NextToken": "n"},
    "PurgeQueue": {"QueueUrl": URL},
    "ReceiveMessage": {
        "QueueUrl": URL,
        "AttributeNames": ["All"],
        "MessageSystemAttributeNames": ["SentTimestamp", "SenderId"],
        "MessageAttributeNames": ["a.*", "b"],
        "MaxNumberOfMessages": 10,
        "VisibilityTimeout": 0,
        "WaitTimeSeconds": 20,
        "ReceiveRequestAttemptId": "x",
    },
    "RemovePermission": {"QueueUrl": URL, "Label": "l"},
    "SendMessage": {
        "QueueUrl": URL,
        "MessageBody": "null",
        "DelaySeconds": 900,
        "MessageAttributes": VALUES,
        "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}},
        "MessageGroupId": "g",
        "MessageDeduplicationId": "d",
    },
    "SendMessageBatch": {
        "QueueUrl": URL,
        "Entries": [
            {"Id": "a", "MessageBody": "1", "MessageAttributes": VALUES},
            {"Id": "b", "MessageBody": "\ud7ff\U0010ffff", "DelaySeconds": 0},
        ],
    },
    "SetQueueAttributes": {"QueueUrl": URL, "Attributes": {"Policy": "", "DelaySeconds": "3"}},
    "StartMessageMoveTask": {"SourceArn": "arn", "DestinationArn": "to", "MaxNumberOfMessagesPerSecond": 500},
    "TagQueue": {"QueueUrl": URL, "Tags": {"k": "v"}},
    "UntagQueue": {"QueueUrl": URL, "TagKeys": ["k", "l"]},
}
MESSAGE = shapes.Message(
    message_id="m",
    receipt_handle="r",
    md5_of_body="5d",
    body="a\r\n\t&<>\"'😀]]>",
    attributes={"SentTimestamp": "1"},
    md5_of_message_attributes="6e",
    message_attributes={
        "text": shapes.AttributeValue("String", " \r "),
        "raw": shapes.AttributeValue("Binary.png", None, b"\x00\xff"),
    },
)
FAILED = shapes.FailedEntry(id="b", sender_fault=True, code="InvalidParameterValue", message="no & no")
DONE = shapes.DoneBatch(successful=[shapes.DoneEntry(id="a")], failed=[FAILED])
ANSWERS: dict[str, Answer] = {
    "CancelMessageMoveTask": shapes.MoveCancelled(approximate_number_of_messages_moved=3),
    "ChangeMessageVisibilityBatch": DONE,
    "CreateQueue": shapes.QueueUrlAnswer(queue_url=URL),
    "DeleteMessageBatch": DONE,
    "GetQueueAttributes": shapes.AttributesAnswer(attributes={"DelaySeconds": "0", "Policy": '{"a": "<&>"}'}),
    "GetQueueUrl": shapes.QueueUrlAnswer(queue_url=URL),
    "ListDeadLetterSourceQueues": shapes.SourceQueuesAnswer(queue_urls=[URL, URL + "2"], next_token="n"),
    "ListMessageMoveTasks": shapes.MoveTasks(
        results=[
            shapes.MoveTask(
                status="RUNNING", source_arn="a", approximate_number_of_messages_moved=0, started_timestamp=5
            )
        ]
    ),
    "ListQueueTags": shapes.TagsAnswer(tags={"k": "v", "empty": ""}),
    "ListQueues": shapes.QueuesAnswer(queue_urls=[URL]),
    "ReceiveMessage": shapes.Received(messages=[MESSAGE, MESSAGE]),
    "SendMessage": shapes.Sent(md5_of_message_body="x", message_id="m", sequence_number="0" * 20),
    "SendMessageBatch": shapes.SentBatch(
        successful=[shapes.SentEntry(id="a", message_id="m", md5_of_message_body="x")], failed=[FAILED]
    ),
    "StartMessageMoveTask": shapes.MoveStarted(task_handle="h"),
}


def decode_json(action: str, parameters: dict[str, Any]) -> Request:
    written = serialize(action, parameters)
    found = json_protocol.find_action(written["headers"]["X-Amz-Target"])
    assert found.name == action
    return json_protocol.decode(found, written["body"])


def decode_query(action: str, parameters: dict[str, Any], path: tuple[str, ...] = ()) -> Request:
    written = serialize(action, parameters, query=True)
    leaves = parse_form(urlencode(written["body"]).encode())
    return query_protocol.decode(query_protocol.find_action(leaves), leaves, list(path))


def read(action: str, reply: Reply, *, query: bool) -> Any:
    (answer,) = read_answers(reply.encode(b"", keep_alive=True, minor=1, head_only=False))
    return parse(action, answer.status, answer.headers, answer.body, query=query)


def test_there_is_every_action_that_botocore_knows() -> None:
    assert sorted(ACTIONS) == sorted(json_model().operation_names) == sorted(REQUESTS)
    for name, action in ACTIONS.items():
        model = json_model().operation_model(name)
        fields = {field.encode_name for field in msgspec.structs.fields(action.request)}
        assert fields == set(model.input_shape.members), name
        entries = {"Entries"} if "Entries" in fields else set()
        assert set(action.required) | entries == set(model.input_shape.required_members), name
        assert action.has_answer == (model.output_shape is not None), name


@pytest.mark.parametrize("action", REQUESTS)
def test_a_request_is_the_same_in_both_protocols_and_what_was_meant(action: str) -> None:
    given = REQUESTS[action]
    request = decode_json(action, given)
    assert msgspec.to_builtins(request, builtin_types=[bytes]) == given
    assert decode_query(action, given) == request
    ACTIONS[action].check(request)


@pytest.mark.parametrize("action", ANSWERS)
@pytest.mark.parametrize("query", [False, True], ids=["json", "query"])
def test_an_answer_says_the_same_in_both_protocols(action: str, query: bool) -> None:
    answer = ANSWERS[action]
    encoded = query_protocol.encode(ACTIONS[action], answer, "id-1") if query else json_protocol.encode(answer, "id-1")
    found = read(action, encoded, query=query)
    metadata = found.pop("ResponseMetadata")
    assert metadata["RequestId"] == "id-1"
    assert metadata["HTTPStatusCode"] == 200
    assert found == msgspec.to_builtins(answer, builtin_types=[bytes])


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_an_answer_without_content_leaves_lists_and_maps_out(action: str) -> None:
    assert json_protocol.encode(shapes.NOTHING, "i").body == b"{}"
    found = read(action, query_protocol.encode(ACTIONS[action], shapes.NOTHING, "i"), query=True)
    assert {name: value for name, value in found.items() if value not in ([], {})}.keys() == {"ResponseMetadata"}
    for empty in (shapes.Received(), shapes.SentBatch(), shapes.QueuesAnswer(), shapes.AttributesAnswer()):
        assert json_protocol.encode(empty, "i").body == b"{}"


KNOWN_ERRORS: list[tuple[SqsError, str, int]] = [
    (errors.no_such_queue(), "AWS.SimpleQueueService.NonExistentQueue", 400),
    (errors.queue_exists("DelaySeconds"), "QueueAlreadyExists", 400),
    (errors.queue_deleted_recently(), "AWS.SimpleQueueService.QueueDeletedRecently", 400),
    (errors.purge_in_progress("q"), "AWS.SimpleQueueService.PurgeQueueInProgress", 403),
    (errors.empty_batch("e"), "AWS.SimpleQueueService.EmptyBatchRequest", 400),
    (errors.too_many_entries(20), "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", 400),
    (errors.id_repeated("x"), "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", 400),
    (errors.invalid_entry_id(), "AWS.SimpleQueueService.InvalidBatchEntryId", 400),
    (errors.batch_too_long(7), "AWS.SimpleQueueService.BatchRequestTooLong", 400),
    (errors.invalid_receipt("fake"), "ReceiptHandleIsInvalid", 404),
    (errors.message_not_in_flight(), "AWS.SimpleQueueService.MessageNotInflight", 400),
    (errors.unsupported("no"), "AWS.SimpleQueueService.UnsupportedOperation", 400),
    (errors.unknown_attribute("X"), "InvalidAttributeName", 400),
    (errors.invalid_attribute_value("X"), "InvalidAttributeValue", 400),
    (errors.invalid_contents(), "InvalidMessageContents", 400),
    (errors.over_limit("no"), "OverLimit", 403),
    (errors.throttled("no"), "RequestThrottled", 403),
    (errors.no_such_resource("no"), "ResourceNotFoundException", 404),
]


@pytest.mark.parametrize(("error", "code", "status"), KNOWN_ERRORS, ids=lambda each: getattr(each, "shape", ""))
def test_an_error_is_the_exception_that_botocore_raises(error: SqsError, code: str, status: int) -> None:
    """Bugs 28 and 29 of others: a type of no shape, and no header with the code."""
    reply = json_protocol.encode_error(error, "i")
    assert f"x-amzn-query-error: {code};Sender\r\n".encode() in reply.headers
    found = read("SendMessage", reply, query=False)
    assert (found["Error"]["Code"], found["Error"]["Message"]) == (code, error.message)
    assert found["Error"]["QueryErrorCode"] == error.shape
    assert error.shape in json_model().shape_names
    assert json_model().shape_for(error.shape).metadata.get("exception")
    old = read("SendMessage", query_protocol.encode_error(error, "i"), query=True)
    assert (old["Error"]["Code"], old["Error"]["Type"]) == (code, "Sender")
    assert found["ResponseMetadata"]["HTTPStatusCode"] == old["ResponseMetadata"]["HTTPStatusCode"] == status
    assert old["ResponseMetadata"]["RequestId"] == "i"


def test_a_missing_queue_has_other_words_in_the_query_protocol() -> None:
    error = errors.no_such_queue()
    assert error.message == "The specified queue does not exist."
    old = read("SendMessage", query_protocol.encode_error(error, "i"), query=True)
    assert old["Error"]["Message"] == "The specified queue does not exist for this wsdl version."


def test_a_client_s_own_words_do_not_break_xml() -> None:
    """XML has no such characters, not even as escape sequences: parsers refuse the whole document."""
    error = errors.invalid_receipt("\x00a\x1b\ufffe<\U0001f600\t")
    old = read("DeleteMessage", query_protocol.encode_error(error, "i"), query=True)
    assert '"\ufffda\ufffd\ufffd<\U0001f600\t"' in old["Error"]["Message"]
    values = {"\x01": shapes.AttributeValue(data_type="String", string_value="\x02")}
    sent = shapes.Message(message_id="m", receipt_handle="r", md5_of_body="5", body="\x03", message_attributes=values)
    answer = shapes.Received(messages=[sent])
    received = read("ReceiveMessage", query_protocol.encode(ACTIONS["ReceiveMessage"], answer, "i"), query=True)
    (message,) = received["Messages"]
    assert message["Body"] == "\ufffd"
    assert message["MessageAttributes"]["\ufffd"]["StringValue"] == "\ufffd"


def refused(raw: bytes, action: str = "SendMessageBatch") -> SqsError:
    with pytest.raises(SqsError) as found:
        json_protocol.decode(ACTIONS[action], raw)
    return found.value


def test_json_of_another_shape_is_refused() -> None:
    for raw in (
        b"[]",
        b"{",
        b'{"Entries": {}}',
        b'{"Entries": [1]}',
        b'{"QueueUrl": 7}',
        b"\xff",
        b'{"QueueUrl": "\xff"}',
    ):
        assert refused(raw).shape == "SerializationException"
    assert refused(b'{"MessageBody": "\\ud800"}', "SendMessage").shape == "SerializationException"
    assert json_protocol.decode(ACTIONS["ListQueues"], b"") == shapes.ListQueues()
    assert json_protocol.decode(ACTIONS["ListQueues"], b'{"Other": [{}], "MaxResults": null}') == shapes.ListQueues()


def test_json_bombs_are_refused_before_they_are_decoded() -> None:
    deep = b'{"Other": ' + b"[" * 100_000
    assert "nested" in refused(deep).message
    wide = b'{"Entries": [' + b"{}," * JSON_TOKENS_MAX + b"{}]}"
    assert "brackets" in refused(wide).message
    body = msgspec.json.encode({"MessageBody": '{"a": [1, 2], "q": "\\"{["}' * 10_000})
    assert json_protocol.decode(ACTIONS["SendMessage"], body)


def form(text: str, path: tuple[str, ...] = ()) -> Request:
    leaves = parse_form(text.encode())
    return query_protocol.decode(query_protocol.find_action(leaves), leaves, list(path))


def test_a_queue_may_be_named_by_the_path() -> None:
    path = ("000000000000", "jobs.fifo")
    assert form("Action=PurgeQueue", path) == shapes.PurgeQueue(queue_url="/000000000000/jobs.fifo")
    assert form("Action=PurgeQueue&QueueUrl=other", path) == shapes.PurgeQueue(queue_url="other")
    for action in ("CreateQueue&QueueName=a", "ListQueues", "Nonsense", ""):
        with pytest.raises(SqsError) as found:
            form(f"Action={action}", path)
        assert found.value.code == "InvalidAction"


@pytest.mark.parametrize(
    "text",
    [
        "Attribute=1&Attribute.1.Name=a",
        "Attribute.1.Name=a",
        "Attribute.1.Value=a",
        "Attribute.x.Name=a&Attribute.x.Value=b",
        "Attribute.1.Name.More=a&Attribute.1.Value=b",
        "Attribute.1.Name=a&Attribute.1.Value=1&Attribute.2.Name=a&Attribute.2.Value=2",
        "Attribute.1=a",
        "A=1&A=2",
        "A=%ff",
        "a.b.c.d.e.f.g.h.i.j=1",
        "&".join(f"a{number}=1" for number in range(PARAMETERS_MAX + 1)),
    ],
    ids=range(11),
)
def test_forms_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(SqsError) as found:
        form("Action=SetQueueAttributes&" + text)
    assert found.value.shape == "SerializationException"


def test_a_number_in_a_form_is_a_number() -> None:
    assert form("Action=ReceiveMessage&WaitTimeSeconds=20") == shapes.ReceiveMessage(wait_time_seconds=20)
    with pytest.raises(SqsError, match="Value ten for parameter MaxNumberOfMessages is invalid") as found:
        form("Action=ReceiveMessage&MaxNumberOfMessages=ten")
    assert found.value.code == "InvalidParameterValue"


@given(st.text("%%%a0F= ~\n\rg").map(str.encode) | st.binary().map(quote).map(str.encode))
def test_sequences_are_decoded_as_python_does(raw: bytes) -> None:
    assert unquote(raw) == unquote_to_bytes(raw)


def test_what_a_request_lacks_is_named() -> None:
    with pytest.raises(SqsError, match="The request must contain the parameter MessageBody") as found:
        ACTIONS["SendMessage"].check(shapes.SendMessage(queue_url=URL))
    assert found.value.code == "MissingParameter"


@settings(max_examples=100)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_an_error(raw: bytes) -> None:
    for action in (ACTIONS["SendMessageBatch"], ACTIONS["CreateQueue"]):
        try:
            assert isinstance(json_protocol.decode(action, raw), action.request)
        except SqsError:
            pass
        try:
            assert isinstance(query_protocol.decode(action, parse_form(raw), []), action.request)
        except SqsError:
            pass
