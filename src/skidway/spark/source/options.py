"""What a reader may ask of `format("skidway")`: options as text → `SourceOptions`, or `BadOption` before anything runs.

Names, meaning and defaults are those of Spark's Kafka connector. What differs: options that contradict each other are
refused instead of ranked, unknown ones are refused instead of ignored, and `isolation` is read_committed unless told
otherwise. Every message names the option and what to write instead.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from skidway.blocking_client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from skidway.limits import INT32_MAX, INT64_MAX, MIB
from skidway.spark.client_settings import BOOTSTRAP, BOOTSTRAP_SHORT, BadOption, ClientSettings, Given, sort_out
from skidway.spark.source.positions import (
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    Edge,
    Position,
    Subscribe,
    SubscribePattern,
    Topics,
    read_json,
    read_offsets,
    read_partitions,
)

__all__ = ["BadOption", "SourceOptions"]

STRATEGIES = ("assign", "subscribe", "subscribePattern")
STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
WITHOUT_EFFECT_IN_BATCH = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
ISOLATION = "isolation"
KAFKA_ISOLATION = "kafka.isolation.level"
KAFKA_FETCH_BYTES = ("kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes")
NAMES = (
    *STRATEGIES,
    *STARTS,
    *ENDS,
    *WITHOUT_EFFECT_IN_BATCH,
    *KAFKA_FETCH_BYTES,
    ISOLATION,
    KAFKA_ISOLATION,
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "groupId",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "kernel",
    "backfill.path",
    "backfill.active",
)
WITHOUT_EFFECT = (
    "kafka.allow.auto.create.topics",
    "kafka.auto.commit.interval.ms",
    "kafka.check.crcs",
    "kafka.client.rack",
    "kafka.default.api.timeout.ms",
    "kafka.exclude.internal.topics",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.group.instance.id",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.partition.assignment.strategy",
    "kafka.session.timeout.ms",
)
"""Settings of a Kafka consumer without a counterpart in a reader that joins no group and keeps no session."""
REFUSED = {
    "path": ("load() takes no path here", 'name topics: option("subscribe", "…").load()'),
    "topic": ("it says where to write", 'to read write option("subscribe", "…")'),
    "kafka.group.id": (
        "the source joins no group",
        'write option("groupId", "…") to have a stream\'s progress committed',
    ),
    "kafka.auto.offset.reset": (
        "Spark decides where reading begins",
        'write option("startingOffsets", "earliest") or "latest"',
    ),
    "kafka.key.deserializer": ("keys arrive as binary", "convert them with functions of DataFrames"),
    "kafka.value.deserializer": ("values arrive as binary", "convert them with functions of DataFrames"),
    "kafka.enable.auto.commit": (
        "Spark keeps the position in its checkpoint",
        'write option("groupId", "…") to make it visible',
    ),
    "kafka.interceptor.classes": ("interceptors are Java classes that could change rows", "leave it out"),
}

ISOLATION_LEVELS = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
MAX_TRIGGER_DELAY_MS = 15 * 60_000
FETCH_BYTES = 4 * MIB
FETCH_BYTES_MAX = 48 * MIB
GROUP_CHARACTERS_MAX = 255
OFFSET_RETRIES = 3
OFFSET_RETRY_PAUSE_MS = 1_000

_DURATION = re.compile(r"(\d{1,12})\s*(us|ms|s|m|min|h|d)?")
_DURATION_US = {"us": 1, "ms": 10**3, "s": 10**6, "m": 6 * 10**7, "min": 6 * 10**7, "h": 36 * 10**8, "d": 864 * 10**8}

Kernel = Literal["auto", "numba", "python"]
KERNELS: dict[str, Kernel] = {"auto": "auto", "numba": "numba", "python": "python"}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    topics: Topics
    start: Position
    end: Position
    client: ClientSettings | None
    """None in a backfill without brokers."""
    streaming: bool = False
    start_unmatched_is_latest: bool = False
    """Where a partition has no record as young as the start asks for: begin at its end, and do not fail."""
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    include_headers: bool = False
    isolation_level: int = READ_COMMITTED
    group_id: str | None = None
    kernel: Kernel = "auto"
    fetch_bytes: int = FETCH_BYTES
    fetch_timeout_ms: int = 0
    """How long a task waits for records that were there when it was planned."""
    offset_retries: int = OFFSET_RETRIES
    offset_retry_pause_ms: int = OFFSET_RETRY_PAUSE_MS
    backfill_paths: tuple[str, ...] = ()
    backfill_active: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None = False) -> "SourceOptions":
        """`streaming=None`: not known yet; what only one kind of query refuses is let through."""
        given = sort_out(
            {name: value for name, value in options.items() if name.lower() not in WITHOUT_EFFECT}, NAMES, REFUSED
        )
        _check_kind(given, streaming)
        client = _client(given)
        parsed = cls(
            topics=_topics(given),
            start=_position(given, STARTS, LATEST if streaming else EARLIEST),
            end=_position(given, ENDS, LATEST),
            client=client,
            streaming=bool(streaming),
            start_unmatched_is_latest=given.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
            == "latest",
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            min_partitions=_optional(given, "minPartitions", INT32_MAX),
            max_records_per_partition=_optional(given, "maxRecordsPerPartition"),
            max_offsets_per_trigger=_optional(given, "maxOffsetsPerTrigger"),
            min_offsets_per_trigger=_optional(given, "minOffsetsPerTrigger"),
            max_trigger_delay_ms=_duration(given, "maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
            include_headers=given.flag("includeHeaders", False),
            isolation_level=_isolation(given),
            group_id=_group(given),
            kernel=KERNELS[given.choice("kernel", "auto", KERNELS)],
            fetch_bytes=min(FETCH_BYTES_MAX, *(given.number(name, FETCH_BYTES, 1) for name in KAFKA_FETCH_BYTES)),
            fetch_timeout_ms=given.number(
                "kafkaConsumer.pollTimeoutMs", client.request_timeout_ms if client else 0, int(client is not None)
            ),
            offset_retries=given.number("fetchOffset.numRetries", OFFSET_RETRIES, 0, 1_000),
            offset_retry_pause_ms=_duration(given, "fetchOffset.retryIntervalMs", OFFSET_RETRY_PAUSE_MS),
            backfill_paths=_backfill_paths(given),
            backfill_active=given.flag("backfill.active", False),
        )
        _check_together(given, parsed, streaming)
        return parsed

    @property
    def brokers(self) -> ClientSettings:
        """Of a read that needs them."""
        assert self.client is not None, "only a backfill may be without brokers"
        return self.client


def without_effect(options: Mapping[str, str], *, streaming: bool) -> list[str]:
    """Options that are taken and change nothing in this kind of read."""
    known = {name.lower(): name for name in (*WITHOUT_EFFECT, *(() if streaming else WITHOUT_EFFECT_IN_BATCH))}
    return [known[name.lower()] for name in options if name.lower() in known]


def _check_kind(given: Given, streaming: bool | None) -> None:
    """What makes no sense in this kind of query."""
    if streaming:
        for name in (*ENDS, "backfill.path", "backfill.active"):
            if name in given:
                raise BadOption(name, "it is for batch reads (spark.read), and a stream has no end", "leave it out")
    elif streaming is False and "groupId" in given:
        problem = "it is for streams (spark.readStream): Spark does not tell a source when a batch read is done"
        raise BadOption("groupId", problem, "leave it out")


def _check_together(given: Given, options: SourceOptions, streaming: bool | None) -> None:
    smallest, largest = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if smallest is not None and largest is not None and smallest > largest:
        problem = f"{smallest} is more than maxOffsetsPerTrigger, which is {largest}"
        raise BadOption("minOffsetsPerTrigger", problem, "lower it or raise the other")
    if "startingOffsetsByTimestampStrategy" in given and isinstance(options.start, Edge | AtOffsets):
        raise BadOption(
            "startingOffsetsByTimestampStrategy",
            "nothing begins at a time",
            "give startingTimestamp or startingOffsetsByTimestamp, or leave it out",
        )
    if options.backfill_active and not options.backfill_paths:
        raise BadOption("backfill.active", "there is no backfill.path", "give it, or leave this one out")
    _check_not(options.end, EARLIEST, "endingOffsets", "earliest")
    if streaming is False:
        _check_not(options.start, LATEST, "startingOffsets", "latest")
        _check_order(options.start, options.end)


def _check_not(position: Position, edge: int, name: str, word: str) -> None:
    """A batch read cannot begin at the end, nor end at the beginning."""
    if position == Edge(edge):
        raise BadOption(name, f"in a batch read it cannot be {word}: there would be nothing to read", "leave it out")
    if isinstance(position, AtOffsets):
        for (topic, partition), offset in position.offsets.items():
            if offset == edge:
                problem = f"in a batch read {topic} partition {partition} cannot be {edge} ({word})"
                raise BadOption(name, problem, "give an offset or the other end")


def _check_order(start: Position, end: Position) -> None:
    pairs: list[tuple[str, int, int]] = []
    name = "startingOffsets"
    if isinstance(start, AtTime) and isinstance(end, AtTime):
        name, pairs = "startingTimestamp", [("", start.timestamp_ms, end.timestamp_ms)]
    elif isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        pairs = _pairs("startingOffsets", "endingOffsets", start.offsets, end.offsets)
    elif isinstance(start, AtTimes) and isinstance(end, AtTimes):
        name = "startingOffsetsByTimestamp"
        pairs = _pairs(name, "endingOffsetsByTimestamp", start.timestamps_ms, end.timestamps_ms)
    for where, begin, finish in pairs:
        if begin > finish >= 0:
            raise BadOption(name, f"{where}the start ({begin}) lies after the end ({finish})", "correct one of them")


def _pairs(
    start_name: str, end_name: str, start: Mapping[tuple[str, int], int], end: Mapping[tuple[str, int], int]
) -> list[tuple[str, int, int]]:
    for topic, partition in sorted(start.keys() ^ end.keys()):
        name, other = (start_name, end_name) if (topic, partition) in end else (end_name, start_name)
        raise BadOption(name, f"{topic} partition {partition} is only in {other}", "name the same partitions in both")
    return [(f"{place[0]} partition {place[1]}: ", start[place], end[place]) for place in start]


def _client(given: Given) -> ClientSettings | None:
    if "backfill.path" in given and BOOTSTRAP not in given and BOOTSTRAP_SHORT not in given:
        return None
    parsed = ClientSettings.parse(given)
    prefix = given.text("groupIdPrefix")
    if prefix is None or "kafka.client.id" in given:
        return parsed
    # There is no group to name; so that an operator still finds the query by it, connections carry it.
    return ClientSettings(parsed.bootstrap, prefix, parsed.request_timeout_ms)


def _topics(given: Given) -> Topics:
    chosen = [name for name in STRATEGIES if name in given]
    if len(chosen) != 1:
        problem = "it is missing" if not chosen else f"{' and '.join(chosen)} contradict each other"
        raise BadOption(chosen[0] if chosen else "subscribe", problem, f"give exactly one of {', '.join(STRATEGIES)}")
    name, text = chosen[0], given.text(chosen[0]) or ""
    if name == "assign":
        return Assign(read_partitions(name, text))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise BadOption(name, f"{text!r} names no topic", "name one or more, with commas between")
        return Subscribe(topics)
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(name, f"{text!r} is not a regular expression: {error}", "correct it") from None
    return SubscribePattern(text)


def _position(given: Given, names: tuple[str, str, str], default: int) -> Position:
    chosen = [name for name in names if name in given]
    if len(chosen) > 1:
        raise BadOption(chosen[0], f"{' and '.join(chosen)} contradict each other", "keep one of them")
    if not chosen:
        return Edge(default)
    name, text = chosen[0], given.text(chosen[0]) or ""
    if name == names[0]:
        return AtTime(given.number(name, 0, 0, INT64_MAX))
    if name == names[1]:
        return AtTimes(read_offsets(name, text, least=0, expected='{"topic": {"0": milliseconds}}'))
    edges = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in edges:
        return Edge(edges[text.lower()])
    return AtOffsets(read_offsets(name, text, least=EARLIEST, expected='earliest, latest or {"topic": {"0": offset}}'))


def _isolation(given: Given) -> int:
    chosen = {name: given.choice(name, "", ISOLATION_LEVELS) for name in (ISOLATION, KAFKA_ISOLATION) if name in given}
    if len(set(chosen.values())) > 1:
        raise BadOption(ISOLATION, f"it contradicts {KAFKA_ISOLATION}", "leave one of them out")
    return ISOLATION_LEVELS[next(iter(chosen.values()), "read_committed")]


def _group(given: Given) -> str | None:
    group = given.text("groupId")
    if group is not None and len(group) > GROUP_CHARACTERS_MAX:
        raise BadOption("groupId", f"it has {len(group)} characters", f"give at most {GROUP_CHARACTERS_MAX}")
    return group


def _backfill_paths(given: Given) -> tuple[str, ...]:
    text = given.text("backfill.path")
    if text is None or not text.startswith("["):
        return () if text is None else (text,)
    expected = 'a directory or a JSON list of them: ["/mnt/broker-1", "/mnt/broker-2"]'
    listed = read_json("backfill.path", text, expected)
    if not isinstance(listed, list) or not listed or not all(isinstance(path, str) and path for path in listed):
        raise BadOption("backfill.path", f"{text!r} is not a list of directories", f"give {expected}")
    return tuple(dict.fromkeys(listed))


def _optional(given: Given, name: str, most: int = INT64_MAX) -> int | None:
    return given.number(name, 1, 1, most) if name in given else None


def _duration(given: Given, name: str, default_ms: int) -> int:
    """As Spark writes them: a number of ms, or one with a unit."""
    text = given.text(name)
    if text is None:
        return default_ms
    matched = _DURATION.fullmatch(text.lower())
    if not matched:
        raise BadOption(name, f"{text!r} is not a duration", "write 500ms, 30s, 15m or 2h")
    return int(matched[1]) * _DURATION_US[matched[2] or "ms"] // 1_000
