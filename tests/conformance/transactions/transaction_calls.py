"""Transactions over a raw connection: a producer of either generation step by step, and what admins ask.

The steady generation (librdkafka, kafka-python, aiokafka) adds its partitions itself and keeps its epoch. The bumping
one (Java from 4.0 on, franz-go) adds by writing and takes a new epoch from every end. Nothing is retried unless the
name says so.
"""

import os
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from raw import Body, Connection
from raw_batches import Batch, build, read, records_of
from wire_calls import fetch, topic_id

from waiting import eventually

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
NOT_ENOUGH_REPLICAS = 19
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
INVALID_REQUEST = 42
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
TRANSACTION_COORDINATOR_FENCED = 52
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
UNKNOWN_PRODUCER_ID = 59
OPERATION_NOT_ATTEMPTED = 55
FENCED_INSTANCE_ID = 82
INVALID_RECORD = 87
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105
TRANSACTION_ABORTABLE = 120
INVALID_REGULAR_EXPRESSION = 128

COMMIT, ABORT = True, False
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST = -1
TRANSACTIONAL, CONTROL = 0x10, 0x20
TIMEOUT_MS = 60_000
LAST_EPOCH = 32766
TRANSACTION = 1

Place = tuple[str, int]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Generation:
    name: str
    produce_version: int
    end_version: int
    offsets_version: int

    @property
    def bumps(self) -> bool:
        return self.end_version >= 5


STEADY = Generation("steady", produce_version=11, end_version=4, offsets_version=4)
BUMPING = Generation("bumping", produce_version=12, end_version=5, offsets_version=5)
GENERATIONS = (STEADY, BUMPING)


def differs(*, kafka: Value, skidway: Value) -> Value:
    """Where Skidway answers otherwise on purpose (docs/internals/transactions.md): what this broker has to answer."""
    return kafka if "SKIDWAY_CONFORMANCE_BOOTSTRAP" in os.environ else skidway


def retried(call: Callable[[], Body]) -> Body:
    """As clients do, while the last transaction ends or the coordinator loads."""
    busy = (
        COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR,
        NOT_ENOUGH_REPLICAS,
        CONCURRENT_TRANSACTIONS,
    )

    def answer() -> Body | None:
        body = call()
        return None if body["error_code"] in busy else body

    return eventually(answer)


def init(
    wire: Connection,
    transactional_id: str | None,
    *,
    version: int = 5,
    timeout_ms: int = TIMEOUT_MS,
    producer_id: int = -1,
    epoch: int = -1,
    **more: Any,
) -> Body:
    known = {"producer_id": producer_id, "producer_epoch": epoch} if version >= 3 else {}
    body = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms, **known, **more}
    return wire.call("InitProducerId", version, body)


