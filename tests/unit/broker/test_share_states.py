"""Share coordinators on real nodes, and the questions that leaders and groups ask them: here, elsewhere, in vain."""

from collections.abc import Iterable
from typing import Any

import pytest
from broker_world import Peer, World, part
from nodes_together import Cluster, create, made

from skidway.broker.coordinators import share_states
from skidway.broker.coordinators.shares import KEY_TYPE, SHARES_TOPIC
from skidway.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    ProtocolError,
)
from skidway.metadata.image import Image
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.keys import ShareKey, parse, text_of
from skidway.shares.coordinator.operations import DONE, Initialize, Read, State, Summary, Write
from skidway.shares.coordinator.settings import ShareCoordinatorSettings

DONE_BATCH = StateBatch(4, 6, 2, 1)
FEW = ShareCoordinatorSettings(state_partitions=3)


class Asker:
    """A node that asks."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.number = cluster, number

    def ask(self, question: Any) -> Any:
        answers: list[Any] = []
        states = self.cluster.nodes[self.number].rooms.services.share_states
        states.ask(question, self.cluster.clock.now_ms, answers.append)
        (answer,) = self.cluster.until(lambda: answers)
        return answer


def key_of(cluster: Cluster, group: str, partition: int = 0) -> ShareKey:
    return ShareKey(group, cluster.nodes[min(cluster.nodes)].image.topics["t"].id, partition)


def leader_of(cluster: Cluster, key: ShareKey) -> int:
    shares = cluster.nodes[min(cluster.nodes)].rooms.services.share_states.shares
    return int(cluster.until(lambda: cluster.leader(SHARES_TOPIC, shares.place_of(text_of(key)))))


def lead_again(images: Iterable[Image], leader_epoch: int) -> None:
    """Leaders of the topic have come and gone, up to this epoch."""
    for image in images:
        for partition in image.topics["t"].partitions:
            partition.leader_epoch = leader_epoch


@pytest.fixture
def cluster() -> Cluster:
    cluster = made(shares=FEW)
    create(cluster, "t", 2)
    lead_again((node.image for node in cluster.nodes.values()), 9)
    return cluster


def test_any_node_may_ask_and_the_state_survives_its_coordinator(cluster: Cluster) -> None:
    key = key_of(cluster, "g")
    assert Asker(cluster, 1).ask(Initialize(key, 1, 4)) == DONE
    leader = leader_of(cluster, key)
    for number in (1, 2, 3):
        assert Asker(cluster, number).ask(Read(key, number)) == State(1, 4, [])
    assert Asker(cluster, 3).ask(Write(key, 1, 3, 4, 3, [DONE_BATCH])) == DONE
    cluster.kill(leader)
    other = next(number for number in cluster.nodes)
    cluster.until(lambda: leader_of(cluster, key) != leader)
    assert Asker(cluster, other).ask(Read(key, 4)) == State(1, 4, [DONE_BATCH])
    late = Asker(cluster, other).ask(Write(key, 1, 3, 9, 0, []))
    assert isinstance(late, FencedLeaderEpoch)
    cluster.restart(leader)
    cluster.until(cluster.ready)
    states = cluster.nodes[leader].rooms.services.share_states
    summaries: list[Any] = []
    states.read_summary(key, cluster.clock.now_ms, summaries.append)
    assert cluster.until(lambda: summaries) == [Summary(1, 4, 4, 3)]


def test_refusals_come_as_they_are_from_other_nodes(cluster: Cluster) -> None:
    key = key_of(cluster, "g")
    assert Asker(cluster, 1).ask(Initialize(key, 3, 4)) == DONE
    stranger = next(number for number in cluster.nodes if number != leader_of(cluster, key))
    asker = Asker(cluster, stranger)
    assert isinstance(asker.ask(Read(key._replace(group_id="nobody"), 1)), InvalidRequest)
    assert isinstance(asker.ask(Initialize(key, 2, 4)), FencedStateEpoch)
    assert isinstance(asker.ask(Write(key, 3, 1)), FencedStateEpoch), "it has not read"
    assert asker.ask(Read(key, 1)) == State(3, 4, [])
    assert asker.ask(Write(key, 3, 1, 5, 0, [])) == DONE


def test_what_comes_meanwhile_goes_together_in_the_next_request(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key_of(cluster, "g", partition) for partition in (0, 1)]
    for key in keys:
        assert Asker(cluster, 1).ask(Initialize(key, 1, 0)) == DONE
    leader = leader_of(cluster, keys[0])
    stranger = next(number for number in cluster.nodes if number != leader)
    asker = Asker(cluster, stranger)
    here = [key for key in keys if leader_of(cluster, key) == leader]
    for key in here:
        asker.ask(Read(key, 1))
    node = cluster.nodes[stranger]
    requests: list[Any] = []
    ask = node.peers.ask

    def spied(node_id: int, channel: str, request: Any, *others: Any) -> None:
        if channel == share_states.CHANNEL:
            requests.append(request)
        ask(node_id, channel, request, *others)

    monkeypatch.setattr(node.peers, "ask", spied)
    answers: list[Any] = []
    for start_offset in range(1, 6):
        for key in here:
            write = Write(key, 1, 1, start_offset, 0, [])
            node.rooms.services.share_states.ask(write, cluster.clock.now_ms, answers.append)
    cluster.until(lambda: len(answers) == 5 * len(here))
    assert answers == [DONE] * 5 * len(here)
    assert len(requests) <= 6, "one for each round of writes to the same share-partition, one more for the first"
    starts = [entry.start_offset for request in requests for entry in request.topics[0].partitions]
    assert sorted(starts) == starts, "in order"


def test_a_question_is_answered_in_bounded_time(cluster: Cluster) -> None:
    key = key_of(cluster, "g")
    assert Asker(cluster, 1).ask(Initialize(key, 1, 0)) == DONE
    leader = leader_of(cluster, key)
    stranger = next(number for number in cluster.nodes if number != leader)
    cluster.cut(stranger)
    asked_ms = cluster.clock.now_ms
    answer = Asker(cluster, stranger).ask(Read(key, 1))
    assert isinstance(answer, CoordinatorNotAvailable)
    assert cluster.clock.now_ms - asked_ms <= FEW.write_timeout_ms + 100
    cluster.heal()
    cluster.until(cluster.ready)
    assert Asker(cluster, stranger).ask(Read(key, 1)) == State(1, 0, [])


def test_writes_about_one_share_partition_stay_in_order_whatever_else_is_in_line() -> None:
    key, other = ShareKey("g", bytes(16), 0), ShareKey("g", bytes(16), 1)
    heavy = [StateBatch(number, number, 2, 1) for number in range(share_states.BATCHES_MAX)]

    class Running:
        armed = True

    def asked(write: Write) -> share_states._Asked:
        made = share_states._Asked(write, lambda answer: None)
        timer: Any = Running()
        made.timer = timer
        return made

    writes = [
        Write(key, 1, 1, 1),
        Write(other, 1, 1, 1, 0, heavy),
        Write(other, 1, 1, 2),
        Write(key, 1, 1, 2),
    ]
    lane: share_states.Lane = (Write, "g")
    lines = {lane: share_states.deque([asked(write) for write in writes])}
    rounds: list[list[Write]] = []
    while lines:
        asked_now = share_states._take(lines, lane)
        rounds.append([each.question for each in asked_now if isinstance(each.question, Write)])
    assert sorted([write for one in rounds for write in one], key=writes.index) == writes
    for about in (key, other):
        starts = [write.start_offset for one in rounds for write in one if write.key == about]
        assert starts == [1, 2]
    assert all(len({write.key for write in one}) == len(one) for one in rounds)


# --- over the wire, on one node ---


def find(peer: Peer, key: str) -> tuple[int, int]:
    reply = peer.call("FindCoordinator", version=6, key_type=KEY_TYPE, coordinator_keys=[key])
    (found,) = reply.coordinators
    return found.error_code, found.node_id


def test_a_share_partition_has_a_coordinator() -> None:
    world = World(shares=FEW)
    peer = world.peer()
    peer.create("t")
    topic_id = world.node.image.topics["t"].id
    key = text_of(ShareKey("a:b", topic_id, 3))
    assert parse(key) == ShareKey("a:b", topic_id, 3)
    assert find(peer, key) == (0, world.node.settings.node_id)
    assert len(world.node.image.topics[SHARES_TOPIC].partitions) == 3
    for wrong in ("g", "g:0", f"{key}x", key.rpartition(":")[0], f":{key.partition(':')[2]}:1:-1", "g:####:0", ""):
        assert find(peer, wrong)[0] == ErrorCode.INVALID_REQUEST, wrong


def test_requests_are_answered_entry_by_entry() -> None:
    world = World(shares=FEW)
    peer = world.peer()
    peer.create("t", 2)
    topic_id = world.node.image.topics["t"].id
    lead_again([world.node.image], 2)
    find(peer, text_of(ShareKey("g", topic_id, 0)))

    def call(name: str, data: str, *entries: dict[str, Any], **fields: Any) -> list[tuple[int, ErrorCode]]:
        partitions = [part(name, "PartitionData", **entry) for entry in entries]
        topics = [part(name, data, topic_id, partitions)]
        reply = peer.call(name, group_id="g", topics=topics, **fields)
        return [(each.partition, ErrorCode(each.error_code)) for topic in reply.results for each in topic.partitions]

    fine, unknown, bad = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    asked = [{"partition": number, "state_epoch": 1, "start_offset": 5} for number in (0, 1, 2, -1)]
    initialised = call("InitializeShareGroupState", "InitializeStateData", *asked)
    assert initialised == [(0, fine), (1, fine), (2, unknown), (-1, bad)]
    reads = [{"partition": number, "leader_epoch": 2} for number in (0, 1)]
    assert call("ReadShareGroupState", "ReadStateData", *reads) == [(0, fine), (1, fine)]
    assert call("ReadShareGroupState", "ReadStateData", {"partition": 0, "leader_epoch": 1}) == [
        (0, ErrorCode.FENCED_LEADER_EPOCH)
    ]
    ahead = {"partition": 0, "leader_epoch": 3}
    refused = [(0, ErrorCode.UNKNOWN_LEADER_EPOCH)]
    assert call("ReadShareGroupState", "ReadStateData", ahead) == refused, "or nobody could ever lead again"
    batches = [part("WriteShareGroupState", "StateBatch", 7, 8, 2, 1)]
    write = {"partition": 0, "state_epoch": 1, "leader_epoch": 2, "start_offset": 6, "state_batches": batches}
    counted = {**write, "partition": 1, "delivery_complete_count": 2}
    assert call("WriteShareGroupState", "WriteStateData", write, counted, version=1) == [(0, fine), (1, fine)]
    (summary,) = (
        peer.call(
            "ReadShareGroupStateSummary",
            version=1,
            group_id="g",
            topics=[
                part(
                    "ReadShareGroupStateSummary",
                    "ReadStateSummaryData",
                    topic_id,
                    [part("ReadShareGroupStateSummary", "PartitionData", 1, -1)],
                )
            ],
        )
        .results[0]
        .partitions
    )
    assert (summary.start_offset, summary.delivery_complete_count, summary.state_epoch, summary.leader_epoch) == (
        6,
        2,
        1,
        2,
    )
    assert call("DeleteShareGroupState", "DeleteStateData", {"partition": 0}, {"partition": 1}) == [
        (0, fine),
        (1, fine),
    ]
    assert call("ReadShareGroupState", "ReadStateData", *reads) == [(0, bad), (1, bad)]


def test_the_log_is_cut_and_a_restart_finds_the_same() -> None:
    settings = ShareCoordinatorSettings(state_partitions=1, updates_per_snapshot=2, prune_interval_ms=1_000)
    world = World(shares=settings)
    world.peer().create("t")
    key = ShareKey("g", world.node.image.topics["t"].id, 0)

    def ask(question: Any) -> Any:
        answers: list[Any] = []
        world.node.rooms.services.share_states.ask(question, world.clock.now_ms, answers.append)
        world.settle()
        (answer,) = answers
        assert not isinstance(answer, ProtocolError), answer
        return answer

    ask(Initialize(key, 1, 0))
    ask(Read(key, 1))
    for offset in range(20):
        ask(Write(key, 1, 1, offset, 0, [StateBatch(offset + 2, offset + 2, 2, 1)]))
    for _ in range(3):
        world.pass_time(1_000)
        world.settle()
    log = world.partition(SHARES_TOPIC).log
    assert log.end_offset - log.start_offset <= 3
    again = World(world.disk, shares=settings)
    again.clock.now_ms = world.clock.now_ms
    world = again
    state = ask(Read(key, 1))
    assert (state.start_offset, state.batches) == (19, [StateBatch(19, 21, 2, 1)])
