"""One request as the handler of its action sees it: who asks, and which queue is meant."""

from __future__ import annotations

from skidway.gateways.http.call import HttpCall
from skidway.gateways.queues import service
from skidway.gateways.queues.errors import (
    BadQueueName,
    BadSetting,
    MessageTooLarge,
    NoSuchQueue,
    NotAQueue,
    OutcomeUnknown,
    QueueError,
    QueueExists,
    QueueUnavailable,
    TooManyInFlight,
)
from skidway.gateways.queues.mover import Mover
from skidway.gateways.queues.names import QueueKey
from skidway.gateways.queues.types import Queue
from skidway.gateways.sqs.addresses import base_of, read_url, url_of
from skidway.gateways.sqs.errors import (
    OLD,
    SqsError,
    invalid_attribute_value,
    invalid_parameter,
    missing_parameter,
    no_such_queue,
    over_limit,
    unavailable,
)
from skidway.gateways.sqs.purges import Purges
from skidway.gateways.sqs.signatures import Identity


class Asked:
    __slots__ = ("base", "call", "identity", "movers", "purges")

    def __init__(self, call: HttpCall, identity: Identity, purges: Purges, movers: dict[str, Mover]) -> None:
        self.call = call
        self.identity = identity
        self.base = base_of(call.head)
        self.purges = purges
        self.movers = movers
        """Move tasks that this node runs, by their ids."""

    def key(self, name: str) -> QueueKey:
        return QueueKey(name, self.identity.account, self.identity.region)

    def url(self, key: QueueKey) -> str:
        return url_of(key, self.base)

    def queue(self, url: str | None) -> Queue:
        """Raises SqsError."""
        if not url:
            raise missing_parameter("QueueUrl")
        return self.find(read_url(url, self.identity.account, self.identity.region))

    def find(self, key: QueueKey) -> Queue:
        """Raises SqsError."""
        try:
            return service.find(self.call, key)
        except (NoSuchQueue, NotAQueue, BadQueueName):
            raise no_such_queue() from None


def translate(error: QueueError) -> SqsError:
    """What a queue refuses, in the words of SQS. Receipts have words of their own, with each action."""
    match error:
        case NoSuchQueue() | NotAQueue() | BadQueueName():
            return no_such_queue()
        case QueueExists():
            return SqsError("QueueNameExists", "QueueAlreadyExists", error.detail)
        case BadSetting():
            return invalid_attribute_value(error.name, error.detail)
        case MessageTooLarge():
            return invalid_parameter(f"One or more parameters are invalid. Reason: {error.detail}")
        case TooManyInFlight():
            return over_limit(error.detail)
        case QueueUnavailable() | OutcomeUnknown():
            return unavailable(error.detail)
    return SqsError("UnsupportedOperation", OLD + "UnsupportedOperation", error.detail)
