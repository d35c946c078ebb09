"""Attacks on transactions: every refusal has its code, memory is bounded, and others are served meanwhile."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from attack import DELETE_TOPICS, INIT_PRODUCER_ID, Peer, answer, create_topic, good_client, part_of
from transaction_attack import (
    DESCRIBE,
    LIST,
    WRITE_MARKERS,
    Place,
    add,
    add_offsets,
    by_topic,
    commit_offsets,
    commit_together,
    end,
    find,
    init,
    init_frame,
    produce,
    state,
    taken,
    write_marker,
)

from skidway.errors import ErrorCode as E
from skidway.testing import Broker
from waiting import eventually

pytestmark = pytest.mark.xdist_group("hostile-transactions")
RESIDENT_MIB_MAX = 500
TOPIC = "goods"
PLACE = TOPIC, 0
OPEN, IDLE = "open", "idle"
"""Ids with a transaction in the first partition, and with none."""
TOPIC_PARTITIONS = 1_000
"""Of each of those that a wide transaction spans."""
STRANGER = 1 << 40
"""A producer id that nobody was given."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One coordinator keeps all ids."""
    with Broker(drain_ms=500, transactions={"state_partitions": 1, "timeout_check_ms": 300}) as broker:
        yield broker


@pytest.fixture(scope="module")
def peer(broker: Broker) -> Iterator[Peer]:
    create_topic(broker, TOPIC, 3, flush="os")
    with Peer(broker, 120.0) as peer:
        find(peer, "nobody")
        yield peer


