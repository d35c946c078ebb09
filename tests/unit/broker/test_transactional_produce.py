"""The first batch of a transaction waits for its coordinator; what happens meanwhile, and what a producer hears."""

import pytest
from broker_world import WALL_MS, batch, part
from msgspec.structs import replace
from played_coordinator import (
    AGREED,
    BUMPING,
    ID,
    PRODUCER,
    STEADY,
    ProducerPeer,
    TransactionalWorld,
)

from skidway.broker.api.call import Hangup
from skidway.broker.handlers import transactional_batches
from skidway.broker.partitions.guards import WAITING_MAX
from skidway.errors import ErrorCode
from skidway.limits import DEFAULT_LIMITS
from skidway.log.bounds import Bound
from skidway.replica.role import PartitionRole

OK = 0


@pytest.fixture
def world() -> TransactionalWorld:
    return TransactionalWorld()


@pytest.fixture
def producer(world: TransactionalWorld) -> ProducerPeer:
    return world.producer


@pytest.mark.parametrize(("version", "adds"), [(STEADY, False), (BUMPING, True)])
def test_the_first_batch_waits_and_later_ones_ask_nobody(
    world: TransactionalWorld, producer: ProducerPeer, version: int, adds: bool
) -> None:
    producer.write(0, 4, version=version)
    (asked,) = world.questions.open
    assert (asked.transactional_id, asked.producer_id, asked.epoch) == (ID, PRODUCER, 4)
    assert asked.places == [("orders", 0)]
    assert asked.add == adds
    assert producer.codes() == []
    assert world.stored() == 0
    world.answer(AGREED)
    assert producer.codes() == [[OK]]
    assert world.stored() == 1
    producer.write(1, 4, version=version)
    assert producer.codes() == [[OK]]
    assert world.questions.asked == 1
    assert world.guards() == 0


def test_one_question_for_all_batches_of_a_request() -> None:
    world = TransactionalWorld(partitions=4)
    producer = world.producer
    producer.write(0, index=1)
    world.answer(AGREED)
    assert producer.codes() == [[OK]]
    producer.write_all([(index, producer.data(int(index == 1))) for index in range(4)])
    assert world.questions.open[0].places == [("orders", 0), ("orders", 2), ("orders", 3)]
    assert world.stored(1) == 2, "its transaction is open there"
    world.answer(AGREED, ErrorCode.TRANSACTION_ABORTABLE, AGREED)
    assert producer.codes() == [[OK, OK, ErrorCode.TRANSACTION_ABORTABLE, OK]]
    assert [world.stored(index) for index in range(4)] == [1, 2, 0, 1]


def test_what_a_connection_sends_behind_it_waits_and_others_do_not(
    world: TransactionalWorld, producer: ProducerPeer
) -> None:
    producer.write(0, value=b"first")
    producer.write(1, value=b"second")
    other = ProducerPeer(world)
    other.write(0, producer_id=8, index=1, value=b"other")
    assert len(world.questions.open) == 2
    world.questions.open.pop().answer(AGREED)
    world.settle()
    assert other.codes() == [[OK]]
    assert world.stored() == 0
    world.answer(AGREED)
    producer.give(b"")
    world.settle()
    assert producer.codes() == [[OK], [OK]]
    log = world.partition("orders").log
    data = log.read(0, 10_000, Bound.END).read()
    assert data.index(b"first") < data.index(b"second")


def test_the_batch_that_waits_is_a_copy(world: TransactionalWorld, producer: ProducerPeer) -> None:
    frame = producer.frame(
        "Produce",
        version=STEADY,
        acks=-1,
        timeout_ms=1000,
        transactional_id=ID,
        topic_data=[_topic(0, producer.data(0, value=b"as it was sent"))],
    )
    shells = memoryview(bytearray(frame))
    producer.connection.receive(shells, world.clock.now_ms)
    shells[:] = bytes(len(shells))
    world.answer(AGREED)
    assert producer.codes() == [[OK]]
    assert b"as it was sent" in world.partition("orders").log.read(0, 10_000, Bound.END).read()


