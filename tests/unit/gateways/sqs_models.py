"""botocore as the oracle of the wire: requests as it writes them, answers as it reads them, in both protocols.

Its model of SQS speaks JSON today. `query_model` is the same model as it was before: the same shapes, with the names
that the Query protocol has for lists and maps.
"""

import copy
from functools import cache
from typing import Any

import botocore.loaders
import botocore.model
import botocore.parsers
import botocore.serialize

LIST_NAMES = {
    "AttributeNameList": "AttributeName",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "MessageAttributeNameList": "MessageAttributeName",
    "TagKeyList": "TagKey",
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "QueueUrlList": "QueueUrl",
    "MessageList": "Message",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    **{
        f"{action}{kind}EntryList": f"{action}{kind}Entry"
        for action in ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch")
        for kind in ("Request", "Result")
    },
}
MAP_NAMES = {
    "QueueAttributeMap": ("Attribute", "Name", "Value"),
    "MessageSystemAttributeMap": ("Attribute", "Name", "Value"),
    "MessageBodyAttributeMap": ("MessageAttribute", "Name", "Value"),
    "MessageBodySystemAttributeMap": ("MessageSystemAttribute", "Name", "Value"),
    "TagMap": ("Tag", "Key", "Value"),
}


OLD_CODES = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    **{
        name: name
        for name in (
            "InvalidAttributeName",
            "InvalidAttributeValue",
            "InvalidMessageContents",
            "OverLimit",
            "ReceiptHandleIsInvalid",
            "RequestThrottled",
            "ResourceNotFoundException",
        )
    },
}


@cache
def _loaded() -> Any:
    return botocore.loaders.Loader().load_service_model("sqs", "service-2")


@cache
def json_model() -> Any:
    return botocore.model.ServiceModel(_loaded(), "sqs")


def query_description() -> Any:
    """The model's text, as a loader would give it."""
    model = copy.deepcopy(_loaded())
    model["metadata"] |= {"protocol": "query", "protocols": ["query"]}
    model["metadata"].pop("awsQueryCompatible")
    for name, shape in model["shapes"].items():
        if name in LIST_NAMES:
            shape["member"]["locationName"] = LIST_NAMES[name]
        elif name in MAP_NAMES:
            shape["key"]["locationName"], shape["value"]["locationName"] = MAP_NAMES[name][1:]
        for member in shape.get("members", {}).values():
            if member["shape"] in MAP_NAMES:
                member["locationName"] = MAP_NAMES[member["shape"]][0]
    for name, shape in model["shapes"].items():
        if shape.get("exception"):
            shape["error"] = {"code": OLD_CODES.get(name, f"AWS.SimpleQueueService.{name}")}
    for name, operation in model["operations"].items():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{name}Result"
    return model


@cache
def query_model() -> Any:
    return botocore.model.ServiceModel(query_description(), "sqs")


def serialize(action: str, parameters: dict[str, Any], *, query: bool = False) -> Any:
    model = query_model() if query else json_model()
    serializer = botocore.serialize.create_serializer("query" if query else "json", include_validation=False)
    return serializer.serialize_to_request(parameters, model.operation_model(action))


def parse(action: str, status: int, headers: dict[str, str], body: bytes, *, query: bool = False) -> Any:
    model = query_model() if query else json_model()
    parser = botocore.parsers.create_parser("query" if query else "json")
    response = {"status_code": status, "headers": headers, "body": body}
    return parser.parse(response, model.operation_model(action).output_shape)