class World:
    """A transaction that is open, an id without one, and what a request may say of them."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        taken(peer, OPEN)
        self.open = taken(peer, OPEN)
        self.idle = taken(peer, IDLE)
        assert add(peer, OPEN, self.open, [PLACE]) == {0}
        assert produce(peer, OPEN, self.open, PLACE) == 0
        self.older = self.open[0], self.open[1] - 1
        self.newer = self.open[0], self.open[1] + 1
        self.foreign = STRANGER, self.open[1]


@pytest.fixture
def world(peer: Peer) -> World:
    return World(peer)


def code(reply: Any) -> int:
    return int(reply.error_code)


def delete(peer: Peer, topic: str) -> None:
    (deleted,) = peer.call(DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=30_000).responses
    assert deleted.error_code == E.NONE


INIT: dict[str, tuple[Any, E]] = {
    "no id": (lambda w: init(w.peer, ""), E.INVALID_REQUEST),
    "a producer id alone": (lambda w: init(w.peer, IDLE, producer_id=w.idle[0]), E.INVALID_REQUEST),
    "an epoch alone": (lambda w: init(w.peer, IDLE, producer_epoch=0), E.INVALID_REQUEST),
    "no time": (lambda w: init(w.peer, IDLE, 0), E.INVALID_TRANSACTION_TIMEOUT),
    "less than no time": (lambda w: init(w.peer, IDLE, -1), E.INVALID_TRANSACTION_TIMEOUT),
    "for ever": (lambda w: init(w.peer, IDLE, 2**31 - 1), E.INVALID_TRANSACTION_TIMEOUT),
    "somebody else": (lambda w: init(w.peer, IDLE, producer_id=STRANGER, producer_epoch=0), E.PRODUCER_FENCED),
    "somebody else, v3": (
        lambda w: init(w.peer, IDLE, version=3, producer_id=STRANGER, producer_epoch=0),
        E.INVALID_PRODUCER_EPOCH,
    ),
    "a later epoch": (lambda w: init(w.peer, IDLE, producer_id=w.idle[0], producer_epoch=32_000), E.PRODUCER_FENCED),
}
ADD: dict[str, tuple[Any, set[E]]] = {
    "no id": (lambda w: add(w.peer, "", w.open, [PLACE]), {E.INVALID_REQUEST}),
    "an id of nobody": (lambda w: add(w.peer, "nobody", w.open, [PLACE]), {E.INVALID_PRODUCER_ID_MAPPING}),
    "another id": (lambda w: add(w.peer, OPEN, w.idle, [PLACE]), {E.INVALID_PRODUCER_ID_MAPPING}),
    "a stranger": (lambda w: add(w.peer, OPEN, w.foreign, [PLACE]), {E.INVALID_PRODUCER_ID_MAPPING}),
    "an older epoch": (lambda w: add(w.peer, OPEN, w.older, [PLACE]), {E.PRODUCER_FENCED}),
    "an older epoch, v1": (lambda w: add(w.peer, OPEN, w.older, [PLACE], 1), {E.INVALID_PRODUCER_EPOCH}),
    "a later epoch": (lambda w: add(w.peer, OPEN, w.newer, [PLACE]), {E.PRODUCER_FENCED}),
    "one topic that is not there": (
        lambda w: add(w.peer, OPEN, w.open, [PLACE, ("none", 0)]),
        {E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION},
    ),
    "one partition that is not there": (
        lambda w: add(w.peer, OPEN, w.open, [PLACE, (TOPIC, 3), (TOPIC, -1)]),
        {E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION},
    ),
    "one of the broker's own": (
        lambda w: add(w.peer, OPEN, w.open, [PLACE, ("__transaction_state", 0)]),
        {E.OPERATION_NOT_ATTEMPTED, E.TOPIC_AUTHORIZATION_FAILED},
    ),
}
OTHERS: dict[str, tuple[Any, E]] = {
    "offsets: no id": (lambda w: add_offsets(w.peer, "", w.open), E.INVALID_REQUEST),
    "offsets: a stranger": (lambda w: add_offsets(w.peer, OPEN, w.foreign), E.INVALID_PRODUCER_ID_MAPPING),
    "offsets: an older epoch": (lambda w: add_offsets(w.peer, OPEN, w.older), E.PRODUCER_FENCED),
    "offsets: an older epoch, v0": (
        lambda w: add_offsets(w.peer, OPEN, w.older, version=0),
        E.INVALID_PRODUCER_EPOCH,
    ),
    "end: no id": (lambda w: end(w.peer, "", w.open), E.INVALID_REQUEST),
    "end: an id of nobody": (lambda w: end(w.peer, "nobody", w.open), E.INVALID_PRODUCER_ID_MAPPING),
    "end: a stranger": (lambda w: end(w.peer, OPEN, w.foreign), E.INVALID_PRODUCER_ID_MAPPING),
    "end: an older epoch": (lambda w: end(w.peer, OPEN, w.older), E.PRODUCER_FENCED),
    "end: an older epoch, v1": (lambda w: end(w.peer, OPEN, w.older, version=1), E.INVALID_PRODUCER_EPOCH),
    "end: an older epoch, v5": (lambda w: end(w.peer, OPEN, w.older, version=5), E.PRODUCER_FENCED),
    "end: nothing": (lambda w: end(w.peer, IDLE, w.idle), E.INVALID_TXN_STATE),
    "end: nothing, v5": (lambda w: end(w.peer, IDLE, w.idle, version=5), E.INVALID_TXN_STATE),
    "commit offsets: no group": (lambda w: commit_offsets(w.peer, OPEN, w.open, PLACE, ""), E.INVALID_GROUP_ID),
    "commit offsets: not added, v3": (
        lambda w: commit_offsets(w.peer, OPEN, w.open, PLACE, version=3),
        E.INVALID_TXN_STATE,
    ),
    "commit offsets: not added": (lambda w: commit_offsets(w.peer, OPEN, w.open, PLACE), E.TRANSACTION_ABORTABLE),
    "commit offsets: an older epoch": (
        lambda w: commit_offsets(w.peer, OPEN, w.older, PLACE, version=5),
        E.INVALID_PRODUCER_EPOCH,
    ),
    "commit offsets: no such topic": (
        lambda w: commit_offsets(w.peer, OPEN, w.open, ("none", 0), version=5),
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "produce: without an id": (
        lambda w: produce(w.peer, None, w.open, (TOPIC, 1)),
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "produce: not added, v10": (lambda w: produce(w.peer, OPEN, w.open, (TOPIC, 1), 10), E.INVALID_TXN_STATE),
    "produce: not added": (lambda w: produce(w.peer, OPEN, w.open, (TOPIC, 1)), E.TRANSACTION_ABORTABLE),
    "produce: an older epoch": (lambda w: produce(w.peer, OPEN, w.older, PLACE), E.INVALID_PRODUCER_EPOCH),
    "produce: a stranger": (lambda w: produce(w.peer, OPEN, w.foreign, PLACE), E.INVALID_PRODUCER_ID_MAPPING),
    "produce: a stranger, v12": (lambda w: produce(w.peer, OPEN, w.foreign, PLACE, 12), E.INVALID_PRODUCER_ID_MAPPING),
    "produce: a marker": (lambda w: produce(w.peer, OPEN, w.open, PLACE, control=True), E.INVALID_RECORD),
    "produce: a plain batch among them": (
        lambda w: produce(w.peer, None, w.open, PLACE, transactional=False, base_sequence=1),
        E.INVALID_TXN_STATE,
    ),
    "marker: no such partition": (
        lambda w: write_marker(w.peer, w.open, (TOPIC, 3)),
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "marker: an older epoch": (lambda w: write_marker(w.peer, w.older, PLACE), E.INVALID_PRODUCER_EPOCH),
    "marker: the same epoch, version 2": (
        lambda w: write_marker(w.peer, w.open, PLACE, transaction_version=2),
        E.INVALID_PRODUCER_EPOCH,
    ),
    "describe: no such id": (lambda w: code(state(w.peer, "nobody")), E.TRANSACTIONAL_ID_NOT_FOUND),
    "list: a pattern that is none": (
        lambda w: code(w.peer.call(LIST, 2, transactional_id_pattern="(")),
        E.INVALID_REGULAR_EXPRESSION,
    ),
    "together: nothing": (lambda w: code(commit_together(w.peer)), E.INVALID_REQUEST),
    "together: one twice": (
        lambda w: code(commit_together(w.peer, (OPEN, *w.open), (OPEN, *w.open))),
        E.INVALID_REQUEST,
    ),
    "together: one of nobody": (
        lambda w: code(commit_together(w.peer, (OPEN, *w.open), ("nobody", 1, 0))),
        E.INVALID_PRODUCER_ID_MAPPING,
    ),
    "together: one that has nothing open": (
        lambda w: code(commit_together(w.peer, (OPEN, *w.open), (IDLE, *w.idle))),
        E.INVALID_TXN_STATE,
    ),
}


def test_every_refusal_has_its_code_and_changes_nothing(broker: Broker, world: World) -> None:
    with good_client(broker, "every refusal of transactions", RESIDENT_MIB_MAX):
        found: dict[str, object] = {name: E(ask(world).error_code) for name, (ask, _) in INIT.items()}
        assert found == {name: expected for name, (_, expected) in INIT.items()}
        found = {name: {E(each) for each in ask(world)} for name, (ask, _) in ADD.items()}
        assert found == {name: expected for name, (_, expected) in ADD.items()}
        found = {name: E(ask(world)) for name, (ask, _) in OTHERS.items()}
        assert found == {name: expected for name, (_, expected) in OTHERS.items()}
        described = state(world.peer, OPEN)
        assert described.transaction_state == "Ongoing"
        assert [(topic.topic, topic.partitions) for topic in described.topics] == [(TOPIC, [0])]
        assert end(world.peer, OPEN, world.open) == E.NONE


def test_a_strangers_marker_spoils_one_transaction_and_no_other(broker: Broker, peer: Peer) -> None:
    """It says that it comes from a later coordinator. The partition believes it, and takes no other marker of that
    producer: the transaction ends when the topic is gone."""
    place: Place = create_topic(broker, "spoilt", flush="os"), 0
    spoilt, other = taken(peer, "spoilt"), taken(peer, "other")
    assert add(peer, "spoilt", spoilt, [place]) == add(peer, "other", other, [place]) == {0}
    assert write_marker(peer, spoilt, place, 2**31 - 1) == E.NONE
    assert write_marker(peer, spoilt, place, 5) == E.TRANSACTION_COORDINATOR_FENCED
    assert end(peer, "spoilt", spoilt) == end(peer, "other", other) == E.NONE
    eventually(lambda: state(peer, "other").transaction_state == "CompleteCommit")
    assert state(peer, "spoilt").transaction_state == "PrepareCommit"
    assert code(init(peer, "spoilt")) == E.CONCURRENT_TRANSACTIONS
    assert end(peer, "spoilt", spoilt) == E.CONCURRENT_TRANSACTIONS
    delete(peer, "spoilt")
    eventually(lambda: state(peer, "spoilt").transaction_state == "CompleteCommit")
    taken(peer, "spoilt")


def test_markers_of_producers_that_do_not_exist(broker: Broker, peer: Peer) -> None:
    """Each is a marker in the log, and a producer that is remembered: both are bounded by what is remembered at all."""
    random = Random(7)

    def marker() -> Any:
        return part_of(WRITE_MARKERS, "WritableTxnMarker")(
            producer_id=STRANGER + random.randrange(1_000_000),
            producer_epoch=random.randrange(32_768),
            transaction_result=random.random() < 0.5,
            topics=by_topic(WRITE_MARKERS, "WritableTxnMarkerTopic", [(TOPIC, 2)]),
            coordinator_epoch=random.randrange(2**31),
            transaction_version=random.randrange(4),
        )

    with good_client(broker, "5,000 markers from strangers", RESIDENT_MIB_MAX):
        for _ in range(5):
            answered = peer.call(WRITE_MARKERS, 2, markers=[marker() for _ in range(1_000)])
            codes = {each.topics[0].partitions[0].error_code for each in answered.markers}
            assert codes <= {E.NONE, E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED}
        producer = taken(peer, "among-strangers")
        assert add(peer, "among-strangers", producer, [(TOPIC, 2)]) == {0}
        assert produce(peer, "among-strangers", producer, (TOPIC, 2)) == E.NONE
        assert end(peer, "among-strangers", producer) == E.NONE
        eventually(lambda: state(peer, "among-strangers").transaction_state == "CompleteCommit")


def test_names_that_are_long_or_odd(broker: Broker, peer: Peer) -> None:
    names = ["x" * 32_767, "\0", "é" * 10_000, " ", "../../etc", "a\nb"]
    with good_client(broker, "transactional ids that are long or odd", RESIDENT_MIB_MAX):
        for name in names:
            assert code(init(peer, name)) == E.NONE, name[:20]
        states = peer.call(DESCRIBE, 0, transactional_ids=names).transaction_states
        assert [(each.error_code, each.transactional_id) for each in states] == [(E.NONE, name) for name in names]


@pytest.mark.parametrize(
    ("count", "refused"), [(1_000, 0), pytest.param(100_500, 500, marks=pytest.mark.chaos)], ids=["1,000", "100,500"]
)
def test_more_ids_than_anybody_needs(broker: Broker, peer: Peer, count: int, refused: int) -> None:
    known = len(peer.call(LIST, 2).transaction_states)
    refused += known if refused else 0
    with good_client(broker, f"{count:,} transactional ids", 1_000):
        codes: list[int] = []
        for start in range(0, count, 500):
            names = [f"many-{number}" for number in range(start, min(start + 500, count))]
            peer.send(b"".join(map(init_frame, names)))
            codes += [code(answer(INIT_PRODUCER_ID, 5, peer.reply())) for _ in names]
        assert codes == [E.NONE] * (count - refused) + [E.POLICY_VIOLATION] * refused
        listed = peer.call(LIST, 2, transactional_id_pattern="many-.*").transaction_states
        assert len(listed) == count - refused
        assert code(init(peer, "many-0")) == E.NONE, "those that are known go on"


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [(200, E.NONE), pytest.param(10_001, E.POLICY_VIOLATION, marks=pytest.mark.chaos)],
    ids=["200", "10,001"],
)
def test_a_transaction_over_very_many_partitions(broker: Broker, peer: Peer, partitions: int, expected: E) -> None:
    key = f"wide-{partitions}"
    places = [(f"{key}-{number // TOPIC_PARTITIONS}", number % TOPIC_PARTITIONS) for number in range(partitions)]
    topics = sorted({topic for topic, _ in places})
    for topic in topics:
        create_topic(broker, topic, min(partitions, TOPIC_PARTITIONS), flush="os")
    with good_client(broker, f"a transaction over {partitions:,} partitions", 1_000):
        producer = taken(peer, key)
        assert add(peer, key, producer, places) == {expected}
        if expected:
            assert state(peer, key).transaction_state == "Empty"
            assert add(peer, key, producer, places[:-1]) == {E.NONE}
            assert add(peer, key, producer, places[-1:]) == {expected}
        assert end(peer, key, producer) == E.NONE
        eventually(lambda: state(peer, key).transaction_state == "CompleteCommit", seconds=120)
    for topic in topics:
        delete(peer, topic)


def test_a_marker_of_no_producer_is_not_written(peer: Peer) -> None:
    for producer in ((-1, 0), (-(2**63), 0), (STRANGER, -1), (STRANGER, -(2**15))):
        for place in (PLACE, ("__transaction_state", 0)):
            assert write_marker(peer, producer, place) == E.INVALID_REQUEST
