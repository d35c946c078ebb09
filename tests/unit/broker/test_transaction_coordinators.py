"""Transaction coordinators in a node: finding one, taking a transactional id, adding partitions."""

from typing import Any

import pytest
from broker_world import part
from transactions_world import ID, Transactions, marker, transaction

from skidway.broker.coordinators.host import ANSWER_MS
from skidway.broker.coordinators.id_reserve import RESERVED, ProducerIdReserve
from skidway.broker.events import TooFewReplicas
from skidway.errors import CoordinatorNotAvailable, ErrorCode, ProtocolError
from skidway.groups.placement import partition_of
from skidway.runtime.log_store import LogStore
from skidway.transactions.bounds import bytes_of
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.transaction import Empty, Ongoing

E = ErrorCode
PLACE = ("t", 0)


@pytest.fixture
def story() -> Transactions:
    return Transactions()


def begun(story: Transactions, key: str = ID) -> tuple[int, int]:
    reply = story.init(key)
    assert reply.error_code == 0
    return reply.producer_id, reply.producer_epoch


def test_finding_the_first_coordinator_creates_the_topic(story: Transactions) -> None:
    found = story.find()
    assert (found.error_code, found.node_id) == (0, 1)
    image = story.world.node.image
    assert len(image.topics["__transaction_state"].partitions) == 4
    configs = image.config(2, "__transaction_state")
    assert configs["cleanup.policy"] == "compact"
    assert (configs["min.insync.replicas"], configs["compression.type"]) == ("2", "uncompressed")
    assert configs["segment.bytes"] == str(100 << 20)
    assert not [event for event in story.world.reported if isinstance(event, TooFewReplicas)], "one node has no others"


def test_without_the_topic_there_is_no_coordinator() -> None:
    story = Transactions(disk=None)
    story.peer.delete("__transaction_state")
    story.world.settle()
    story.peer.replies()
    assert story.init().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert story.add((1, 0), PLACE) == {PLACE: E.COORDINATOR_NOT_AVAILABLE}


def test_a_producer_takes_its_id_and_the_next_one_the_next_epoch(story: Transactions) -> None:
    first, other = story.init(), story.init("other")
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert other.producer_id != first.producer_id
    again = story.init()
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, 1)
    assert story.state().state == Empty()


def test_an_id_is_answered_when_its_record_is_stored(story: Transactions) -> None:
    story.init("other")  # the reserve of producer ids is full
    story.peer.send("InitProducerId", version=4, transactional_id=ID, transaction_timeout_ms=1000)
    story.world.end_turn()
    assert story.peer.replies() == []
    story.world.settle()
    assert story.peer.reply().producer_id >= 0


def test_a_transactional_producer_never_gets_the_id_of_an_idempotent_one(story: Transactions) -> None:
    plain = [story.peer.call("InitProducerId", version=4, transactional_id=None).producer_id for _ in range(3)]
    transactional = [story.init(f"id-{number}").producer_id for number in range(RESERVED + 50)]
    plain += [story.peer.call("InitProducerId", version=4, transactional_id=None).producer_id for _ in range(3)]
    assert len({*plain, *transactional}) == len(plain) + len(transactional)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, E.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, E.INVALID_REQUEST),
        ({"producer_epoch": 5}, E.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_initialised(story: Transactions, fields: dict[str, Any], code: ErrorCode) -> None:
    asked = {"transactional_id": ID, "transaction_timeout_ms": 1000, **fields}
    reply = story.peer.call("InitProducerId", version=5, **asked)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (code, -1, -1)


def test_a_producer_that_comes_back_with_an_old_epoch_is_fenced_in_the_words_of_its_version(
    story: Transactions,
) -> None:
    producer_id, _ = begun(story)
    begun(story)
    back: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0}
    assert story.init(version=4, **back).error_code == E.PRODUCER_FENCED
    assert story.init(version=3, **back).error_code == E.INVALID_PRODUCER_EPOCH


