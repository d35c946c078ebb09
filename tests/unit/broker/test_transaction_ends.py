"""Transactions that end: EndTxn, markers in partitions of this node, what deleted topics and time do to them."""

from typing import Any

import pytest
from broker_world import World, batch, code, part
from transactions_world import ID, TIMEOUT_MS, Transactions, marker, transaction

from skidway.broker.coordinators.marker_sender import LATE_MS, RETRY_MS_MAX
from skidway.broker.coordinators.news import MarkerRefused, MarkersLate
from skidway.broker.handlers import list_transactions
from skidway.broker.partitions.partition import Partition
from skidway.errors import ErrorCode, NotEnoughReplicas
from skidway.runtime.log_store import LogStore
from skidway.transactions.coordinator import TransactionCoordinator
from skidway.transactions.operations import ListTransactions
from skidway.transactions.records import TransactionRecord
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.transaction import Ended, Ending

E = ErrorCode
PLACE = ("t", 0)
CHECK_MS = 10_000


@pytest.fixture
def story() -> Transactions:
    return Transactions()


def begun(story: Transactions, key: str = ID) -> tuple[int, int]:
    reply = story.init(key)
    assert reply.error_code == 0
    return reply.producer_id, reply.producer_epoch


def opened(story: Transactions, *places: tuple[str, int], key: str = ID) -> tuple[int, int]:
    """A transaction of a client of the older kind."""
    producer = begun(story, key)
    assert story.add(producer, *places, key=key) == dict.fromkeys(places, 0)
    return producer


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_writes_a_marker_to_every_partition(story: Transactions, commit: bool) -> None:
    producer = opened(story, PLACE, ("t", 2))
    assert story.end(producer, commit).error_code == 0
    story.world.settle()
    assert [story.markers("t", index) for index in range(3)] == [[(*producer, commit)], [], [(*producer, commit)]]
    assert story.state().state == Ended(commit, story.state().started_ms)
    assert story.world.node.rooms.services.transactions.sender.task_count == 0


def test_with_an_epoch_for_every_end_markers_and_answer_have_the_next(story: Transactions) -> None:
    producer_id, epoch = begun(story)
    assert story.add_many(transaction((producer_id, epoch), PLACE)) == [{PLACE: 0}]
    ended = story.end((producer_id, epoch), version=5)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, producer_id, epoch + 1)
    story.world.settle()
    assert story.markers() == [(producer_id, epoch + 1, True)]
    again = story.end((producer_id, epoch), version=5)
    assert (again.error_code, again.producer_epoch) == (0, epoch + 1), "who has not heard the answer gets it again"
    assert len(story.markers()) == 1


def test_the_end_is_answered_when_it_is_stored_and_no_marker_is_written_before(story: Transactions) -> None:
    producer = opened(story, PLACE)
    story.peer.send(
        "EndTxn", version=3, transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=True
    )
    for _ in range(3):
        story.world.end_turn()
    assert isinstance(story.state().state, Ending)
    assert (story.peer.replies(), story.markers()) == ([], [])
    story.world.sync()
    assert story.peer.reply().error_code == 0, "it does not wait for markers"
    story.world.settle()
    assert story.markers() == [(*producer, True)]


def test_it_is_complete_when_the_markers_are_committed_and_not_when_they_are_written(story: Transactions) -> None:
    producer = opened(story, PLACE)
    assert story.peer.send(
        "EndTxn", version=3, transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=True
    )
    story.world.end_turn()
    story.world.sync()  # the end is stored, the marker is not
    assert story.markers() == [(*producer, True)]
    for _ in range(3):
        story.world.end_turn()
    assert isinstance(story.state().state, Ending)
    story.world.settle()
    story.peer.replies()
    assert story.add(producer, PLACE) == {PLACE: 0}, "and then the next one begins"


