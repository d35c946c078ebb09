"""Offsets in transactions, from request to marker: TxnOffsetCommit, EndTxn and WriteTxnMarkers on one node."""

from typing import Any

import pytest
from broker_world import part
from transactions_world import ID, Transactions, ends_in, marker

from skidway.broker.coordinators import offset_transactions
from skidway.errors import ErrorCode
from skidway.groups.settings import GroupSettings
from skidway.records.batch import iter_headers
from skidway.runtime.log_store import Producer
from skidway.transactions.settings import TransactionSettings

E = ErrorCode
OFFSETS = "__consumer_offsets"
SETTINGS = {
    "transactions": TransactionSettings(state_partitions=4),
    "groups": GroupSettings(offsets_partitions=2, initial_rebalance_delay_ms=0),
}


class Offsets(Transactions):
    """Groups on the same node; `g` is one of them."""

    def __init__(self, disk: Any = None) -> None:
        super().__init__(disk, **SETTINGS)
        if disk is None:
            self.peer.call("FindCoordinator", key_type=0, coordinator_keys=["g"], version=4)

    def settle(self) -> None:
        """What waits for an answer goes on in another turn, and waits for a commit then."""
        for _ in range(2):
            self.world.settle()

    def begun(self, key: str = ID) -> tuple[int, int]:
        reply = self.init(key)
        assert reply.error_code == 0
        return reply.producer_id, reply.producer_epoch

    def send_within(
        self, producer: Any, version: int = 5, key: str = ID, group: str = "g", offsets: Any = None, **fields: Any
    ) -> int:
        topics = []
        for (topic, index), offset in (offsets or {("t", 0): 5}).items():
            entry = part("TxnOffsetCommit", "TxnOffsetCommitRequestPartition", index, offset, -1, "")
            named = {"topic_id": self.topic_id(topic)} if version >= 6 else {"name": topic}
            topics.append(part("TxnOffsetCommit", "TxnOffsetCommitRequestTopic", partitions=[entry], **named))
        asked = {"transactional_id": key, "group_id": group, "producer_id": producer[0], "producer_epoch": producer[1]}
        return self.peer.send("TxnOffsetCommit", version=version, topics=topics, **asked, **fields)

    def within(self, producer: Any, **fields: Any) -> list[int]:
        """Codes."""
        self.send_within(producer, **fields)
        self.settle()
        return codes(self.peer.reply())

    def topic_id(self, name: str) -> bytes:
        topic = self.world.node.image.topics.get(name)
        return b"?" * 16 if topic is None else topic.id

    def add_group(self, producer: Any, group: str = "g", key: str = ID) -> int:
        fields = {"transactional_id": key, "producer_id": producer[0], "producer_epoch": producer[1]}
        code: int = self.peer.call("AddOffsetsToTxn", version=3, group_id=group, **fields).error_code
        return code

    def fetch(self, group: str = "g", stable: bool = True, place: tuple[str, int] = ("t", 0)) -> tuple[int, int]:
        """Code and offset of one partition."""
        topic = part("OffsetFetch", "OffsetFetchRequestTopics", place[0], partition_indexes=[place[1]])
        asked = part("OffsetFetch", "OffsetFetchRequestGroup", group, topics=[topic])
        reply = self.peer.call("OffsetFetch", version=8, groups=[asked], require_stable=stable)
        (entry,) = reply.groups[0].topics[0].partitions
        return entry.error_code, entry.committed_offset

    def place(self, group: str = "g") -> tuple[str, int]:
        kind = self.world.node.rooms.services.groups.kind
        return OFFSETS, kind.place(group, kind.topic_partitions)

    @property
    def log(self) -> Any:
        return self.world.partition(*self.place())

    def machine(self) -> Any:
        return self.world.node.rooms.services.groups.loaded[self.log].host.machine


def codes(reply: Any) -> list[int]:
    return [entry.error_code for topic in reply.topics for entry in topic.partitions]


@pytest.fixture
def story() -> Offsets:
    return Offsets()