def test_partitions_are_added_and_answered_when_that_is_stored(story: Transactions) -> None:
    producer = begun(story)
    assert story.add(producer, PLACE, ("t", 2)) == {PLACE: 0, ("t", 2): 0}
    state = story.state().state
    assert isinstance(state, Ongoing)
    assert state.places == {PLACE, ("t", 2)}
    assert not story.state().bumps
    end_offsets = [each.partition.log.end_offset for each in coordinators(story)]
    assert story.add(producer, PLACE) == {PLACE: 0}
    assert [each.partition.log.end_offset for each in coordinators(story)] == end_offsets, "known ones need no record"


def coordinators(story: Transactions) -> list[Any]:
    return list(story.world.node.rooms.services.transactions.loaded.values())


def test_one_unknown_partition_spoils_the_whole_transaction(story: Transactions) -> None:
    producer = begun(story)
    unknown = ("t", 3)
    assert story.add(producer, PLACE, unknown, ("u", 0)) == {
        PLACE: E.OPERATION_NOT_ATTEMPTED,
        unknown: E.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert story.state().state == Empty()


def test_clients_add_no_partition_of_the_brokers_own_topics(story: Transactions) -> None:
    producer = begun(story)
    own = ("__transaction_state", 0)
    assert story.add(producer, PLACE, own) == {PLACE: E.OPERATION_NOT_ATTEMPTED, own: E.TOPIC_AUTHORIZATION_FAILED}
    assert story.add_many(transaction(producer, own)) == [{own: 0}], "nodes add those of groups"


def test_who_may_not_add_hears_why_in_the_words_of_its_version(story: Transactions) -> None:
    producer_id, epoch = begun(story)
    assert story.add((producer_id, epoch), PLACE, key="") == {PLACE: E.INVALID_REQUEST}
    assert story.add((producer_id, epoch), PLACE, key="nobody") == {PLACE: E.INVALID_PRODUCER_ID_MAPPING}
    assert story.add((producer_id + 1, epoch), PLACE) == {PLACE: E.INVALID_PRODUCER_ID_MAPPING}
    for version, code in [(0, E.INVALID_PRODUCER_EPOCH), (1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)]:
        assert story.add((producer_id, epoch + 1), PLACE, version=version) == {PLACE: code}


def test_nodes_add_for_many_transactions_at_once(story: Transactions) -> None:
    first, second = begun(story), begun(story, "second")
    stale = (second[0], second[1] + 1)
    answers = story.add_many(
        transaction(first, PLACE, ("t", 1)), transaction(stale, PLACE, key="second"), transaction(first, ("u", 0))
    )
    assert answers == [
        {PLACE: 0, ("t", 1): 0},
        {PLACE: E.PRODUCER_FENCED},
        {("u", 0): E.UNKNOWN_TOPIC_OR_PARTITION},
    ]
    assert story.state().places == {PLACE, ("t", 1)}
    assert story.state().bumps, "only clients whose epoch grows let nodes add"
    assert story.add_many() == []


def test_nodes_verify_without_adding(story: Transactions) -> None:
    producer = begun(story)
    assert story.add(producer, PLACE) == {PLACE: 0}
    asked = transaction(producer, PLACE, ("t", 1), verify_only=True)
    assert story.add_many(asked) == [{PLACE: 0, ("t", 1): E.TRANSACTION_ABORTABLE}]
    assert story.state().places == {PLACE}
    assert not story.state().bumps


def test_only_nodes_add_for_many() -> None:
    story = Transactions(authenticates=True)
    reply = story.peer.call("AddPartitionsToTxn", version=5, transactions=[transaction((1, 0), PLACE)])
    assert reply.error_code == E.CLUSTER_AUTHORIZATION_FAILED
    producer = begun(story)
    assert story.add(producer, PLACE) == {PLACE: 0}, "clients add for themselves"


def test_a_transaction_has_a_bounded_number_of_partitions() -> None:
    story = Transactions(transactions=TransactionSettings(state_partitions=4, partitions_max=2))
    producer = begun(story)
    places = [("t", index) for index in range(3)]
    assert story.add(producer, *places) == dict.fromkeys(places, E.POLICY_VIOLATION)
    assert story.add(producer, *places[:2]) == dict.fromkeys(places[:2], 0)
    assert story.add(producer, places[2]) == {places[2]: E.POLICY_VIOLATION}


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_what_was_answered_is_known_after_a_restart(clean: bool) -> None:
    story = Transactions()
    producer = begun(story)
    assert story.add(producer, PLACE) == {PLACE: 0}
    if clean:
        story.world.node.close(clean=True)
    else:
        story.world.disk.kill()
    again = Transactions(story.world.disk)
    assert again.add_many(transaction(producer, PLACE, verify_only=True)) == [{PLACE: 0}]
    assert again.init("other").producer_id > producer[0]


class Blocks:
    """Producer ids that come when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.given = 0

    def take(self, now_ms: int, answer: Any) -> None:
        self.asked.append(answer)

    def give(self, count: int) -> None:
        for _ in range(count):
            self.given += 1
            self.asked.pop(0)(self.given)

    def fail(self) -> None:
        asked, self.asked = self.asked, []
        for answer in asked:
            answer(CoordinatorNotAvailable("no controller"))

    def monotonic_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


def test_ids_are_fetched_ahead_and_each_is_drawn_once() -> None:
    blocks = Blocks()
    reserve = ProducerIdReserve(blocks.take, blocks)
    assert reserve.draw() is None, "none yet, but they are on their way"
    assert len(blocks.asked) == RESERVED
    blocks.give(3)
    assert [reserve.draw() for _ in range(4)] == [1, 2, 3, None]
    assert len(blocks.asked) == RESERVED, "what was drawn is asked for again, and nothing twice"
    blocks.give(RESERVED)
    assert len(reserve) == RESERVED
    assert blocks.asked == []


def test_who_waits_for_an_id_hears_when_there_is_one_or_why_there_is_none() -> None:
    blocks = Blocks()
    reserve = ProducerIdReserve(blocks.take, blocks)
    told: list[ProtocolError | None] = []
    reserve.when_filled(told.append)
    reserve.when_filled(told.append)
    assert told == []
    blocks.fail()
    assert [type(each) for each in told] == [CoordinatorNotAvailable] * 2
    reserve.when_filled(told.append)
    blocks.give(1)
    reserve.when_filled(told.append)
    assert told[2:] == [None, None]
    assert reserve.draw() == 1


def test_admins_see_the_settings_of_transactions_under_kafkas_names() -> None:
    chosen = TransactionSettings(state_partitions=4, timeout_ms_max=5_000, id_expiration_ms=9_000)
    story = Transactions(transactions=chosen)
    asked = [part("DescribeConfigs", "DescribeConfigsResource", 4, "1", None)]
    (result,) = story.peer.call("DescribeConfigs", version=4, resources=asked).results
    told = {entry.name: entry.value for entry in result.configs if entry.name.startswith("transaction")}
    assert told["transaction.max.timeout.ms"] == "5000"
    assert told["transaction.state.log.num.partitions"] == "4"
    assert told["transactional.id.expiration.ms"] == "9000"
    assert told["transaction.abort.timed.out.transaction.cleanup.interval.ms"] == "10000"


def test_a_node_that_is_full_refuses_new_ids_and_partitions_of_all_its_coordinators() -> None:
    few = 12
    settings = TransactionSettings(state_partitions=4, node_id_bytes_max=few * bytes_of("id-00"), node_partitions_max=6)
    story = Transactions(transactions=settings)
    producers = {name: begun(story, name) for name in (f"id-{number:02}" for number in range(few))}
    assert len({partition_of(name, 4) for name in producers}) > 1, "they share a coordinator"
    assert story.init("one-more").error_code == E.POLICY_VIOLATION
    assert story.init("x" * 30_000).error_code == E.POLICY_VIOLATION
    first, second, third, *_ = producers
    for name in (first, second):
        story.add(producers[name], *[("t", index) for index in range(3)], key=name)
    assert story.add(producers[third], PLACE, key=third) == {PLACE: E.POLICY_VIOLATION}
    assert story.end(producers[first], key=first).error_code == 0
    story.world.settle()
    assert story.add(producers[third], PLACE, key=third) == {PLACE: 0}
    assert begun(story, first) == (producers[first][0], 1), "those that are known go on"


def test_whoever_waits_for_a_commit_that_does_not_come_is_told_in_bounded_time(story: Transactions) -> None:
    """A disk that takes its time stands for replicas that are cut off: nothing is committed."""
    producer = begun(story)
    assert story.add(producer, PLACE) == {PLACE: 0}
    ending = {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1], "committed": True}
    story.peer.send("EndTxn", version=3, **ending)
    story.world.end_turn()
    story.world.pass_time(ANSWER_MS // 2)
    story.peer.send("DescribeTransactions", version=0, transactional_ids=[ID])
    story.world.end_turn()
    story.world.pass_time(ANSWER_MS // 2)
    assert story.peer.reply().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert story.peer.replies() == [], "who came later has not waited long enough"
    story.peer.send("EndTxn", version=3, **ending)
    story.world.end_turn()
    story.world.pass_time(ANSWER_MS // 2)
    (_, described), (_, ended) = story.peer.replies()
    assert described.transaction_states[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    assert ended.error_code == E.COORDINATOR_NOT_AVAILABLE, "where others wait in vain nobody begins to"
    story.world.pass_time(10 * ANSWER_MS)
    assert story.markers() == []
    story.world.settle()
    assert story.peer.replies() == [], "nobody is answered twice"
    assert story.markers() == [(*producer, True)], "what was decided happens all the same"
    assert story.end(producer).error_code == 0, "asked again, it has ended so"


def test_a_coordinator_that_moves_leaves_nobody_waiting_and_no_timer(story: Transactions) -> None:
    begun(story)
    story.peer.send("InitProducerId", version=4, transactional_id=ID, transaction_timeout_ms=1000)
    story.world.end_turn()
    coordinators = story.world.node.rooms.services.transactions
    (coordinator,) = [each for each in coordinators.loaded.values() if each.host.parked]
    patience = coordinator.patience
    assert patience is not None
    assert patience.armed
    coordinators.on_removed(coordinator.partition)
    assert story.peer.reply().error_code == E.NOT_COORDINATOR
    assert not patience.armed


def test_what_cannot_be_read_again_after_a_failed_write_is_told_once_and_keeps_nobody_busy(story: Transactions) -> None:
    """A failed write alone has nothing read again; here the log is no more what its coordinator knows."""
    producer, world = begun(story), story.world
    place = "__transaction_state", partition_of(ID, 4)
    assert story.write_markers(marker(producer, place)) == [{place: 0}]
    world.disk.corrupt(f"{place[0]}-{place[1]}/{0:020d}.log", 70)
    world.disk.capacity = world.disk.used()
    assert story.init().error_code == E.NOT_COORDINATOR
    world.disk.capacity = None
    assert [story.init().error_code for _ in range(2)] == [E.COORDINATOR_NOT_AVAILABLE] * 2
    assert len([line for line in world.events if "cannot load transactions" in line]) == 1
    world.pass_time(1)
    assert world.node.deadline_ms is not None
    assert world.node.deadline_ms > world.clock.now_ms


def test_a_full_disk_has_no_coordinator_read_its_log_for_every_refusal(
    story: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begun(story)
    monkeypatch.setattr(LogStore, "read_all", lambda self: pytest.fail("it is read again"))
    story.world.disk.capacity = 0
    assert story.init().error_code == E.NOT_COORDINATOR
    assert story.add(producer, PLACE) == {PLACE: E.NOT_COORDINATOR}
    (known,) = story.peer.call("DescribeTransactions", transactional_ids=[ID]).transaction_states
    assert (known.error_code, known.producer_epoch) == (0, producer[1]), "no epoch is burnt, and reads go on"
    story.world.disk.capacity = None
    assert story.add(producer, PLACE) == {PLACE: 0}