def test_an_end_in_the_words_of_its_version(story: Transactions) -> None:
    producer_id, epoch = opened(story, PLACE)
    refused = [story.end((producer_id, epoch + 1), version=version).error_code for version in (0, 1, 2, 5)]
    assert refused == [E.INVALID_PRODUCER_EPOCH] * 2 + [E.PRODUCER_FENCED] * 2
    assert story.end((producer_id + 1, epoch)).error_code == E.INVALID_PRODUCER_ID_MAPPING
    assert story.end((producer_id, epoch), key="").error_code == E.INVALID_REQUEST
    assert story.end((producer_id, epoch), key="nobody").error_code == E.INVALID_PRODUCER_ID_MAPPING
    empty = begun(story, "empty")
    assert story.end(empty, key="empty").error_code == E.INVALID_TXN_STATE


def test_offsets_of_a_group_belong_to_a_transaction(story: Transactions) -> None:
    producer = begun(story)
    assert "__consumer_offsets" not in story.world.node.image.topics
    fields = {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1], "group_id": "g"}
    assert story.peer.call("AddOffsetsToTxn", version=3, **fields).error_code == 0
    kind = story.world.node.rooms.services.groups.kind
    assert story.state().places == {("__consumer_offsets", kind.place("g", kind.topic_partitions))}
    fenced = {**fields, "producer_epoch": producer[1] + 1}
    assert story.peer.call("AddOffsetsToTxn", version=1, **fenced).error_code == E.INVALID_PRODUCER_EPOCH
    assert story.peer.call("AddOffsetsToTxn", version=2, **fenced).error_code == E.PRODUCER_FENCED
    nobody = {**fields, "transactional_id": ""}
    assert story.peer.call("AddOffsetsToTxn", version=3, **nobody).error_code == E.INVALID_REQUEST