class RawProducer:
    """Has the ids that the coordinator gave it last, and counts sequences as a client does."""

    def __init__(self, wire: Connection, generation: Generation, transactional_id: str, **options: Any) -> None:
        self.wire = wire
        self.generation = generation
        self.id = transactional_id
        self.timeout_ms: int = options.get("timeout_ms", TIMEOUT_MS)
        self.producer_id = self.epoch = -1
        self.sequences: dict[Place, int] = {}

    def init(self) -> "RawProducer":
        """As a newcomer, until the coordinator has done with whoever had the id before."""
        self.take(retried(lambda: init(self.wire, self.id, timeout_ms=self.timeout_ms)))
        return self

    def take(self, answer: Body) -> None:
        assert answer["error_code"] == NONE, answer
        self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        self.sequences.clear()

    @property
    def ids(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    # --- writing ---

    def add(self, *places: Place, version: int = 3, epoch: int | None = None) -> dict[Place, int]:
        """Place to error code."""
        return add(self.wire, self.id, self.producer_id, self.epoch if epoch is None else epoch, places, version)

    def open(self, place: Place) -> None:
        """Without writing: the coordinator adds the partition, as a client or as its leader asks for it."""

        def ask() -> Body:
            if not self.generation.bumps:
                return {"error_code": self.add(place)[place]}
            asked = Question(self.id, self.producer_id, self.epoch, [place], verify_only=False)
            return {"error_code": ask_as_a_broker(self.wire, asked)[self.id][place]}

        assert retried(ask)["error_code"] == NONE

    def batch(self, place: Place, written: Sequence[bytes], **options: Any) -> bytes:
        filled = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": self.sequences.get(place, 0),
            "attributes": TRANSACTIONAL,
        }
        return build(written, **{**filled, **options})

    def produce(
        self,
        place: Place,
        *written: bytes,
        version: int | None = None,
        named: str | None = "its own",
        data: bytes | None = None,
        **options: Any,
    ) -> Body:
        """The answer for the one partition, without adding it; `options` are those of a batch."""
        spoken = self.generation.produce_version if version is None else version
        batch = self.batch(place, written, **options) if data is None else data
        answer = produce_as(self.wire, self.id if named == "its own" else named, place, batch, spoken)
        if answer["error_code"] == NONE and "base_sequence" not in options and data is None:
            self.sequences[place] = self.sequences.get(place, 0) + len(written)
        return answer

    def write(self, place: Place, *written: bytes, **options: Any) -> int:
        """As a client: adds the partition if that is its part, and waits for the last end. The base offset."""
        if not self.generation.bumps:
            assert retried(lambda: {"error_code": self.add(place)[place]})["error_code"] == NONE
        answer = retried(lambda: self.produce(place, *written, **options))
        assert answer["error_code"] == NONE, answer
        return int(answer["base_offset"])

    # --- offsets ---

    def add_offsets(self, group: str, *, version: int = 4, epoch: int | None = None) -> int:
        body = {"transactional_id": self.id, "producer_id": self.producer_id, "group_id": group}
        body["producer_epoch"] = self.epoch if epoch is None else epoch
        return int(self.wire.call("AddOffsetsToTxn", version, body)["error_code"])

    def offer_offsets(
        self, group: str, topic: str, offsets: Mapping[int, int], *, version: int | None = None, **more: Any
    ) -> dict[int, int]:
        """TxnOffsetCommit: partition to error code."""
        spoken = self.generation.offsets_version if version is None else version
        listed = [
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": "m"}
            for partition, offset in offsets.items()
        ]
        body = {
            "transactional_id": self.id,
            "group_id": group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "topics": [{"name": topic, "partitions": listed}],
            **more,
        }
        (answered,) = self.wire.call("TxnOffsetCommit", spoken, body)["topics"]
        return {one["partition_index"]: one["error_code"] for one in answered["partitions"]}

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int], **more: Any) -> None:
        """As a client."""
        if not self.generation.bumps:
            assert retried(lambda: {"error_code": self.add_offsets(group)})["error_code"] == NONE
        first = next(iter(offsets))
        answers: dict[int, int] = {}

        def offer() -> Body:
            answers.update(self.offer_offsets(group, topic, offsets, **more))
            return {"error_code": answers[first]}

        retried(offer)
        assert answers == dict.fromkeys(offsets, NONE)

    # --- ending ---

    def ask_to_end(self, commit: bool, *, version: int | None = None, **ids: int) -> Body:
        """EndTxn once, with these ids: `producer_id`, `epoch`. Its answer changes nothing here."""
        body = {
            "transactional_id": self.id,
            "producer_id": ids.get("producer_id", self.producer_id),
            "producer_epoch": ids.get("epoch", self.epoch),
            "committed": commit,
        }
        return self.wire.call("EndTxn", self.generation.end_version if version is None else version, body)

    def end(self, commit: bool) -> Body:
        """As a client, until it is known here; the markers may still be on their way."""
        answer = retried(lambda: self.ask_to_end(commit))
        assert answer["error_code"] == NONE, answer
        if self.generation.bumps:
            self.take(answer)
        return answer

    def finish(self, commit: bool) -> None:
        """Ends, and waits until all partitions have their marker."""
        self.end(commit)
        self.await_ended()

    def await_ended(self) -> Body:
        return eventually(lambda: found if (found := self.describe())["transaction_state"] in ENDED else None)

    def describe(self) -> Body:
        return describe(self.wire, self.id)


