"""What can go wrong between a client and a broker, in sentences for a person at a terminal."""

from collections.abc import Sequence

from skidway.errors import ErrorCode

# Codes after which the same request may succeed: leadership moved, something is loading, a topic is being created.
RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

# After these the client's picture of the cluster is old.
STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

LACKS_CONTROLLER = "are a majority of the voters up? `skidway cluster describe` shows who answers"

_SENTENCES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "no such topic (it may have been deleted just now)",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it exists already",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "that broker does not lead the partition",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside the log",
    ErrorCode.MESSAGE_TOO_LARGE: "the message is larger than the topic's max.message.bytes",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic name is not valid",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker cannot use its disk for this partition",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas",
    ErrorCode.REQUEST_TIMED_OUT: "the broker did not finish in time",
    ErrorCode.NOT_CONTROLLER: f"no controller answered: {LACKS_CONTROLLER}",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members and only they may commit; stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member of the group is subscribed to the topic",
    ErrorCode.CONCURRENT_TRANSACTIONS: "its last transaction is still ending",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "an open transaction is about to change the offset",
    ErrorCode.PRODUCER_FENCED: "another producer uses the transactional id, or the transaction timed out",
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer uses the transactional id, or the transaction timed out",
}


class ClientError(Exception):
    """Anything the client gives up on; its text is one line that a person can act on."""


class BadAddress(ClientError):
    """A bootstrap list that is not host:port[,host:port…]."""


class Unreachable(ClientError):
    """No connection could be made."""


class Refused(Unreachable):
    """Nobody listens there."""

    def __init__(self, addresses: Sequence[object]) -> None:
        running = "is the broker" if len(addresses) == 1 else "are the brokers"
        super().__init__(f"cannot reach {', '.join(map(str, addresses))}: connection refused; {running} running?")


class ConnectionLost(ClientError):
    """The connection broke while a reply was due: the request may or may not have been carried out."""


class NotReady(ConnectionLost):
    """Nobody answers, and some take connections only to hang up: so do nodes that wait for a majority of the voters."""

    def __init__(self, waiting: Sequence[object], others: Sequence[str]) -> None:
        """`waiting`: addresses of those that hang up. `others`: what is wrong with the rest, in sentences."""
        one = len(waiting) == 1
        named = f"{', '.join(map(str, waiting))} {'closes' if one else 'close'} the connection"
        who = "it" if one else "they"
        reason = f"{who} may be no Kafka broker, want TLS, or wait for a majority of the voters: check the address"
        reason += ", then start the voters that are down"
        super().__init__("; ".join([f"no node answers: {named}; {reason}", *others]))


class ReplyTimeout(ClientError):
    """The broker did not answer in time: the request may or may not have been carried out."""


class NoController(ReplyTimeout):
    """Only the controller can answer, and whoever was asked found none in time."""

    def __init__(self, timeout_ms: int, asked: object) -> None:
        waited = f"no controller answered within {timeout_ms / 1000:g} s (asked {asked})"
        super().__init__(f"{waited}: {LACKS_CONTROLLER}")


class BadReply(ClientError):
    """The peer sent what is no reply to what was asked: too large, malformed, or not Kafka's protocol at all."""


class Unsupported(ClientError):
    """The broker does not serve this API in a version that this client speaks."""


class Unsendable(ClientError):
    """A number or a text of the request is larger than the protocol has room for; nothing was sent."""


class BrokerError(ClientError):
    """The broker understood and refused: a code of the protocol, and its sentence if it sent one."""

    def __init__(self, code: int, about: str, message: str | None = None, *, partition: int | None = None) -> None:
        """`partition`: which one a produced batch was for."""
        self.code = code
        self.partition = partition
        self.name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"ERROR_{code}"
        self.about = about
        self.message = message
        if code == ErrorCode.NOT_CONTROLLER:
            message = None  # a node says of itself only that it is none; what matters is that nobody is
        sentence = message or (_SENTENCES.get(ErrorCode(code)) if self.name in ErrorCode.__members__ else None)
        sentence = sentence.rstrip(". ") if sentence else None
        super().__init__(f"{about}: {sentence} ({self.name})" if sentence else f"{about}: {self.name}")

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE


class RecordsRefused(BrokerError):
    """A batch was refused because of some of its records: (index in the batch, why) for each."""

    def __init__(
        self,
        code: int,
        about: str,
        message: str | None,
        records: Sequence[tuple[int, str]],
        *,
        partition: int | None = None,
    ) -> None:
        super().__init__(code, about, message, partition=partition)
        self.records = list(records)


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise unless `code` says that all went well."""
    if code != ErrorCode.NONE:
        raise BrokerError(code, about, message)