@pytest.mark.parametrize("commit", [True, False])
def test_a_producer_that_adds_the_group_itself(story: Offsets, commit: bool) -> None:
    producer = story.begun()
    assert story.add_group(producer) == 0
    assert story.within(producer, version=3) == [0]
    assert story.fetch() == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert story.fetch(stable=False) == (0, -1)
    assert story.end(producer, commit).error_code == 0
    story.settle()
    assert story.fetch() == (0, 5 if commit else -1)
    assert story.markers(*story.place()) == [(*producer, commit)]


@pytest.mark.parametrize("commit", [True, False])
def test_a_producer_that_leaves_it_to_the_group_s_coordinator(story: Offsets, commit: bool) -> None:
    producer_id, epoch = story.begun()
    assert story.within((producer_id, epoch)) == [0]
    assert story.state().places == {story.place()}
    assert story.end((producer_id, epoch), commit, version=5).producer_epoch == epoch + 1
    story.settle()
    assert story.fetch() == (0, 5 if commit else -1)
    assert story.within((producer_id, epoch + 1), offsets={("t", 0): 9, ("t", 1): 9}) == [0, 0]
    assert story.fetch()[0] == E.UNSTABLE_OFFSET_COMMIT
    assert story.end((producer_id, epoch + 1), version=5).error_code == 0
    story.settle()
    assert (story.fetch(), story.fetch(place=("t", 1))) == ((0, 9), (0, 9))


def test_the_batch_is_the_producer_s_and_the_group_s_partition_stable_up_to_it(story: Offsets) -> None:
    producer = story.begun()
    start = story.log.log.end_offset
    story.within(producer)
    (segment,) = story.log.log.segments
    *_, header = [header for _, header in iter_headers(segment.file.read_at(0, segment.size))]
    assert (header.base_offset, header.producer_id, header.producer_epoch) == (start, *producer)
    assert (header.is_transactional, header.base_sequence) == (True, 0)
    assert story.log.log.producers.open_transaction(producer[0]) == start


def test_a_second_commit_of_the_transaction_asks_nobody(story: Offsets) -> None:
    producer = story.begun()
    story.within(producer)
    held = Held(story)
    assert story.within(producer, offsets={("t", 0): 6}) == [0]
    assert held.asked == []
    assert story.machine().offsets.pending.by_producer[producer[0]]["g"]["t", 0].offset == 6


@pytest.mark.parametrize(
    ("version", "code"), [(0, E.INVALID_TXN_STATE), (3, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE), (5, 0)]
)
def test_who_has_not_added_the_group(story: Offsets, version: int, code: int) -> None:
    producer = story.begun()
    story.add(producer, ("t", 0))
    assert story.within(producer, version=version) == [code]
    assert story.log.log.producers.open_transaction(producer[0]) == (-1 if code else 0)


@pytest.mark.parametrize("version", [3, 5, 6])
def test_who_is_fenced_and_who_is_nobody(story: Offsets, version: int) -> None:
    producer_id, epoch = story.begun()
    newer = story.begun()
    assert newer == (producer_id, epoch + 1)
    assert story.within((producer_id, epoch), version=version) == [E.INVALID_PRODUCER_EPOCH]
    assert story.within((producer_id + 1, 0), version=version) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert story.within(newer, version=version, key="nobody") == [E.INVALID_PRODUCER_ID_MAPPING]
    assert story.within(newer, version=version, group="") == [E.INVALID_GROUP_ID]


def test_an_old_epoch_is_told_so_by_the_partition_itself(story: Offsets) -> None:
    producer_id, epoch = story.begun()
    story.within((producer_id, epoch))
    story.end((producer_id, epoch), version=5)
    story.settle()
    held = Held(story)
    assert story.within((producer_id, epoch)) == [E.INVALID_PRODUCER_EPOCH]
    assert held.asked == []