def test_a_transaction_that_takes_too_long_is_aborted_in_the_next_epoch(story: Transactions) -> None:
    producer_id, epoch = opened(story, PLACE)
    for _ in range((TIMEOUT_MS + CHECK_MS) // 1_000 + 1):
        story.world.pass_time(1_000)
        story.world.settle()
    assert story.markers() == [(producer_id, epoch + 1, False)]
    assert isinstance(story.state().state, Ended)
    assert story.end((producer_id, epoch)).error_code == E.PRODUCER_FENCED


def test_a_newcomer_aborts_what_is_open_and_gets_the_id_when_that_is_done(story: Transactions) -> None:
    producer_id, epoch = opened(story, PLACE)
    assert story.init().error_code == E.CONCURRENT_TRANSACTIONS
    story.world.settle()
    assert story.markers() == [(producer_id, epoch + 1, False)]
    taken = story.init()
    assert (taken.error_code, taken.producer_id, taken.producer_epoch) == (0, producer_id, epoch + 2)


def test_topics_that_are_deleted_need_no_markers(story: Transactions) -> None:
    story.peer.create("gone")
    producer = opened(story, PLACE, ("gone", 0))
    story.peer.delete("gone")
    story.world.settle()
    story.peer.replies()
    assert story.end(producer).error_code == 0
    story.world.settle()
    assert isinstance(story.state().state, Ended)
    assert story.markers() == [(*producer, True)]


class Refusals:
    """Partitions that take no markers for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused = 0
        self.error: Exception | None = NotEnoughReplicas("not now")
        write = Partition.write_marker

        def write_marker(partition: Partition, *arguments: Any) -> int:
            if self.error is None or partition.index != 0:
                return write(partition, *arguments)
            self.refused += 1
            raise self.error

        monkeypatch.setattr(Partition, "write_marker", write_marker)


def test_a_partition_that_takes_no_marker_gets_it_again_after_pauses_that_grow(
    story: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = Refusals(monkeypatch)
    producer = opened(story, PLACE, ("t", 1))
    assert story.end(producer).error_code == 0
    story.world.settle()
    assert story.markers("t", 1) == [(*producer, True)]
    assert refusals.refused == 1
    for _ in range(100):
        story.world.pass_time(100)
        story.world.settle()
    assert 5 <= refusals.refused <= 20, "ten seconds, with pauses of up to one"
    assert not [event for event in story.world.reported if isinstance(event, MarkersLate)]
    for _ in range(200):
        story.world.pass_time(1_000)
        story.world.settle()
    (late,) = [event for event in story.world.reported if isinstance(event, MarkersLate)]
    assert (late.transactional_id, late.partition, late.others) == (ID, "t-0", 0)
    assert LATE_MS <= late.since_ms < LATE_MS + 2 * RETRY_MS_MAX
    assert isinstance(story.state().state, Ending)
    assert story.add(producer, PLACE) == {PLACE: E.CONCURRENT_TRANSACTIONS}
    refusals.error = None
    story.world.pass_time(RETRY_MS_MAX)
    story.world.settle()
    assert story.markers() == [(*producer, True)]
    assert story.markers("t", 1) == [(*producer, True)], "who has answered is not asked again"
    assert isinstance(story.state().state, Ended)


def state_of(record: TransactionRecord) -> Any:
    return None if record.transaction is None else record.transaction.state


def test_a_coordinator_that_cannot_store_the_end_is_told_again_and_no_marker_is_written_twice(
    story: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[Any] = []
    refusing = True
    append = LogStore.append

    def append_or_refuse(store: Any, records: Any, now_ms: int) -> int:
        ended = [each for each in records if isinstance(each, TransactionRecord) and isinstance(state_of(each), Ended)]
        if refusing and ended:
            refused.append(records)
            raise NotEnoughReplicas("not now")
        return append(store, records, now_ms)

    monkeypatch.setattr(LogStore, "append", append_or_refuse)
    producer = opened(story, PLACE, ("t", 1))
    assert story.end(producer).error_code == 0
    for _ in range(100):
        story.world.pass_time(100)
        story.world.settle()
    assert 5 <= len(refused) <= 15
    assert isinstance(story.state().state, Ending)
    refusing = False
    story.world.pass_time(RETRY_MS_MAX)
    story.world.settle()
    assert isinstance(story.state().state, Ended)
    assert (story.markers(), story.markers("t", 1)) == ([(*producer, True)], [(*producer, True)])
    assert story.world.node.rooms.services.transactions.sender.task_count == 0


def test_a_topic_that_is_deleted_while_its_marker_is_refused_ends_the_wait(
    story: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    Refusals(monkeypatch)
    producer = opened(story, PLACE)
    assert story.end(producer).error_code == 0
    story.world.settle()
    assert isinstance(story.state().state, Ending)
    story.peer.delete("t")
    story.world.settle()
    assert isinstance(story.state().state, Ended)
    story.world.pass_time(RETRY_MS_MAX)
    story.world.settle()
    assert story.world.node.rooms.services.transactions.sender.task_count == 0


@pytest.mark.parametrize("ended", ["not", "prepared", "complete"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_restart_in_every_state(monkeypatch: pytest.MonkeyPatch, clean: bool, ended: str) -> None:
    story = Transactions()
    producer = opened(story, PLACE, ("t", 1))
    with monkeypatch.context() as until_then:
        if ended == "prepared":
            Refusals(until_then)
        if ended != "not":
            assert story.end(producer).error_code == 0
        story.world.settle()
        if clean:
            story.world.node.close(clean=True)
        else:
            story.world.disk.kill()
    again = Transactions(story.world.disk)
    for _ in range(5):
        again.world.settle()
        again.world.pass_time(50)
    if ended == "not":
        assert again.markers() == []
        assert again.end(producer).error_code == 0
        again.world.settle()
    assert isinstance(again.state().state, Ended)
    assert again.markers()[0] == (*producer, True)
    assert len(again.markers()) == 1
    twice = 2 if ended == "prepared" else 1
    assert again.markers("t", 1) == [(*producer, True)] * twice, "a load asks for all markers again"
    assert again.end(producer).error_code == 0


def test_markers_of_other_nodes_are_answered_when_they_are_committed(story: Transactions) -> None:
    asked = marker((77, 3), PLACE, ("t", 1), ("t", 9), coordinator_epoch=5)
    story.peer.send("WriteTxnMarkers", version=2, markers=[asked])
    story.world.end_turn()
    assert story.peer.replies() == []
    story.world.settle()
    story.peer.replies()
    assert story.markers() == [(77, 3, True)]
    assert story.write_markers(asked, marker((78, 0), PLACE, commit=False)) == [
        {PLACE: 0, ("t", 1): 0, ("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION},
        {PLACE: 0},
    ]
    older = marker((77, 3), PLACE, coordinator_epoch=4)
    assert story.write_markers(older) == [{PLACE: E.TRANSACTION_COORDINATOR_FENCED}]
    fenced = marker((77, 2), PLACE, coordinator_epoch=5)
    assert story.write_markers(fenced, version=1) == [{PLACE: E.INVALID_PRODUCER_EPOCH}]
    assert story.write_markers() == []


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_a_final_refusal_ends_the_sending(
    story: Transactions, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    refusals = Refusals(monkeypatch)
    refusals.error = next(each for each in _errors() if each.code == code)
    producer = opened(story, PLACE)
    story.end(producer)
    for _ in range(20):
        story.world.pass_time(1_000)
        story.world.settle()
    assert refusals.refused == 1
    assert isinstance(story.state().state, Ending)
    assert story.world.node.rooms.services.transactions.sender.task_count == 0
    (told,) = [event for event in story.world.reported if isinstance(event, MarkerRefused)]
    assert told == MarkerRefused(ID, "t-0", code)


def _errors() -> list[Any]:
    from skidway.errors import InvalidProducerEpoch, TransactionCoordinatorFenced

    return [InvalidProducerEpoch("fenced"), TransactionCoordinatorFenced("fenced")]


def test_thousands_of_markers_take_more_than_one_turn() -> None:
    story = Transactions(transactions=TransactionSettings(state_partitions=1))
    story.peer.create("wide", 1_000, flush="os")
    story.world.settle()
    places = [("wide", index) for index in range(1_000)]
    producer = begun(story)
    assert set(story.add(producer, *places).values()) == {0}
    story.world.clock.per_look_ms = 7  # a turn does a few steps at most
    story.peer.send(
        "EndTxn", version=3, transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=True
    )
    story.world.end_turn()
    story.world.sync()
    written = sum(len(story.markers(*place)) for place in places)
    assert 0 < written <= 400
    for _ in range(20):
        story.world.end_turn()
        story.world.sync()
    assert sum(len(story.markers(*place)) for place in places) == 1_000
    assert isinstance(story.state().state, Ended)


def described(story: Transactions, *keys: str) -> list[Any]:
    states = story.peer.call("DescribeTransactions", version=0, transactional_ids=list(keys)).transaction_states
    return [
        (
            state.error_code,
            state.transaction_state,
            state.producer_id,
            state.producer_epoch,
            {topic.topic: topic.partitions for topic in state.topics},
        )
        for state in states
    ]


def test_transactions_are_described_with_partitions_that_lack_their_marker(
    story: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = opened(story, PLACE, ("t", 1))
    assert described(story, ID, "nobody", ID, "") == [
        (0, "Ongoing", *producer, {"t": [0, 1]}),
        (E.TRANSACTIONAL_ID_NOT_FOUND, "", 0, 0, {}),
        (E.INVALID_REQUEST, "", 0, 0, {}),
    ]
    refusals = Refusals(monkeypatch)
    story.end(producer)
    story.world.settle()
    assert described(story, ID) == [(0, "PrepareCommit", *producer, {"t": [0]})]
    refusals.error = None
    story.world.pass_time(RETRY_MS_MAX)
    story.world.settle()
    assert described(story, ID) == [(0, "CompleteCommit", *producer, {})]


def listed(story: Transactions, version: int = 2, **fields: Any) -> Any:
    story.peer.send("ListTransactions", version=version, **fields)
    reply = story.turns()
    if reply.error_code:
        return reply.error_code
    found = {state.transactional_id: state.transaction_state for state in reply.transaction_states}
    return (found, reply.unknown_state_filters) if reply.unknown_state_filters else found


def test_transactions_are_listed_by_every_filter(story: Transactions) -> None:
    producer = opened(story, PLACE)
    other = begun(story, "other")
    everything = {ID: "Ongoing", "other": "Empty"}
    assert listed(story, 0) == everything
    assert listed(story, 0, state_filters=["Ongoing"]) == {ID: "Ongoing"}
    assert listed(story, 0, state_filters=["Ongoing", "Odd"]) == ({ID: "Ongoing"}, ["Odd"])
    assert listed(story, 0, state_filters=["Odd", "Odd"]) == ({}, ["Odd"])
    assert listed(story, 0, state_filters=["Dead"]) == {}
    assert listed(story, 0, producer_id_filters=[other[0]]) == {"other": "Empty"}
    assert listed(story, 0, producer_id_filters=[producer[0] + other[0] + 99]) == {}
    assert listed(story, 1, duration_filter=10_000) == {"other": "Empty"}
    story.world.clock.now_ms += 10_001
    assert listed(story, 1, duration_filter=10_000) == everything
    assert listed(story, transactional_id_pattern="cop.*") == {ID: "Ongoing"}
    assert listed(story, transactional_id_pattern="cop") == {}, "the whole id has to match"
    assert listed(story, transactional_id_pattern="") == everything
    assert listed(story, transactional_id_pattern="(") == E.INVALID_REGULAR_EXPRESSION


def test_thousands_are_listed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Transactions()
    names = {f"id-{number}" for number in range(30)}
    for name in sorted(names):
        begun(story, name)
    asked: list[int] = []
    decide = TransactionCoordinator.decide

    def decide_and_tell(machine: TransactionCoordinator, operation: Any, now: Any) -> Any:
        if isinstance(operation, ListTransactions):
            asked.append(len(operation.ids or ()))
        return decide(machine, operation, now)

    monkeypatch.setattr(TransactionCoordinator, "decide", decide_and_tell)
    monkeypatch.setattr(list_transactions, "PART_ITEMS", 4)
    assert listed(story).keys() == names
    assert max(asked) == 4
    assert sum(asked) == 30


def test_clients_learn_of_the_version_of_transactions() -> None:
    def features(world: World) -> dict[str, tuple[int, int]]:
        reply = world.peer().call("ApiVersions", version=3, client_software_name="a", client_software_version="1")
        assert reply.finalized_features_epoch >= 0
        return {each.name: (each.min_version_level, each.max_version_level) for each in reply.finalized_features}

    assert features(World(experimental_transactions=True))["transaction.version"] == (2, 2)
    assert "transaction.version" not in features(World())


def test_an_admin_ends_what_hangs_with_what_the_partition_says(story: Transactions) -> None:
    """As Kafka's abortTransaction: from DescribeProducers to WriteTxnMarkers, without the coordinator."""
    producer_id, epoch = opened(story, PLACE)
    data = batch(b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    entry = part("Produce", "PartitionProduceData", 0, data)
    topics = [part("Produce", "TopicProduceData", "t", partition_data=[entry])]
    fields = {"transactional_id": ID, "acks": -1, "timeout_ms": 5_000, "topic_data": topics}
    story.peer.send("Produce", version=9, **fields)
    assert code(story.turns()) == 0
    log = story.world.partition("t").log
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    asked = [part("DescribeProducers", "TopicRequest", "t", [0])]
    (topic,) = story.peer.call("DescribeProducers", topics=asked).topics
    (found,) = topic.partitions[0].active_producers
    assert (found.producer_id, found.producer_epoch, found.current_txn_start_offset) == (producer_id, epoch, 0)
    ending = marker(
        (found.producer_id, found.producer_epoch),
        PLACE,
        commit=False,
        coordinator_epoch=max(0, found.coordinator_epoch),
    )
    assert story.write_markers(ending, version=1) == [{PLACE: 0}]
    assert log.last_stable_offset == 2
    assert story.end((producer_id, epoch), commit=False).error_code == 0, "its producer goes on"
