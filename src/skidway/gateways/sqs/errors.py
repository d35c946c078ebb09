"""What SQS answers to a request that it refuses, in the words and codes of Amazon.

An error has two names. `shape` is what clients of the JSON protocol make a typed exception of. `code` is the older name
of the Query protocol, which clients of both find: in the JSON protocol as the header `x-amzn-query-error`.
"""

from __future__ import annotations

SQS = "com.amazonaws.sqs#"
CORAL = "com.amazon.coral.service#"
OLD = "AWS.SimpleQueueService."
SENDER = "Sender"
RECEIVER = "Receiver"


class SqsError(Exception):
    """A request is refused, or one entry of a batch is."""

    def __init__(
        self,
        shape: str,
        code: str,
        message: str,
        status: int = 400,
        *,
        namespace: str = SQS,
        old_text: str | None = None,
    ) -> None:
        """`old_text` is what the Query protocol says in place of `message`."""
        super().__init__(message)
        self.shape = shape
        self.code = code
        self.message = message
        self.status = status
        self.namespace = namespace
        self.old_text = message if old_text is None else old_text

    @property
    def type(self) -> str:
        """For `__type` in JSON."""
        return self.namespace + self.shape

    @property
    def fault(self) -> str:
        return SENDER if self.status < 500 else RECEIVER


def _old(shape: str, message: str, status: int = 400) -> SqsError:
    return SqsError(shape, OLD + shape, message, status)


# --- parameters ---


def invalid_parameter(message: str) -> SqsError:
    return SqsError("InvalidParameterValueException", "InvalidParameterValue", message, namespace=CORAL)


def invalid_value(value: object, parameter: str, reason: str) -> SqsError:
    text = f"Value {_shown(value)} for parameter {parameter} is invalid."
    return invalid_parameter(f"{text} Reason: {reason}" if reason else text)


def missing_parameter(parameter: str) -> SqsError:
    text = f"The request must contain the parameter {parameter}."
    return SqsError("MissingRequiredParameterException", "MissingParameter", text, namespace=CORAL)


def bad_serialization(reason: str) -> SqsError:
    return SqsError("SerializationException", "SerializationException", reason, namespace=CORAL)


def unknown_operation(action: str) -> SqsError:
    text = f"The action {_shown(action)} is not valid for this endpoint."
    return SqsError("UnknownOperationException", "InvalidAction", text, namespace=CORAL)


def invalid_action(action: str) -> SqsError:
    return unknown_operation(action)


def unsupported(message: str) -> SqsError:
    return _old("UnsupportedOperation", message)


# --- queues ---


def no_such_queue() -> SqsError:
    return SqsError(
        "QueueDoesNotExist",
        OLD + "NonExistentQueue",
        "The specified queue does not exist.",
        old_text="The specified queue does not exist for this wsdl version.",
    )


def queue_exists(attribute: str) -> SqsError:
    text = f"A queue already exists with the same name and a different value for attribute {attribute}"
    return SqsError("QueueNameExists", "QueueAlreadyExists", text)


def queue_deleted_recently() -> SqsError:
    text = "You must wait 60 seconds after deleting a queue before you can create another with the same name."
    return _old("QueueDeletedRecently", text)


def purge_in_progress(name: str) -> SqsError:
    text = f"Only one PurgeQueue operation on {name} is allowed every 60 seconds."
    return _old("PurgeQueueInProgress", text, 403)


def unknown_attribute(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", "InvalidAttributeName", f"Unknown Attribute {_shown(name)}.")


def invalid_attribute_name(message: str) -> SqsError:
    return SqsError("InvalidAttributeName", "InvalidAttributeName", message)


def invalid_attribute_value(name: str, reason: str = "") -> SqsError:
    text = f"Invalid value for the parameter {name}."
    return SqsError("InvalidAttributeValue", "InvalidAttributeValue", f"{text} Reason: {reason}" if reason else text)


def no_such_resource(message: str) -> SqsError:
    return SqsError("ResourceNotFoundException", "ResourceNotFoundException", message, 404)


def over_limit(message: str) -> SqsError:
    return SqsError("OverLimit", "OverLimit", message, 403)


def throttled(message: str) -> SqsError:
    return SqsError("RequestThrottled", "RequestThrottled", message, 403)


# --- messages ---


def invalid_contents() -> SqsError:
    text = (
        "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | "
        "#x10000 to #x10FFFF"
    )
    return SqsError("InvalidMessageContents", "InvalidMessageContents", text)


def invalid_receipt(handle: str) -> SqsError:
    text = f'The input receipt handle "{_shown(handle)}" is not a valid receipt handle.'
    return SqsError("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", text, 404)


def message_not_in_flight() -> SqsError:
    return _old("MessageNotInflight", "The specified message isn't in flight.")


# --- batches ---


def empty_batch(entry: str) -> SqsError:
    return _old("EmptyBatchRequest", f"There should be at least one {entry} in the request.")


def too_many_entries(count: int) -> SqsError:
    text = f"Maximum number of entries per request are 10. You have sent {count}."
    return _old("TooManyEntriesInBatchRequest", text)


def id_repeated(entry_id: str) -> SqsError:
    return _old("BatchEntryIdsNotDistinct", f"Id {_shown(entry_id)} repeated.")


def invalid_entry_id() -> SqsError:
    text = (
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 "
        "letters long."
    )
    return _old("InvalidBatchEntryId", text)


def batch_too_long(size: int) -> SqsError:
    text = f"Batch requests cannot be longer than 1048576 bytes. You have sent {size} bytes."
    return _old("BatchRequestTooLong", text)


# --- who asks ---


def _denied(shape: str, code: str, message: str) -> SqsError:
    return SqsError(shape, code, message, 403, namespace=CORAL)


def unknown_key() -> SqsError:
    text = "The security token included in the request is invalid."
    return _denied("UnrecognizedClientException", "InvalidClientTokenId", text)


def bad_signature(message: str) -> SqsError:
    return _denied("InvalidSignatureException", "SignatureDoesNotMatch", message)


def no_signature() -> SqsError:
    text = "Request is missing Authentication Token"
    return _denied("MissingAuthenticationTokenException", "MissingAuthenticationToken", text)


def expired(message: str) -> SqsError:
    return _denied("ExpiredTokenException", "ExpiredToken", message)


def access_denied(message: str) -> SqsError:
    return _denied("AccessDeniedException", "AccessDenied", message)


# --- the broker ---


def unavailable(message: str) -> SqsError:
    """The client sends the request again."""
    return SqsError("ServiceUnavailable", "ServiceUnavailable", message, 503, namespace=CORAL)


def _shown(value: object) -> str:
    """A client's own words, but not a megabyte of them."""
    text = str(value)
    return text if len(text) <= 256 else text[:256] + "…"
