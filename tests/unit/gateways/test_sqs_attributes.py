"""Attributes of queues: bounds, defaults, canonical values, and what they are as settings of a queue."""

import json

import pytest
from sqs_models import json_model

from skidway.gateways.http.head import Head
from skidway.gateways.queues.names import QueueKey
from skidway.gateways.queues.types import QueueSettings
from skidway.gateways.sqs.addresses import arn_of, base_of, read_arn, read_url, url_of
from skidway.gateways.sqs.errors import SqsError
from skidway.gateways.sqs.queue_attributes import (
    ATTRIBUTES,
    asked_names,
    check_given,
    check_new,
    read_redrive_allow_policy,
    read_redrive_policy,
)
from skidway.gateways.sqs.queue_settings import changed, first_difference, new_settings, shown

ARN = "arn:aws:sqs:us-east-1:000000000000:dead"
POLICY = json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": "5"})


def compact(**members: object) -> str:
    return json.dumps(members, separators=(",", ":"))


def refused(given: dict[str, str], *, is_fifo: bool = False) -> SqsError:
    with pytest.raises(SqsError) as found:
        check_given(given, is_fifo=is_fifo)
    return found.value


def test_there_is_every_attribute_that_botocore_knows() -> None:
    assert {"All", *ATTRIBUTES} == set(json_model().shape_for("QueueAttributeName").enum)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("VisibilityTimeout", 0, 43_200),
        ("DelaySeconds", 0, 900),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("MaximumMessageSize", 1_024, 1_048_576),
        ("MessageRetentionPeriod", 60, 1_209_600),
        ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
    ],
)
def test_numbers_have_bounds(name: str, low: int, high: int) -> None:
    for value in (low, high):
        assert check_given({name: f"0{value}"}, is_fifo=False) == {name: str(value)}
    for wrong in (str(low - 1), str(high + 1), "", "ten", "1.5", "٣", "9" * 100):
        assert refused({name: wrong}).code == "InvalidAttributeValue", wrong


def test_unknown_and_read_only_attributes_are_refused() -> None:
    assert refused({"Colour": "red"}).message == "Unknown Attribute Colour."
    assert refused({"QueueArn": ARN}).code == "InvalidAttributeName"
    for name, value in (
        ("FifoQueue", "false"),
        ("ContentBasedDeduplication", "false"),
        ("DeduplicationScope", "queue"),
    ):
        assert refused({name: value}).code == "InvalidAttributeName"


def test_the_type_of_a_queue_is_in_its_name_and_its_attribute() -> None:
    assert check_new("a.fifo", {"FifoQueue": "TRUE"}) == {"FifoQueue": "true"}
    assert check_new("a", {}) == {}
    for name, given in (("a.fifo", {}), ("a", {"FifoQueue": "true"}), ("a.fifo", {"FifoQueue": "false"})):
        with pytest.raises(SqsError) as found:
            check_new(name, given)
        assert found.value.code == "InvalidParameterValue"
    assert check_given({"FifoQueue": "true"}, is_fifo=True)
    assert refused({"FifoQueue": "false"}, is_fifo=True).code == "InvalidAttributeValue"


def test_defaults_are_those_of_amazon() -> None:
    standard = {
        "VisibilityTimeout": "30",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "MessageRetentionPeriod": "345600",
        "MaximumMessageSize": "1048576",
        "SqsManagedSseEnabled": "true",
    }
    assert shown(new_settings({}, is_fifo=False)) == standard
    assert shown(new_settings({}, is_fifo=True)) == standard | {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
    }