@pytest.mark.parametrize("version", [5, 6])
def test_topics_and_partitions_that_are_not_there(story: Offsets, version: int) -> None:
    producer = story.begun()
    missing = E.UNKNOWN_TOPIC_ID if version == 6 else E.UNKNOWN_TOPIC_OR_PARTITION
    asked = {("gone", 0): 1, ("t", 0): 2, ("t", 7): 3, ("t", -1): 4}
    assert story.within(producer, version=version, offsets=asked) == [
        missing,
        0,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert story.within(producer, version=version, offsets={("gone", 0): 1}) == [missing]


def test_members_are_checked_as_each_version_understands(story: Offsets) -> None:
    producer = story.begun()
    member_id = joined(story)
    right = {"member_id": member_id, "generation_id": 1}
    assert story.within(producer, **right) == [0]
    assert story.within(producer) == [0], "who names nobody is not asked"
    old = {**right, "generation_id": 0}
    assert story.within(producer, **old) == [E.ILLEGAL_GENERATION]
    assert story.within(producer, **{**right, "member_id": "ghost"}) == [E.UNKNOWN_MEMBER_ID]
    assert story.within(producer, group="new", **right) == [E.ILLEGAL_GENERATION]
    assert story.within(producer, version=6, group="new", **right) == [E.GROUP_ID_NOT_FOUND]


def joined(story: Offsets) -> str:
    protocol = part("JoinGroup", "JoinGroupRequestProtocol", "range", b"")
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [protocol],
    }
    member_id = story.peer.call("JoinGroup", version=5, member_id="", **fields).member_id
    reply = story.peer.call("JoinGroup", version=5, member_id=member_id, **fields)
    assert (reply.error_code, reply.generation_id) == (0, 1)
    story.peer.call("SyncGroup", version=3, group_id="g", generation_id=1, member_id=member_id)
    return str(member_id)


class Held:
    """Questions to the transaction's coordinator that wait for the test."""

    def __init__(self, story: Offsets) -> None:
        self.asked: list[Any] = []
        story.world.node.rooms.services.questions = self  # type: ignore[assignment]

    def ask(self, *call: Any) -> None:
        self.asked.append(call)

    def answer(self, *answers: ErrorCode) -> None:
        *_, respond = self.asked.pop(0)
        respond(list(answers))


def test_a_member_that_is_fenced_while_the_transaction_is_asked_about_commits_nothing(story: Offsets) -> None:
    """Mistake 22."""
    producer, member_id = story.begun(), joined(story)
    held = Held(story)
    story.send_within(producer, member_id=member_id, generation_id=1)
    story.settle()
    other = story.world.peer()
    leaving = part("LeaveGroup", "MemberIdentity", member_id)
    assert other.call("LeaveGroup", version=3, group_id="g", members=[leaving]).error_code == 0
    held.answer(E.NONE)
    story.settle()
    assert codes(story.peer.reply()) == [E.UNKNOWN_MEMBER_ID]
    assert story.machine().offsets.pending.by_producer == {}
    assert len(story.log.checks.guards) == 0


def test_a_commit_whose_transaction_ends_while_it_is_asked_about_is_not_written(story: Offsets) -> None:
    producer_id, epoch = story.begun()
    held = Held(story)
    story.send_within((producer_id, epoch), version=4)
    story.settle()
    other = story.world.peer()
    late = marker((producer_id, epoch), story.place(), commit=False)
    other.call("WriteTxnMarkers", version=2, markers=[late])
    held.answer(E.NONE)
    story.settle()
    assert codes(story.peer.reply()) == [E.TRANSACTION_ABORTABLE]
    assert story.log.log.producers.open_transaction(producer_id) == -1
    assert len(story.log.checks.guards) == 0


def test_two_commits_that_wait_for_one_answer_each_are_both_written(story: Offsets) -> None:
    producer = story.begun()
    held = Held(story)
    peers = [story.peer, story.world.peer()]
    for number, peer in enumerate(peers):
        story.peer = peer
        story.send_within(producer, offsets={("t", number): 5})
    story.settle()
    held.answer(E.NONE)
    held.answer(E.NONE)
    story.settle()
    assert [codes(peer.reply()) for peer in peers] == [[0], [0]]
    assert set(story.machine().offsets.pending.partitions("g")) == {("t", 0), ("t", 1)}
    assert len(story.log.checks.guards) == 0