def test_a_batch_that_the_broker_stamps_waits_as_it_is(world: TransactionalWorld, producer: ProducerPeer) -> None:
    assert producer.alter("orders", message_timestamp_type="LogAppendTime") == 0
    producer.write(0)
    world.answer(AGREED)
    ((_, response),) = producer.replies()
    (entry,) = response.responses[0].partition_responses
    assert (entry.error_code, entry.log_append_time_ms) == (OK, WALL_MS)


def test_a_batch_that_is_opened_waits_too() -> None:
    world = TransactionalWorld()
    assert world.producer.alter("orders", compression_type="gzip") == 0
    world.producer.write(0)
    world.settle()
    world.answer(AGREED)
    assert world.producer.codes() == [[OK]]
    assert world.stored() == 1


# --- who may write at all ---


def test_a_transactional_batch_needs_a_transactional_id(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write(0, transactional_id=None)
    assert producer.codes() == [[ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]]
    producer.write(0)
    world.answer(AGREED)
    producer.write(1, transactional_id=None)
    assert producer.codes() == [[OK], [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]]


def test_a_request_is_of_one_producer_and_epoch(world: TransactionalWorld, producer: ProducerPeer) -> None:
    for other in (producer.data(0, producer_id=8), producer.data(0, epoch=1)):
        producer.write_all([(0, producer.data(0)), (1, other)])
        assert producer.codes() == [[ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2]
    assert world.questions.asked == 0
    assert world.guards() == 0


def test_a_batch_of_another_producer_is_not_asked_about_with_the_others(
    world: TransactionalWorld, producer: ProducerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of very many batches only the first are looked at beforehand."""
    monkeypatch.setattr(transactional_batches, "LOOKED_AT_MAX", 1)
    producer.write_all([(0, producer.data(0)), (1, producer.data(0, producer_id=8))])
    assert world.questions.open[0].places == [("orders", 0)]
    world.answer(AGREED)
    assert producer.codes() == [[OK, ErrorCode.INVALID_PRODUCER_ID_MAPPING]]
    assert world.guards(1) == 0


def test_a_client_writes_no_markers(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write_all([(0, producer.data(0, control=True))])
    assert producer.codes() == [[ErrorCode.INVALID_RECORD]]


def test_a_plain_batch_does_not_go_into_an_open_transaction(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write(0)
    world.answer(AGREED)
    plain = producer.data(1, transactional=False)
    producer.write_all([(0, plain)])
    assert producer.codes() == [[OK], [ErrorCode.INVALID_TXN_STATE]]
    producer.write_all([(0, producer.data(0, producer_id=8, transactional=False))])
    assert producer.codes() == [[OK]], "of another producer"
    producer.write_all([(0, batch(b"of nobody"))])
    assert producer.codes() == [[OK]]
    world.marker(0)
    producer.write_all([(0, plain)])
    assert producer.codes() == [[OK]]


# --- what the coordinator answers ---

TA, ITS = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE
AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("answered", "told"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, {9: ITS, 10: ITS, 11: TA, 12: TA}),
        (ErrorCode.PRODUCER_FENCED, dict.fromkeys((9, 11, 12), ErrorCode.INVALID_PRODUCER_EPOCH)),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, dict.fromkeys((9, 12), ErrorCode.INVALID_PRODUCER_ID_MAPPING)),
        (ErrorCode.NETWORK_EXCEPTION, dict.fromkeys((9, 12), AGAIN)),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, dict.fromkeys((9, 12), AGAIN)),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, dict.fromkeys((9, 12), AGAIN)),
        (ErrorCode.NOT_COORDINATOR, dict.fromkeys((9, 12), AGAIN)),
        (ErrorCode.CONCURRENT_TRANSACTIONS, {9: AGAIN, 11: AGAIN, 12: BUSY}),
        (ErrorCode.POLICY_VIOLATION, {12: ErrorCode.POLICY_VIOLATION}),
        (ErrorCode.GROUP_ID_NOT_FOUND, {12: ErrorCode.UNKNOWN_SERVER_ERROR}),
    ],
)
def test_what_a_producer_hears_of_it(answered: ErrorCode, told: dict[int, ErrorCode]) -> None:
    for version, code in told.items():
        world = TransactionalWorld()
        world.producer.write(0, version=version)
        world.answer(answered)
        assert world.producer.codes() == [[code]], version
        assert world.stored() == 0
        assert world.guards() == 0


@pytest.mark.parametrize(("answered", "told"), [(ErrorCode.NOT_COORDINATOR, AGAIN), (BUSY, BUSY)])
def test_what_comes_behind_a_batch_that_is_sent_again_is_refused_like_it(answered: ErrorCode, told: ErrorCode) -> None:
    """Clients take "out of order" for a loss."""
    world = TransactionalWorld()
    producer = world.producer
    producer.write(0, version=BUMPING)
    world.answer(answered)
    producer.write(1, version=BUMPING)
    assert producer.codes() == [[told], [told]]
    producer.write(0, version=BUMPING)
    world.answer(AGREED)
    producer.write(1, version=BUMPING)
    assert producer.codes() == [[OK], [OK]]


def test_acks_1_waits_for_all_in_a_transaction() -> None:
    world = TransactionalWorld()
    producer = world.producer
    producer.create("synced", flush="sync")
    entry = _topic(0, producer.data(0), "synced")
    producer.send("Produce", version=STEADY, acks=1, timeout_ms=1000, transactional_id=ID, topic_data=[entry])
    world.questions.open.pop(0).answer(AGREED)
    world.end_turn()
    assert producer.codes() == [], "the sync is under way"
    world.settle()
    assert producer.codes() == [[OK]]


@pytest.mark.parametrize("is_open", [False, True], ids=["first batch", "later batch"])
def test_a_transaction_needs_as_many_replicas_as_acks_all(is_open: bool) -> None:
    world = TransactionalWorld()
    producer, partition = world.producer, world.partition("orders")
    assert producer.alter("orders", min_insync_replicas="2") == 0
    if is_open:
        producer.write(0)
        world.answer(AGREED)
        assert producer.codes() == [[OK]]
    epoch = partition.role.leader_epoch
    partition.lead(PartitionRole(1, epoch, 1, [1, 2], [1], {}), world.clock.now_ms)
    stored = world.stored()
    producer.write(int(is_open), acks=1)
    assert producer.codes() == [[AGAIN]]
    with pytest.raises(Hangup):
        producer.write(int(is_open), acks=0)
    assert world.stored() == stored
    plain = ProducerPeer(world)
    plain.write_all([(0, plain.data(0, producer_id=8, transactional=False))], transactional_id=None, acks=1)
    assert plain.codes() == [[OK]]


def test_acks_0_hears_of_a_refusal_by_the_end_of_its_connection() -> None:
    world = TransactionalWorld()
    world.producer.write(0, acks=0)
    world.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert isinstance(world.producer.connection.bug, Hangup)
    assert world.guards() == 0


# --- epochs and sequences ---


def test_an_old_epoch_is_refused_before_anybody_is_asked(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write(0, 5)
    world.answer(AGREED)
    world.marker(6, version=2)
    producer.write(1, 5)
    assert producer.codes() == [[OK], [ErrorCode.INVALID_PRODUCER_EPOCH]]
    assert world.questions.asked == 1


def test_what_a_batch_says_of_itself_fences_nobody(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write(0, 1)
    other = ProducerPeer(world)
    other.write(0, 2)
    world.questions.open.pop().answer(ErrorCode.PRODUCER_FENCED)
    world.settle()
    assert other.codes() == [[ErrorCode.INVALID_PRODUCER_EPOCH]]
    world.answer(AGREED)
    assert producer.codes() == [[OK]]


def test_of_two_epochs_that_wait_the_newer_one_fences_the_other(
    world: TransactionalWorld, producer: ProducerPeer
) -> None:
    zombie = ProducerPeer(world)
    zombie.write(0, 1)
    producer.write(0, 2)
    world.questions.open.pop().answer(AGREED)
    world.settle()
    world.answer(AGREED)
    assert producer.codes() + zombie.codes() == [[OK], [ErrorCode.INVALID_PRODUCER_EPOCH]]
    assert world.stored() == 1


def test_an_unknown_producer_begins_with_0_if_its_epochs_grow(
    world: TransactionalWorld, producer: ProducerPeer
) -> None:
    producer.write(3, version=BUMPING)
    assert producer.codes() == [[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]]
    assert world.questions.asked == 0
    producer.write(3, version=STEADY)
    world.answer(AGREED)
    assert producer.codes() == [[OK]], "what came before may have been deleted"


def test_nothing_overtakes_a_batch_that_waits(world: TransactionalWorld, producer: ProducerPeer) -> None:
    """By another connection: of a producer that nobody knows any sequence may come first."""
    producer.write(3)
    other = ProducerPeer(world)
    other.write(4)
    assert other.codes() == [[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]]
    world.answer(AGREED)
    other.write(4)
    assert producer.codes() + other.codes() == [[OK], [OK]]


def test_a_batch_that_was_first_gives_way_to_one_before_it(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write(4)
    other = ProducerPeer(world)
    other.write(3)
    world.answer(AGREED)
    assert producer.codes() == [[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]]
    world.answer(AGREED)
    assert other.codes() == [[OK]]
    producer.write(4)
    assert producer.codes() == [[OK]]


def test_sequences_that_begin_again_are_in_order(world: TransactionalWorld, producer: ProducerPeer) -> None:
    last = (1 << 31) - 1
    producer.write(last)
    other = ProducerPeer(world)
    other.write(0)
    assert other.codes() == [[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]]


def test_a_batch_that_is_sent_twice_is_stored_once(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write(0)
    again = ProducerPeer(world)
    again.write(0)
    world.answer(AGREED)
    world.answer(AGREED)
    assert producer.codes() + again.codes() == [[OK], [OK]]
    assert world.stored() == 1
    world.marker(0)
    again.write(0)
    assert again.codes() == [[ErrorCode.UNKNOWN_PRODUCER_ID]], "its transaction is over: this is none sent again"
    assert world.questions.asked == 2


# --- markers ---


def test_a_transaction_that_ends_meanwhile_gets_no_more_batches(
    world: TransactionalWorld, producer: ProducerPeer
) -> None:
    producer.write(0, 5)
    world.marker(5, commit=False)
    world.answer(AGREED)
    assert producer.codes() == [[TA]]
    assert world.stored() == 1, "the marker alone"
    assert world.partition("orders").log.producers.open_transaction(PRODUCER) == -1


def test_an_answer_about_the_last_transaction_does_not_count_for_this_one(
    world: TransactionalWorld, producer: ProducerPeer
) -> None:
    """A question, a marker, another question: the first answer is of no use (ABA)."""
    producer.write(0, 5, version=9)
    world.marker(5)
    other = ProducerPeer(world)
    other.write(0, 5, version=9)
    world.answer(AGREED)
    assert producer.codes() == [[ITS]]
    assert world.stored() == 1
    world.answer(AGREED)
    assert other.codes() == [[OK]]


def test_the_marker_of_the_last_transaction_leaves_the_next_one_alone(
    world: TransactionalWorld, producer: ProducerPeer
) -> None:
    producer.write(0, 5, version=BUMPING)
    world.answer(AGREED)
    producer.write(0, 6, version=BUMPING)
    world.marker(6, version=2)
    world.marker(6, version=2)
    world.answer(AGREED)
    assert producer.codes() == [[OK], [OK]]
    world.marker(7, version=2)
    assert world.stored() == 5


def test_a_marker_of_an_older_epoch_leaves_the_next_one_alone(
    world: TransactionalWorld, producer: ProducerPeer
) -> None:
    producer.write(0, 6)
    world.marker(5)
    world.answer(AGREED)
    assert producer.codes() == [[OK]]


def test_a_marker_of_a_later_epoch_ends_what_would_begin(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write(0, 6, version=BUMPING)
    world.marker(7, version=2)
    world.answer(AGREED)
    assert producer.codes() == [[ErrorCode.INVALID_PRODUCER_EPOCH]]


def test_what_an_older_epoch_left_open_is_aborted_first(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write(0, 5, value=b"left over")
    world.answer(AGREED)
    producer.write(0, 6, value=b"new")
    assert world.questions.asked == 2
    world.answer(AGREED)
    assert producer.codes() == [[OK], [OK]]
    assert world.stored() == 3, "with an abort in between"
    log = world.partition("orders").log
    assert log.producers.open_transaction(PRODUCER) == 2


# --- leaders come and go ---


def test_who_leads_no_more_refuses_what_waits(world: TransactionalWorld, producer: ProducerPeer) -> None:
    partition = world.partition("orders")
    producer.write(0)
    role = partition.role
    partition.follow(PartitionRole(2, role.leader_epoch + 1, 1, [1, 2], [1, 2], {}), world.clock.now_ms)
    assert world.guards() == 0
    world.answer(AGREED)
    assert producer.codes() == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]
    assert world.stored() == 0


def test_a_guard_goes_with_the_leadership(world: TransactionalWorld, producer: ProducerPeer) -> None:
    partition = world.partition("orders")
    producer.write(0)
    role = partition.role
    partition.lead(PartitionRole(1, role.leader_epoch + 1, 1, [1], [1], {}), world.clock.now_ms)
    world.answer(AGREED)
    assert producer.codes() == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]], "it may be asked again"
    assert world.stored() == 0


def test_a_partition_that_is_deleted_meanwhile(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write(0)
    admin = world.peer()
    admin.delete("orders")
    world.settle()
    world.answer(AGREED)
    assert producer.codes() == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]


# --- bounds ---


def test_few_batches_of_a_producer_wait_in_a_partition(world: TransactionalWorld, producer: ProducerPeer) -> None:
    batches = [(0, producer.data(0))] * (WAITING_MAX + 2)
    producer.write_all(batches)
    assert len(world.questions.open[0].places) == WAITING_MAX
    world.answer(AGREED)
    (codes,) = producer.codes()
    assert (codes.count(OK), codes.count(AGAIN)) == (WAITING_MAX, 2)
    assert world.stored() == 1


def test_the_bytes_that_wait_are_bounded() -> None:
    limits = replace(DEFAULT_LIMITS, frame_bytes_max=1_000_000, receive_bytes_max=1_000_000)
    world = TransactionalWorld(limits=limits)
    first, second, third = (ProducerPeer(world) for _ in range(3))
    first.write(0, producer_id=1, value=bytes(600_000))
    second.write(0, producer_id=2, value=bytes(600_000))
    assert second.codes() == [[AGAIN]]
    assert world.questions.asked == 1
    third.write(0, producer_id=3)
    world.answer(AGREED)
    world.answer(AGREED)
    assert first.codes() + third.codes() == [[OK], [OK]]
    second.write(0, producer_id=2, value=bytes(600_000))
    second.connection.closed()
    assert world.node.waiting.questioned_bytes == 0


# --- connections come and go ---


def test_what_waits_is_dropped_with_its_connection(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write(3)
    producer.connection.closed()
    assert world.guards() == 0
    world.answer(AGREED)
    assert world.stored() == 0
    again = ProducerPeer(world)
    again.write(4)
    assert again.codes() == [[AGAIN]], "3 comes again, and nothing goes before it"
    again.write(3)
    world.answer(AGREED)
    again.write(4)
    assert again.codes() == [[OK], [OK]]
    assert world.node.world.slices.under_way == 0


def test_the_collector_does_not_pause_for_answers(world: TransactionalWorld, producer: ProducerPeer) -> None:
    producer.write(0)
    assert world.node.world.slices.under_way == 1
    assert not world.node.has_long_work
    producer.connection.closed()
    assert world.node.world.slices.asking == 0


def _topic(index: int, data: bytes, name: str = "orders") -> object:
    entry = part("Produce", "PartitionProduceData", index, data)
    return part("Produce", "TopicProduceData", name, partition_data=[entry])