def test_every_attribute_is_shown_as_it_was_set() -> None:
    given = {
        "VisibilityTimeout": "0",
        "DelaySeconds": "900",
        "ReceiveMessageWaitTimeSeconds": "20",
        "MessageRetentionPeriod": "60",
        "MaximumMessageSize": "1024",
        "Policy": '{"Statement": []}',
        "RedrivePolicy": compact(deadLetterTargetArn=ARN + ".fifo", maxReceiveCount=1000),
        "RedriveAllowPolicy": compact(redrivePermission="byQueue", sourceQueueArns=[ARN]),
        "SqsManagedSseEnabled": "false",
        "KmsMasterKeyId": "alias/key",
        "KmsDataKeyReusePeriodSeconds": "60",
        "FifoQueue": "true",
        "ContentBasedDeduplication": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    checked = check_given(given, is_fifo=True)
    settings = new_settings(checked, is_fifo=True)
    assert shown(settings) == given
    assert first_difference(settings, checked) is None
    assert first_difference(settings, {**checked, "DelaySeconds": "0"}) == "DelaySeconds"
    assert first_difference(settings, {}) is None


def test_what_is_taken_away_is_not_shown() -> None:
    given = {"Policy": "{}", "RedrivePolicy": POLICY, "KmsMasterKeyId": "k", "KmsDataKeyReusePeriodSeconds": "60"}
    settings = new_settings(check_given(given, is_fifo=False), is_fifo=False)
    assert shown(settings)["SqsManagedSseEnabled"] == "false"
    gone = {"Policy": "", "RedrivePolicy": "", "KmsMasterKeyId": "", "KmsDataKeyReusePeriodSeconds": "300"}
    after = shown(changed(settings, check_given(gone, is_fifo=False)))
    assert not set(gone) & set(after)
    assert after["SqsManagedSseEnabled"] == "false"


def test_settings_of_other_doors_stay_as_they_are() -> None:
    """Milliseconds are not rounded by a change of something else."""
    settings = QueueSettings(visibility_ms=1_500)
    assert changed(settings, {"DelaySeconds": "5"}) == QueueSettings(visibility_ms=1_500, delay_ms=5_000)
    assert shown(settings)["VisibilityTimeout"] == "1"


def test_keys_and_own_encryption_exclude_each_other() -> None:
    assert refused({"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "true"}).code == "InvalidAttributeName"


def test_a_redrive_policy_takes_a_number_or_text() -> None:
    policy = read_redrive_policy(POLICY)
    assert (policy.target, policy.receive_count_max) == (QueueKey("dead"), 5)
    assert check_given({"RedrivePolicy": POLICY}, is_fifo=False) == {
        "RedrivePolicy": compact(deadLetterTargetArn=ARN, maxReceiveCount=5)
    }


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "[]",
        "{}",
        '{"maxReceiveCount": 5}',
        json.dumps({"deadLetterTargetArn": ARN}),
        json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": 0}),
        json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": 1001}),
        json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": True}),
        json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": "many"}),
        json.dumps({"deadLetterTargetArn": "dead", "maxReceiveCount": 5}),
        json.dumps({"deadLetterTargetArn": 5, "maxReceiveCount": 5}),
        json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": 5, "more": 1}),
        "[" * 8_000,
        json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": 5, "x": "x" * 9_000}),
    ],
    ids=range(14),
)
def test_redrive_policies_that_make_no_sense(text: str) -> None:
    assert refused({"RedrivePolicy": text}).code == "InvalidParameterValue"
    with pytest.raises(SqsError):
        read_redrive_policy(text)


def test_who_may_have_a_queue_as_dead_letters() -> None:
    source, other = QueueKey("source"), QueueKey("other")
    by_queue = read_redrive_allow_policy(
        json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn_of(source)]})
    )
    assert by_queue.allows(source)
    assert not by_queue.allows(other)
    assert not read_redrive_allow_policy('{"redrivePermission": "denyAll"}').allows(source)
    assert read_redrive_allow_policy('{"redrivePermission": "allowAll"}').allows(source)
    for wrong in ("x", "{}", '{"redrivePermission": "some"}', '{"redrivePermission": "byQueue"}'):
        assert refused({"RedriveAllowPolicy": wrong}).code == "InvalidParameterValue"


def test_names_that_are_asked_for() -> None:
    assert "FifoQueue" not in asked_names(["All"], is_fifo=False)
    assert "FifoQueue" in asked_names(["All"], is_fifo=True)
    assert asked_names(["QueueArn", "QueueArn"], is_fifo=False) == ["QueueArn"]
    for wrong in ("all", "FifoQueue", "Colour"):
        with pytest.raises(SqsError, match=f"Unknown Attribute {wrong}."):
            asked_names([wrong], is_fifo=False)


def test_urls_and_arns() -> None:
    key = QueueKey("jobs.fifo", "123456789012", "eu-west-1")
    head = Head("POST", b"/", 1, {b"host": b"localhost:8082"}, 0, keep_alive=True)
    url = url_of(key, base_of(head))
    assert url == "http://localhost:8082/123456789012/jobs.fifo"
    assert read_url(url, "000000000000", "eu-west-1") == key
    assert read_url("https://elsewhere:1/some/path/123456789012/jobs.fifo", "0" * 12, "eu-west-1") == key
    assert read_url("jobs.fifo", "123456789012", "eu-west-1") == key
    assert read_arn(arn_of(key), "SourceArn") == key
    head.headers[b"x-forwarded-proto"] = b"https"
    assert base_of(head).startswith("https://")


@pytest.mark.parametrize("url", ["", "/", "http://h/000000000000/", "a b", "http://h/x/y/../jobs%00"])
def test_urls_of_no_queue(url: str) -> None:
    with pytest.raises(SqsError):
        read_url(url, "000000000000", "us-east-1")


@pytest.mark.parametrize(
    "arn", ["", "jobs", "arn:aws:sns:us-east-1:000000000000:a", "arn:aws:sqs:us-east-1:7:a", ARN + ":b"]
)
def test_arns_of_no_queue(arn: str) -> None:
    with pytest.raises(SqsError, match="It is not the ARN of a queue"):
        read_arn(arn, "SourceArn")
