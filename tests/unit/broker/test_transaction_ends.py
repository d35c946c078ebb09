"""Transactions that end: EndTxn, markers in partitions of this node, what deleted topics and time do to them."""

from typing import Any

import pytest
from broker_world import batch, code, part
from transactions_world import ID, TIMEOUT_MS, Transactions, marker, transaction

from skidway.broker.coordinators.host import TICK_RETRY_MS
from skidway.broker.coordinators.marker_sender import LATE_MS, RETRY_MS_MAX, RETRY_MS_MIN
from skidway.broker.coordinators.news import MarkerRefused, MarkersLate
from skidway.broker.coordinators.next_transactions import BUSY_MS
from skidway.broker.handlers import list_transactions
from skidway.broker.partitions import marker_batches
from skidway.broker.partitions.news import BatchRejected
from skidway.broker.partitions.partition import Partition
from skidway.errors import ErrorCode, NotEnoughReplicas
from skidway.limits import INT64_MAX
from skidway.records.batch import TimestampType
from skidway.runtime.log_store import LogStore
from skidway.transactions.coordinator import TransactionCoordinator
from skidway.transactions.operations import ListTransactions, MarkersWritten
from skidway.transactions.records import TransactionRecord
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.transaction import Ended, Ending, Ongoing
from values import replace

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


def test_a_time_out_that_finds_the_disk_full_is_tried_again_after_a_pause(story: Transactions) -> None:
    opened(story, PLACE)
    world, disk = story.world, story.world.disk
    disk.capacity = 0
    world.pass_time(TIMEOUT_MS + 1)
    assert disk.refusals == 1
    rejected = [event for event in world.reported if isinstance(event, BatchRejected)]
    assert len(rejected) == 1, "operators hear of it"
    for _ in range(10):
        world.pass_time(1)
        assert story.peer.call("DescribeTransactions", transactional_ids=[ID]).transaction_states[0].error_code == 0
    assert disk.refusals == 1, "others who ask the coordinator do not make it try again"
    world.pass_time(TICK_RETRY_MS)
    assert disk.refusals == 2
    disk.capacity = None
    world.pass_time(TICK_RETRY_MS)
    world.settle()
    assert isinstance(story.state().state, Ended)


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
        self.places = {PLACE}
        self.error: Exception | None = NotEnoughReplicas("not now")
        write = Partition.write_marker

        def write_marker(partition: Partition, *arguments: Any) -> int:
            if self.error is None or (partition.topic, partition.index) not in self.places:
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
    story.begin_adding(producer, PLACE)
    story.world.settle()
    assert story.peer.replies() == [], "it waits for a moment"
    story.world.pass_time(BUSY_MS)
    story.world.settle()
    assert story.added() == {PLACE: E.CONCURRENT_TRANSACTIONS}
    refusals.error = None
    story.world.pass_time(RETRY_MS_MAX)
    story.world.settle()
    assert story.markers() == [(*producer, True)]
    assert story.markers("t", 1) == [(*producer, True)], "who has answered is not asked again"
    assert isinstance(story.state().state, Ended)