def test_a_connection_that_goes_while_its_transaction_is_asked_about_leaves_nothing(story: Offsets) -> None:
    producer = story.begun()
    held, other = Held(story), story.world.peer()
    story.peer, staying = other, story.peer
    story.send_within(producer)
    story.send_within(producer)
    story.settle()
    assert len(held.asked) == 1, "the next request of the connection waits"
    other.connection.closed()
    assert len(story.log.checks.guards) == 0
    held.answer(E.NONE)
    story.settle()
    assert story.machine().offsets.pending.by_producer == {}
    story.peer = staying
    assert story.fetch() == (0, -1)


def test_what_waits_for_coordinators_is_bounded(story: Offsets) -> None:
    producer = story.begun()
    services, held = story.world.node.rooms.services, Held(story)
    services.waiting.questioned_bytes = services.world.limits.receive_bytes_max - 100
    assert story.within(producer) == [E.COORDINATOR_NOT_AVAILABLE]
    assert (len(held.asked), len(story.log.checks.guards)) == (0, 0)
    services.waiting.questioned_bytes = 0
    story.send_within(producer)
    story.settle()
    assert services.waiting.questioned_bytes > 0
    held.answer(E.NONE)
    story.settle()
    assert codes(story.peer.reply()) == [0]
    assert services.waiting.questioned_bytes == 0


def test_a_leader_that_leads_anew_while_it_asks_has_the_producer_ask_again(story: Offsets) -> None:
    producer, held = story.begun(), Held(story)
    story.send_within(producer)
    story.settle()
    story.log.checks.guards.clear()
    held.answer(E.NONE)
    story.settle()
    assert codes(story.peer.reply()) == [E.NOT_COORDINATOR]


