"""The sink's options and columns, checked before a job starts: `SinkOptions.parse`, `check_columns`.

Names and meanings are those of Spark's Kafka sink. Where the two differ: a column that would be dropped in silence is
an error here (but for those that the source adds to every row), and settings that would weaken the delivery are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skidway.limits import INT64_MAX, KIB, MIB, PRODUCER_BATCHES_REMEMBERED
from skidway.records.compression import CODEC_NAMES
from skidway.spark.client_settings import BadOption, ClientSettings, Given, sort_out

TOPIC = "topic"
DELIVERY = "delivery"
COMPRESSION = "kafka.compression.type"
BATCH_SIZE = "kafka.batch.size"
ACKS = "kafka.acks"
IDEMPOTENCE = "kafka.enable.idempotence"
IN_FLIGHT = "kafka.max.in.flight.requests.per.connection"
DELIVERY_TIMEOUT = "kafka.delivery.timeout.ms"
BUFFER_MEMORY = "kafka.buffer.memory"
REQUEST_SIZE = "kafka.max.request.size"
BLOCK = "kafka.max.block.ms"
TRANSACTION_TIMEOUT = "kafka.transaction.timeout.ms"
ID_PREFIX = "transactionalIdPrefix"
FIRST_BATCH = "firstBatch"
APPLICATION = "txnAppId"
VERSION = "txnVersion"
"""The two names are those of Delta Lake, for the same purpose: writes of a `foreachBatch`."""
CHECKPOINT = "checkpointLocation"
QUERY_NAME = "queryName"
"""Spark hands it over among the options when a query has a name, as those of Declarative Pipelines always have."""

WITHOUT_EFFECT_HERE = ("kafka.linger.ms", "kafka.retries", "kafka.partitioner.adaptive.partitioning.enable")
"""A task has all its rows at hand, so nothing lingers; what cannot be delivered is tried until the delivery timeout."""

KNOWN = (
    TOPIC,
    DELIVERY,
    COMPRESSION,
    BATCH_SIZE,
    ACKS,
    IDEMPOTENCE,
    IN_FLIGHT,
    DELIVERY_TIMEOUT,
    BUFFER_MEMORY,
    REQUEST_SIZE,
    BLOCK,
    TRANSACTION_TIMEOUT,
    ID_PREFIX,
    FIRST_BATCH,
    APPLICATION,
    VERSION,
    CHECKPOINT,
    QUERY_NAME,
)

_OF_THE_SOURCE = ("it is an option of the source", "leave it out of the write")
_FIXED_FORM = ("the sink writes the bytes of its columns as they are", "cast the columns to string or binary instead")
_TRANSACTIONS = ("the sink names its producers itself", f"leave it out; {ID_PREFIX} is what the names begin with")
_PARTITIONER = (
    "rows with a key go where Kafka's default partitioner sends them, rows without one in turn",
    "leave it out, or choose partitions in a column `partition`",
)
_LEVEL = ("the codecs run at their default level", f"leave it out; {COMPRESSION} chooses the codec")
REFUSED = {
    **dict.fromkeys(
        (
            "assign",
            "subscribe",
            "subscribePattern",
            "startingOffsets",
            "endingOffsets",
            "startingTimestamp",
            "endingTimestamp",
            "startingOffsetsByTimestamp",
            "endingOffsetsByTimestamp",
            "failOnDataLoss",
            "minPartitions",
            "maxOffsetsPerTrigger",
            "minOffsetsPerTrigger",
            "maxTriggerDelay",
            "groupId",
            "groupIdPrefix",
            "isolation",
            "kafka.isolation.level",
            "kafka.group.id",
        ),
        _OF_THE_SOURCE,
    ),
    "includeHeaders": ("it is an option of the source", "leave it out: a column `headers` is written if there is one"),
    "path": ("the sink writes to topics, not to files", f"call save() or start() without a path and set {TOPIC}"),
    "kafka.key.serializer": _FIXED_FORM,
    "kafka.value.serializer": _FIXED_FORM,
    "kafka.interceptor.classes": _FIXED_FORM,
    "kafka.transactional.id": _TRANSACTIONS,
    "kafka.partitioner.class": _PARTITIONER,
    "kafka.partitioner.ignore.keys": _PARTITIONER,
    "kafka.compression.gzip.level": _LEVEL,
    "kafka.compression.lz4.level": _LEVEL,
    "kafka.compression.zstd.level": _LEVEL,
}

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE = "exactly_once"
BATCH_BYTES = 256 * KIB
BATCH_BYTES_MAX = 64 * MIB
BUFFER_BYTES = 32 * MIB
REQUEST_BYTES_MAX = 64 * MIB
"""Below what a broker takes in one frame (100 MiB by default): it closes the connection on more."""
DELIVERY_TIMEOUT_MS = 120_000
TOPIC_WAIT_MS = 10_000
PREFIX = "skidway-spark"
TRANSACTION_TIMEOUT_MS = 15 * 60_000
"""The most that brokers allow by default. A task that dies holds up readers until another takes its id, or so long."""
CODECS = {"none": 0, **{name: int(codec) for name, codec in CODEC_NAMES.items() if codec}}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a task needs to know. Picklable: it travels to every task."""

    client: ClientSettings
    topic: str | None = None
    codec: int = 0
    batch_bytes: int = BATCH_BYTES
    buffer_bytes: int = BUFFER_BYTES
    request_bytes_max: int = REQUEST_BYTES_MAX
    in_flight_max: int = PRODUCER_BATCHES_REMEMBERED
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    topic_wait_ms: int = TOPIC_WAIT_MS
    exactly_once: bool = False
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    id_prefix: str = PREFIX
    first_batch: int = 0
    """The one before which there is no mark."""
    application: str | None = None
    version: int = -1
    """How a program names and numbers a batch write that it may repeat; None and -1: it does not."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SinkOptions":
        given = sort_out(options, KNOWN, REFUSED, WITHOUT_EFFECT_HERE)
        _check_delivery(given)
        _check_numbering(given)
        client = ClientSettings.parse(given)
        timeout_ms = given.number(DELIVERY_TIMEOUT, max(DELIVERY_TIMEOUT_MS, client.request_timeout_ms), low=1)
        if timeout_ms < client.request_timeout_ms:
            raise BadOption(
                DELIVERY_TIMEOUT,
                f"{timeout_ms} is less than kafka.request.timeout.ms ({client.request_timeout_ms})",
                "raise the one or lower the other: a delivery is one request at least",
            )
        return cls(
            client=client,
            topic=given.text(TOPIC),
            codec=CODECS[given.choice(COMPRESSION, "none", CODECS)],
            batch_bytes=given.number(BATCH_SIZE, BATCH_BYTES, low=1, high=BATCH_BYTES_MAX),
            buffer_bytes=given.number(BUFFER_MEMORY, BUFFER_BYTES, low=1),
            request_bytes_max=given.number(REQUEST_SIZE, REQUEST_BYTES_MAX, low=1, high=REQUEST_BYTES_MAX),
            in_flight_max=given.number(IN_FLIGHT, PRODUCER_BATCHES_REMEMBERED, 1, PRODUCER_BATCHES_REMEMBERED),
            delivery_timeout_ms=timeout_ms,
            topic_wait_ms=given.number(BLOCK, TOPIC_WAIT_MS, low=1),
            exactly_once=given.choice(DELIVERY, AT_LEAST_ONCE, (AT_LEAST_ONCE, EXACTLY_ONCE)) == EXACTLY_ONCE,
            transaction_timeout_ms=given.number(TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MS, low=1),
            id_prefix=given.text(ID_PREFIX) or PREFIX,
            first_batch=given.number(FIRST_BATCH, 0, low=0, high=INT64_MAX),
            application=given.text(APPLICATION),
            version=given.number(VERSION, -1, low=0, high=INT64_MAX),
        )


def _check_delivery(given: Given) -> None:
    if given.choice(ACKS, "all", ("all", "-1", "1", "0")) in ("0", "1"):
        raise BadOption(ACKS, "fewer acknowledgements than all could lose rows in silence", "leave it out or set all")
    if not given.flag(IDEMPOTENCE, True):
        raise BadOption(IDEMPOTENCE, "without it a retry could store rows twice", "leave it out or set true")


def _check_numbering(given: Given) -> None:
    if (APPLICATION in given) != (VERSION in given):
        missing, there = (VERSION, APPLICATION) if APPLICATION in given else (APPLICATION, VERSION)
        raise BadOption(missing, f"it is missing, and {there} is there", "give both, or none of them")
    if APPLICATION in given and given.text(DELIVERY, AT_LEAST_ONCE) != EXACTLY_ONCE:
        raise BadOption(APPLICATION, f"it has no effect without {DELIVERY}={EXACTLY_ONCE}", "set that, or leave it out")


VALUE, KEY, HEADERS, PARTITION = "value", "key", "headers", "partition"
BYTES_OR_TEXT = ("binary", "string")
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
COLUMN_TYPES = {
    VALUE: BYTES_OR_TEXT,
    KEY: BYTES_OR_TEXT,
    HEADERS: (HEADERS_TYPE,),
    TOPIC: ("string",),
    PARTITION: ("int",),
}
OF_THE_SOURCE = ("offset", "timestamp", "timestampType")
"""The source adds them to every row; a row that is passed on gets new ones."""
_CASTS = {
    VALUE: "cast it, or make one text of several columns with to_json(struct(…)) AS value",
    KEY: "cast it: CAST(key AS STRING) or CAST(key AS BINARY)",
    HEADERS: f"make it {HEADERS_TYPE}",
    TOPIC: "cast it: CAST(topic AS STRING)",
    PARTITION: "cast it: CAST(partition AS INT)",
}


class BadColumns(ValueError):
    """The rows are not what the sink takes; the text names the column and says what to do."""


def check_columns(columns: Sequence[tuple[str, str]], topic: str | None) -> None:
    """Names and types (as Spark's simpleString writes them) of what is to be written."""
    seen: set[str] = set()
    for name, kind in columns:
        if name in OF_THE_SOURCE:
            continue
        if name not in COLUMN_TYPES:
            raise BadColumns(_stranger(name))
        if name in seen:
            raise BadColumns(f"there are two columns {name}; drop or rename one of them")
        seen.add(name)
        if kind not in COLUMN_TYPES[name]:
            wanted = " or ".join(COLUMN_TYPES[name])
            raise BadColumns(f"column {name} is of type {kind} and must be {wanted}; {_CASTS[name]}")
    if VALUE not in seen:
        raise BadColumns("there is no column value, which is required; make one with to_json(struct(…)) AS value")
    if TOPIC not in seen and topic is None:
        raise BadColumns("no topic is given: set option topic, or add a column topic that names one for each row")


def _stranger(name: str) -> str:
    if name.lower() in COLUMN_TYPES:
        return f"column {name} is not one the sink takes; names count with their case: rename it to {name.lower()}"
    return (
        f"column {name} is not one the sink takes ({', '.join(COLUMN_TYPES)}) and would be lost; "
        "drop it, or put it into the value with to_json(struct(…)) AS value"
    )