ENDED = ("Empty", "CompleteCommit", "CompleteAbort")
NewProducer = Callable[..., RawProducer]
"""The fixture that makes and initialises a producer."""


def produce_as(wire: Connection, transactional_id: str | None, place: Place, data: bytes, version: int) -> Body:
    topic, partition = place
    named = {"topic_id": topic_id(wire, topic)} if version >= 13 else {"name": topic}
    body = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 8000,
        "topic_data": [{**named, "partition_data": [{"index": partition, "records": data}]}],
    }
    ((one,),) = [found["partition_responses"] for found in wire.call("Produce", version, body)["responses"]]
    return dict(one)


def _by_topic(places: Iterable[Place]) -> list[Body]:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]


def _codes(results: Iterable[Body]) -> dict[Place, int]:
    return {
        (found["name"], one["partition_index"]): one["partition_error_code"]
        for found in results
        for one in found["results_by_partition"]
    }


def add(
    wire: Connection, transactional_id: str, producer_id: int, epoch: int, places: Iterable[Place], version: int = 3
) -> dict[Place, int]:
    """AddPartitionsToTxn as clients send it."""
    body = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": _by_topic(places),
    }
    return _codes(wire.call("AddPartitionsToTxn", version, body)["results_by_topic_v3_and_below"])