def test_all_offsets_of_a_group_are_told_with_those_that_are_not_stable(story: Offsets) -> None:
    producer = story.begun()
    story.within(producer, offsets={("t", 0): 5})
    story.end(producer, version=5)
    story.settle()
    story.within((producer[0], producer[1] + 1), offsets={("t", 0): 6, ("t", 1): 7})
    entries = {}
    for stable in (False, True):
        asked = part("OffsetFetch", "OffsetFetchRequestGroup", "g", topics=None)
        (group,) = story.peer.call("OffsetFetch", version=8, groups=[asked], require_stable=stable).groups
        entries[stable] = [
            (entry.partition_index, entry.error_code, entry.committed_offset)
            for topic in group.topics
            for entry in topic.partitions
        ]
    unstable = E.UNSTABLE_OFFSET_COMMIT
    assert entries == {False: [(0, 0, 5)], True: [(0, unstable, -1), (1, unstable, -1)]}


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (E.PRODUCER_FENCED, 5, E.INVALID_PRODUCER_EPOCH),
        (E.CONCURRENT_TRANSACTIONS, 3, E.CONCURRENT_TRANSACTIONS),
        (E.NETWORK_EXCEPTION, 3, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NETWORK_EXCEPTION, 1, E.COORDINATOR_NOT_AVAILABLE),
        (E.COORDINATOR_LOAD_IN_PROGRESS, 2, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.COORDINATOR_LOAD_IN_PROGRESS, 1, E.COORDINATOR_NOT_AVAILABLE),
        (E.COORDINATOR_NOT_AVAILABLE, 5, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_COORDINATOR, 5, E.NOT_COORDINATOR),
        (E.TRANSACTION_ABORTABLE, 3, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, 4, E.TRANSACTION_ABORTABLE),
        (E.INVALID_PRODUCER_ID_MAPPING, 0, E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_the_transaction_s_coordinator_refuses(
    story: Offsets, code: ErrorCode, version: int, told: ErrorCode
) -> None:
    producer = story.begun()
    held = Held(story)
    story.send_within(producer, version=version)
    story.settle()
    ((key, producer_id, epoch, places, add, _, _),) = held.asked
    assert (key, (producer_id, epoch), places, add) == (ID, producer, [story.place()], version >= 5)
    held.answer(code)
    story.settle()
    assert codes(story.peer.reply()) == [told]
    assert len(story.log.checks.guards) == 0


def test_what_a_producer_left_open_in_an_older_epoch_is_aborted_and_not_joined(story: Offsets) -> None:
    producer_id, epoch = story.begun()
    assert story.within((producer_id, epoch), offsets={("t", 1): 1}) == [0]
    held = Held(story)
    story.send_within((producer_id, epoch + 1), offsets={("t", 0): 2})
    story.settle()
    held.answer(E.NONE)
    story.settle()
    assert codes(story.peer.reply()) == [0]
    assert ends_in(story.log)[0][:2] == (producer_id, epoch)
    pending = story.machine().offsets.pending
    assert pending.by_producer[producer_id]["g"].keys() == {("t", 0)}


def test_a_marker_is_answered_when_the_offsets_have_moved_and_are_committed(story: Offsets) -> None:
    """Mistake 20."""
    producer_id, epoch = story.begun()
    story.within((producer_id, epoch))
    other = story.world.peer()
    ending = marker((producer_id, epoch + 1), story.place(), transaction_version=2)
    other.send("WriteTxnMarkers", version=2, markers=[ending])
    for _ in range(3):
        story.world.end_turn()
    assert other.replies() == []
    assert story.machine().offsets.of("g")["t", 0].offset == 5, "applied when it is written"
    story.settle()
    ((_, reply),) = other.replies()
    assert reply.markers[0].topics[0].partitions[0].error_code == 0
    assert story.fetch() == (0, 5)


def test_markers_of_old_epochs_and_old_coordinators_move_nothing(story: Offsets) -> None:
    producer_id, epoch = story.begun()
    story.within((producer_id, epoch))
    same = marker((producer_id, epoch), story.place(), transaction_version=2)
    assert story.write_markers(same) == [{story.place(): E.INVALID_PRODUCER_EPOCH}]
    assert story.fetch()[0] == E.UNSTABLE_OFFSET_COMMIT
    first = marker((producer_id, epoch + 1), story.place(), coordinator_epoch=5)
    assert story.write_markers(first) == [{story.place(): 0}]
    older = marker((producer_id, epoch + 1), story.place(), coordinator_epoch=4)
    assert story.write_markers(older) == [{story.place(): E.TRANSACTION_COORDINATOR_FENCED}]
    assert story.fetch() == (0, 5)


def test_a_marker_for_groups_that_are_being_loaded_comes_again(story: Offsets) -> None:
    producer_id, epoch = story.begun()
    story.within((producer_id, epoch))
    groups: Any = story.world.node.rooms.services.groups
    coordinator = groups._loaded.pop(story.log)
    groups._loading[story.log] = coordinator
    ending = marker((producer_id, epoch), story.place())
    assert story.write_markers(ending) == [{story.place(): E.NOT_LEADER_OR_FOLLOWER}]
    assert ends_in(story.log) == []
    groups._loaded[story.log] = groups._loading.pop(story.log)
    assert story.write_markers(ending) == [{story.place(): 0}]
    assert story.fetch() == (0, 5)


def test_a_restart_finds_what_is_pending_and_its_end(story: Offsets) -> None:
    producer_id, epoch = story.begun()
    story.within((producer_id, epoch))
    before = story.machine().offsets
    disk = story.world.disk
    story.world.node.close(clean=True)
    again = Offsets(disk)
    assert again.fetch()[0] == E.UNSTABLE_OFFSET_COMMIT
    assert again.machine().offsets == before
    assert again.end((producer_id, epoch), version=5).error_code == 0
    again.settle()
    assert again.fetch() == (0, 5)


def test_the_header_that_producers_are_checked_by_is_that_of_the_batch() -> None:
    header = offset_transactions.header_of(Producer(7, 3))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 0)
    assert (header.is_transactional, header.is_control) == (True, False)