def test_the_next_transaction_begins_when_the_last_marker_of_the_one_before_is_written(
    story: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = Refusals(monkeypatch)
    producer = opened(story, PLACE, ("t", 1))
    assert story.end(producer).error_code == 0
    story.begin_adding(producer, PLACE)
    story.world.settle()
    assert story.peer.replies() == []
    refusals.error = None
    story.world.pass_time(RETRY_MS_MIN)
    story.world.settle()
    assert story.added() == {PLACE: 0}
    assert isinstance(story.state().state, Ongoing)


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


def test_a_request_that_a_later_one_has_overtaken_writes_nothing(story: Transactions) -> None:
    """Its sender gave it up and sent its markers again: what it would end now is the next transaction."""
    node_id = story.world.node.rooms.services.world.settings.node_id
    story.world.node.image.brokers[node_id].epoch = 9
    asked = marker((77, 3), PLACE, commit=False)
    written, late = [{PLACE: 0}], [{PLACE: E.REQUEST_TIMED_OUT}]
    assert story.write_markers(asked, sender=(node_id, 8, 5)) == written
    assert story.write_markers(asked, sender=(node_id, 8, 4)) == late
    assert story.write_markers(asked, sender=(node_id, 8, 5)) == late
    assert story.write_markers(asked, sender=(node_id, 8, 6)) == written
    assert story.write_markers(asked, sender=(node_id, 9, 1)) == written, "it has restarted"
    assert story.write_markers(asked, sender=(node_id, 8, 7)) == late
    assert len(story.markers()) == 3
    for number in (5, 4):
        assert story.write_markers(asked, sender=(4711, 8, number)) == written, "no node of this cluster"
    assert story.write_markers(asked, version=1) == written, "admins do not count"


def test_a_broker_epoch_that_nobody_knows_does_not_make_all_others_late(story: Transactions) -> None:
    """Whoever made one up would keep a node's transactions from ending in the partitions of another, for good."""
    node_id = story.world.node.rooms.services.world.settings.node_id
    known = story.world.node.image.brokers[node_id].epoch
    asked = marker((77, 3), PLACE, commit=False)
    late = [{PLACE: E.REQUEST_TIMED_OUT}]
    assert story.write_markers(asked, sender=(node_id, INT64_MAX, INT64_MAX)) == late
    assert story.write_markers(asked, sender=(node_id, known + 1, 1)) == late
    assert story.write_markers(asked, sender=(node_id, known, 1)) == [{PLACE: 0}]
    story.world.node.image.brokers[node_id].epoch = known + 1
    assert story.write_markers(asked, sender=(node_id, known + 1, 1)) == [{PLACE: 0}]


def test_a_marker_for_an_earlier_leader_epoch_is_not_written(story: Transactions) -> None:
    """Another node led meanwhile and has the marker that counts: this one would end the next transaction."""
    partition = story.world.partition(*PLACE)
    partition.role = replace(partition.role, leader_epoch=5)
    asked = marker((77, 3), PLACE, commit=False)
    for leader_epoch, answer in ((4, E.FENCED_LEADER_EPOCH), (5, E.NONE), (6, E.NONE), (-1, E.NONE)):
        asked.topics[0].leader_epochs = [leader_epoch]
        assert story.write_markers(asked) == [{PLACE: answer}]
    assert len(story.markers()) == 3


def test_where_many_partitions_refuse_a_marker_one_is_told(
    story: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction may have thousands, and each is tried again every minute."""
    refusals = Refusals(monkeypatch)
    refusals.places = {("t", index) for index in range(3)}
    refusals.error = next(each for each in _errors() if each.code == E.INVALID_PRODUCER_EPOCH)
    story.end(opened(story, *sorted(refusals.places)))
    story.world.settle()
    assert refusals.refused == 3
    told = [event.partition for event in story.world.reported if isinstance(event, MarkerRefused)]
    assert told == ["t-0"]
    refusals.error = None
    for _ in range(61):
        story.world.pass_time(1_000)
        story.world.settle()
    assert not isinstance(story.state().state, Ending)


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_a_refused_marker_is_tried_again_now_and_then(
    story: Transactions, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    refusals = Refusals(monkeypatch)
    refusals.error = next(each for each in _errors() if each.code == code)
    producer = opened(story, PLACE)
    story.end(producer)
    for minutes in (1, 2, 3):
        assert refusals.refused == minutes
        for _ in range(60):
            story.world.pass_time(1_000)
            story.world.settle()
    assert isinstance(story.state().state, Ending)
    told = [event for event in story.world.reported if isinstance(event, MarkerRefused)]
    assert told == [MarkerRefused(ID, "t-0", code)] * 4
    refusals.error = None
    for _ in range(61):
        story.world.pass_time(1_000)
        story.world.settle()
    assert isinstance(story.state().state, Ended)
    assert story.world.node.rooms.services.transactions.sender.task_count == 0


def test_a_strangers_marker_stops_a_transaction_until_the_partition_has_forgotten_it(story: Transactions) -> None:
    """It says that it comes from a later coordinator. That is known as long as the producer is."""
    producer = opened(story, PLACE, ("t", 1))
    assert story.write_markers(marker(producer, PLACE, coordinator_epoch=2**31 - 1)) == [{PLACE: 0}]
    story.end(producer)
    story.world.settle()
    assert isinstance(story.state().state, Ending)
    assert story.markers("t", 1) == [(*producer, True)], "the others have theirs"
    assert story.init().error_code == E.CONCURRENT_TRANSACTIONS
    assert begun(story, "other") != producer, "others are served"
    for pause_ms in (25 * 3_600_000, 60_000, 1_000):
        story.world.pass_time(pause_ms)
        story.world.node.maintain(story.world.clock.now_ms, story.world.clock.wall_ms())
        story.world.settle()
    assert isinstance(story.state().state, Ended)
    assert story.markers() == [(*producer, True)] * 2
    assert story.init().error_code == E.NONE


def _errors() -> list[Any]:
    from skidway.errors import InvalidProducerEpoch, TransactionCoordinatorFenced

    return [InvalidProducerEpoch("fenced"), TransactionCoordinatorFenced("fenced")]


def test_markers_here_are_written_in_one_pass_and_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Transactions(transactions=TransactionSettings(state_partitions=1), topic_defaults={"flush": "os"})
    story.peer.create("stamped", 1, message_timestamp_type="LogAppendTime")
    places = [*(("t", index) for index in range(3)), ("stamped", 0)]
    producer = opened(story, *places)
    built: list[Any] = []
    told: list[Any] = []
    build, submit = marker_batches.marker_batch, TransactionCoordinator.decide

    def counted(*given: Any) -> bytearray:
        built.append(given[1])
        return build(*given)

    def decide(machine: Any, operation: Any, now: Any) -> Any:
        if isinstance(operation, MarkersWritten):
            told.append(sorted(operation.places))
        return submit(machine, operation, now)

    monkeypatch.setattr(marker_batches, "marker_batch", counted)
    monkeypatch.setattr(TransactionCoordinator, "decide", decide)
    ending = {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1], "committed": True}
    story.peer.send("EndTxn", version=3, **ending)
    assert story.peer.reply().error_code == 0, "it is answered before any marker is written"
    assert built == []
    story.world.end_turn()
    assert isinstance(story.state().state, Ended)
    assert told == [sorted(places)]
    assert built == [TimestampType.LOG_APPEND_TIME, TimestampType.CREATE_TIME], "one batch for all of each kind"
    assert [story.markers(*place) for place in places] == [[(*producer, True)]] * 4
    offsets = [story.world.partition(*place).log.end_offset for place in places]
    assert offsets == [1] * 4


def test_a_partition_that_is_named_twice_gets_one_marker(story: Transactions) -> None:
    assert story.write_markers(marker((77, 3), PLACE, PLACE, ("t", 9))) == [
        {PLACE: 0, ("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION}
    ]
    assert story.markers() == [(77, 3, True)]


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