@dataclass(frozen=True)
class Question:
    """What a broker asks about one transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    places: Sequence[Place]
    verify_only: bool

    def body(self) -> Body:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "verify_only": self.verify_only,
            "topics": _by_topic(self.places),
        }


def ask_as_a_broker(wire: Connection, *questions: Question, version: int = 5) -> dict[str, dict[Place, int]]:
    """AddPartitionsToTxn as brokers send it: transactional id to place to error code."""
    answer = wire.call("AddPartitionsToTxn", version, {"transactions": [one.body() for one in questions]})
    assert answer["error_code"] == NONE, answer
    return {one["transactional_id"]: _codes(one["topic_results"]) for one in answer["results_by_transaction"]}


# ------------------------------------------------------------------------------------------------------ reading


def read_as(wire: Connection, place: Place, isolation: int, offset: int = 0, **options: Any) -> Body:
    return fetch(wire, place[0], offset, partition=place[1], isolation_level=isolation, **options)


def batches(wire: Connection, place: Place) -> list[Batch]:
    return read(read_as(wire, place, READ_UNCOMMITTED)["records"])


@dataclass(frozen=True)
class Marker:
    offset: int
    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int


def marker_of(batch: Batch) -> Marker:
    ((offset, key, value),) = records_of(batch)
    assert key is not None
    assert value is not None
    key_version, kind = struct.unpack(">hh", key)
    value_version, coordinator_epoch = struct.unpack(">hi", value)
    assert (key_version, value_version, batch.base_sequence) == (0, 0, -1)
    assert batch.attributes == CONTROL | TRANSACTIONAL
    return Marker(offset, batch.producer_id, batch.producer_epoch, {0: ABORT, 1: COMMIT}[kind], coordinator_epoch)


def markers(wire: Connection, place: Place) -> list[Marker]:
    return [marker_of(batch) for batch in batches(wire, place) if batch.attributes & CONTROL]


def visible(wire: Connection, place: Place) -> list[bytes | None]:
    """The values that a reader of what is committed shows: it leaves out what the answer says was aborted."""
    answer = read_as(wire, place, READ_COMMITTED)
    assert answer["error_code"] == NONE, answer
    starts = sorted((one["first_offset"], one["producer_id"]) for one in answer["aborted_transactions"])
    aborted: set[int] = set()
    shown: list[bytes | None] = []
    for batch in read(answer["records"]):
        while starts and starts[0][0] <= batch.last_offset:
            aborted.add(starts.pop(0)[1])
        if batch.attributes & CONTROL:
            aborted.discard(batch.producer_id)
        elif not (batch.attributes & TRANSACTIONAL and batch.producer_id in aborted):
            shown += [value for _, _, value in records_of(batch)]
    return shown


def end_as(wire: Connection, place: Place, isolation: int) -> int:
    return int(list_offset_as(wire, place, LATEST, isolation)["offset"])


def list_offset_as(wire: Connection, place: Place, timestamp: int, isolation: int, version: int = 9) -> Body:
    asked = {"partition_index": place[1], "timestamp": timestamp}
    body = {
        "replica_id": -1,
        "isolation_level": isolation,
        "topics": [{"name": place[0], "partitions": [asked]}],
    }
    ((one,),) = [answered["partitions"] for answered in wire.call("ListOffsets", version, body)["topics"]]
    return dict(one)


# ------------------------------------------------------------------------------------------------------ looking


def describe(wire: Connection, transactional_id: str) -> Body:
    (found,) = wire.call("DescribeTransactions", 0, {"transactional_ids": [transactional_id]})["transaction_states"]
    return dict(found)


def places_of(described: Body) -> set[Place]:
    return {(found["topic"], partition) for found in described["topics"] for partition in found["partitions"]}


def listed(wire: Connection, version: int = 2, **filters: Any) -> dict[str, Body]:
    """Transactional id to what is listed of it."""
    answer = wire.call("ListTransactions", version, filters)
    assert answer["error_code"] == NONE, answer
    return {found["transactional_id"]: found for found in answer["transaction_states"]}


def producers_of(wire: Connection, place: Place) -> dict[int, Body]:
    asked = {"topics": [{"name": place[0], "partition_indexes": [place[1]]}]}
    ((found,),) = [topic["partitions"] for topic in wire.call("DescribeProducers", 0, asked)["topics"]]
    assert found["error_code"] == NONE, found
    return {one["producer_id"]: one for one in found["active_producers"]}


def write_marker(
    wire: Connection,
    place: Place,
    producer_id: int,
    epoch: int,
    commit: bool,
    *,
    coordinator_epoch: int = 0,
    version: int = 1,
    **more: Any,
) -> int:
    marker = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": place[0], "partition_indexes": [place[1]]}],
        "coordinator_epoch": coordinator_epoch,
        **more,
    }
    (answered,) = wire.call("WriteTxnMarkers", version, {"markers": [marker]})["markers"]
    assert answered["producer_id"] == producer_id
    ((one,),) = [topic["partitions"] for topic in answered["topics"]]
    return int(one["error_code"])


def await_transaction_coordinators(wire: Connection) -> None:
    """The first question makes the internal topic; until its partitions are loaded, coordinators say so."""
    names = [f"warm-{number}" for number in range(300)]

    def all_answer() -> bool:
        answer = wire.call("FindCoordinator", 4, {"key_type": TRANSACTION, "coordinator_keys": names})
        if any(found["error_code"] != NONE for found in answer["coordinators"]):
            return False
        found = wire.call("DescribeTransactions", 0, {"transactional_ids": names})["transaction_states"]
        return all(one["error_code"] == TRANSACTIONAL_ID_NOT_FOUND for one in found)

    eventually(all_answer, seconds=60)


def stable(wire: Connection, group: str, topic: str, partition: int = 0, version: int = 8) -> tuple[int, int]:
    """(error code, offset) for a reader that asks for stable offsets."""
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [partition]}]}
    (found,) = wire.call("OffsetFetch", version, {"groups": [asked], "require_stable": True})["groups"]
    assert found["error_code"] == NONE, found
    ((one,),) = [topic["partitions"] for topic in found["topics"]]
    return one["error_code"], one["committed_offset"]


def new_id() -> str:
    return f"x-{uuid.uuid4().hex[:12]}"
