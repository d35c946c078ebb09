"""Transactions on several nodes: markers travel, and coordinators and leaders move while they do."""

from collections.abc import Callable
from typing import Any

import pytest
from nodes_together import Cluster, create, made
from transactions_world import ID, codes, ends_in, marker, markers_in, topics_of, transaction

from skidway.broker.cluster.peers import Peers
from skidway.broker.coordinators import marker_sender
from skidway.errors import ErrorCode
from skidway.groups.placement import partition_of
from skidway.records.control import EndTransaction
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.transaction import Ended, Ending
from skidway.wire.message import Message
from skidway.wire.schema.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

STATE = "__transaction_state"
PARTITIONS = 6
PLACES = [("t", index) for index in range(PARTITIONS)]
NOT_AVAILABLE = (14, 15, 16)
"""Loading, none, not this one: clients look for the coordinator again."""


class Story:
    """Three nodes, and a client that finds its coordinator wherever it is."""

    def __init__(self) -> None:
        self.cluster: Cluster = made(transactions=TransactionSettings(state_partitions=3))
        create(self.cluster, "t", PARTITIONS)
        self.ask(1, "FindCoordinator", version=4, key_type=1, coordinator_keys=[ID])
        self.cluster.until(lambda: all(STATE in node.image.topics for node in self.cluster.nodes.values()))

    def ask(self, number: int, name: str, **fields: Any) -> Any:
        client = self.cluster.client(number)
        client.send(name, **fields)
        ((_, reply),) = self.cluster.until(client.replies)
        return reply

    @property
    def state_partition(self) -> int:
        return partition_of(ID, 3)

    def coordinator(self) -> int:
        return int(self.cluster.until(lambda: self.cluster.leader(STATE, self.state_partition)))

    def asked(self, name: str, code_of: Callable[[Any], int], **fields: Any) -> Any:
        """What the coordinator says, when there is one."""
        replies: list[Any] = []

        def answered() -> bool:
            replies.append(self.ask(self.coordinator(), name, **fields))
            return code_of(replies[-1]) not in (*NOT_AVAILABLE, ErrorCode.CONCURRENT_TRANSACTIONS)

        self.cluster.until(answered)
        return replies[-1]

    def init(self) -> tuple[int, int]:
        fields = {"version": 4, "transactional_id": ID, "transaction_timeout_ms": 60_000}
        reply = self.asked("InitProducerId", lambda reply: int(reply.error_code), **fields)
        assert reply.error_code == 0
        return reply.producer_id, reply.producer_epoch

    def add(self, producer: tuple[int, int]) -> None:
        fields = {
            "version": 3,
            "v3_and_below_transactional_id": ID,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": topics_of("AddPartitionsToTxn", "AddPartitionsToTxnTopic", tuple(PLACES)),
        }
        reply = self.asked("AddPartitionsToTxn", first_code, **fields)
        assert codes(reply.results_by_topic_v3_and_below) == dict.fromkeys(PLACES, 0)

    def end(self, producer: tuple[int, int], commit: bool = True) -> None:
        fields = {"version": 3, "transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1]}
        reply = self.asked("EndTxn", lambda reply: int(reply.error_code), committed=commit, **fields)
        assert reply.error_code == 0

    def markers(self) -> list[list[tuple[int, int, bool]]]:
        """Of each partition, as its leader has them."""
        self.cluster.until(lambda: all(self.cluster.leader(*place) for place in PLACES))
        leaders = [int(self.cluster.leader(*place) or 0) for place in PLACES]
        return [markers_in(self.cluster.copy(leader, *place)) for leader, place in zip(leaders, PLACES, strict=True)]

    def state(self) -> Any:
        """Of the id, as its coordinator knows it."""
        coordinators = self.cluster.nodes[self.coordinator()].rooms.services.transactions.loaded.values()
        machines = [each.host.machine for each in coordinators if each.partition.index == self.state_partition]
        return machines[0].transactions[ID].state if machines else None

    def until_ended(self) -> None:
        self.cluster.until(lambda: isinstance(self.state(), Ended))


def first_code(reply: Any) -> int:
    return int(reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def test_markers_reach_partitions_of_all_nodes_in_one_request_each(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = watched(monkeypatch)
    story = Story()
    producer = story.init()
    story.add(producer)
    story.end(producer)
    story.until_ended()
    assert story.markers() == [[(*producer, True)]] * PARTITIONS
    leaders = {story.cluster.leader(*place) or 0 for place in PLACES}
    assert len(leaders) == 3
    assert sorted(node for node, _ in sent) == sorted(leaders - {story.coordinator()}), "none to itself"


def watched(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[int, Message | None], Message | None] = lambda node, response: response,
) -> list[tuple[int, WriteTxnMarkersRequest]]:
    """Fills with the requests for markers, and to whom they went; `change` makes another answer of theirs."""
    sent: list[tuple[int, WriteTxnMarkersRequest]] = []
    ask = Peers.ask

    def ask_and_tell(
        peers: Peers, node_id: int, channel: str, request: Message, now_ms: int, timeout_ms: int, respond: Any
    ) -> None:
        if isinstance(request, WriteTxnMarkersRequest):
            sent.append((node_id, request))
            ask(
                peers,
                node_id,
                channel,
                request,
                now_ms,
                timeout_ms,
                lambda response: respond(change(node_id, response)),
            )
        else:
            ask(peers, node_id, channel, request, now_ms, timeout_ms, respond)

    monkeypatch.setattr(Peers, "ask", ask_and_tell)
    return sent


class Lost:
    """Answers to requests for markers that do not arrive, as long as a test says so."""

    def __init__(self) -> None:
        self.losing = True

    def __call__(self, node: int, response: Message | None) -> Message | None:
        return None if self.losing else response


def test_an_answer_that_is_lost_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Lost()
    sent = watched(monkeypatch, lost)
    story = Story()
    producer = story.init()
    story.add(producer)
    story.end(producer)
    story.cluster.pass_time(5_000)
    assert isinstance(story.state(), Ending)
    requests = len(sent)
    assert 4 < requests < 60, "with pauses"
    lost.losing = False
    story.until_ended()
    assert all(set(markers) == {(*producer, True)} for markers in story.markers())


def test_one_refused_partition_holds_the_end_back(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = True

    def refuse(node: int, response: Message | None) -> Message | None:
        if refusing and isinstance(response, WriteTxnMarkersResponse):
            response.markers[0].topics[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return response

    watched(monkeypatch, refuse)
    story = Story()
    producer = story.init()
    story.add(producer)
    story.end(producer)
    story.cluster.pass_time(5_000)
    assert isinstance(story.state(), Ending)
    refusing = False
    story.until_ended()


@pytest.mark.parametrize("power_lost", [True, False])
def test_a_coordinator_that_dies_between_the_end_and_its_markers(
    monkeypatch: pytest.MonkeyPatch, power_lost: bool
) -> None:
    """The end was answered, so it has to happen: whoever coordinates next sends all markers."""
    story = Story()
    producer = story.init()
    story.add(producer)
    with monkeypatch.context() as until_then:
        until_then.setattr(marker_sender.MarkerSender, "_work", lambda sender: None)
        story.end(producer)
        assert isinstance(story.state(), Ending)
        first = story.coordinator()
        story.cluster.kill(first, power_lost=power_lost)
    assert story.coordinator() != first
    story.until_ended()
    assert story.markers() == [[(*producer, True)]] * PARTITIONS
    story.cluster.restart(first)
    story.cluster.until(story.cluster.ready)
    story.end(producer)  # once more: the client has not heard the first answer
    assert story.markers() == [[(*producer, True)]] * PARTITIONS
    story.add(producer)


def test_a_marker_of_a_coordinator_of_before_is_refused() -> None:
    """It may say the opposite of what its successor has decided."""
    story = Story()
    producer = story.init()
    first = story.coordinator()
    older = story.cluster.copy(first, STATE, story.state_partition).leader.epoch
    story.cluster.kill(first)
    story.add(producer)
    newer = story.cluster.copy(story.coordinator(), STATE, story.state_partition).leader.epoch
    assert newer > older
    story.end(producer)
    story.until_ended()
    leader = story.cluster.until(lambda: story.cluster.leader(*PLACES[0]))
    late = marker(producer, PLACES[0], commit=False, coordinator_epoch=older)
    reply = story.ask(leader, "WriteTxnMarkers", version=2, markers=[late])
    (result,) = reply.markers[0].topics[0].partitions
    assert result.error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    ends = [end for *_, end in ends_in(story.cluster.copy(leader, *PLACES[0]))]
    assert ends == [EndTransaction(True, newer)]


def test_a_coordinator_that_is_cut_off_completes_nothing_and_fences_nobody() -> None:
    story = Story()
    producer = story.init()
    story.add(producer)
    old = story.coordinator()
    story.cluster.cut(old)
    client = story.cluster.client(old)
    client.send(
        "EndTxn", version=3, transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=True
    )
    rest = [number for number in story.cluster.nodes if number != old]

    def led_by_another() -> bool:
        partitions = [story.cluster.nodes[number].image.topics[STATE].partitions for number in rest]
        return {each[story.state_partition].leader for each in partitions} <= set(rest)

    story.cluster.until(led_by_another)
    assert client.replies() == [], "nobody else has the record"
    story.cluster.heal()
    ((_, refused),) = story.cluster.until(client.replies)
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    story.cluster.until(story.cluster.ready)
    assert all(True not in [committed for *_, committed in markers] for markers in story.markers())
    story.end(producer, commit=False)
    story.until_ended()
    assert story.markers() == [[(*producer, False)]] * PARTITIONS


def test_a_leader_that_dies_with_its_markers_on_the_way() -> None:
    story = Story()
    producer = story.init()
    story.add(producer)
    coordinator = story.coordinator()
    victim = next(leader for place in PLACES if (leader := story.cluster.leader(*place)) != coordinator)
    assert victim is not None
    story.cluster.slow_syncs.add(victim)
    story.end(producer)
    story.cluster.pass_time(200)
    assert isinstance(story.state(), Ending)
    story.cluster.kill(victim, power_lost=True)
    story.cluster.slow_syncs.discard(victim)
    story.until_ended()
    assert all(set(markers) == {(*producer, True)} for markers in story.markers())
    story.add(producer)
    story.end(producer, commit=False)
    story.until_ended()
    assert all(markers[-1] == (*producer, False) for markers in story.markers())


def test_a_late_answer_about_one_transaction_does_not_complete_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a client of the older kind: producer id and epoch are the same in both."""
    held: list[Callable[[], None]] = []
    holding = True
    ask = Peers.ask

    def ask_and_hold(
        peers: Peers, node_id: int, channel: str, request: Message, now_ms: int, timeout_ms: int, respond: Any
    ) -> None:
        def answer(response: Message | None) -> None:
            if holding and isinstance(request, WriteTxnMarkersRequest):
                held.append(lambda: respond(response))
                return
            respond(response)

        ask(peers, node_id, channel, request, now_ms, timeout_ms, answer)

    monkeypatch.setattr(Peers, "ask", ask_and_hold)
    story = Story()
    producer = story.init()
    story.add(producer)
    story.end(producer)
    story.cluster.until(lambda: len(held) >= 2)
    late, held[:] = held[:], []
    node = story.cluster.nodes[story.coordinator()]
    # The machine is loaded again, as after a write that failed: all markers are asked for once more.
    (coordinator,) = [
        each
        for each in node.rooms.services.transactions.loaded.values()
        if each.partition.index == story.state_partition
    ]
    coordinator.host._reload(ErrorCode.NONE)  # type: ignore[arg-type]
    holding = False
    story.until_ended()
    story.add(producer)
    holding = True
    story.end(producer, commit=False)
    story.cluster.pass_time(500)
    assert isinstance(story.state(), Ending)
    for answer in late:
        answer()
    story.cluster.pass_time(500)
    assert isinstance(story.state(), Ending), "those markers were of the transaction before"
    holding = False
    for answer in held:
        answer()
    story.until_ended()
    assert all(markers[-1] == (*producer, False) for markers in story.markers())


def test_a_node_that_does_not_coordinate_says_so() -> None:
    story = Story()
    producer = story.init()
    other = next(number for number in story.cluster.nodes if number != story.coordinator())
    for version in (4, 5):
        reply = story.ask(other, "AddPartitionsToTxn", version=version, transactions=[transaction(producer, PLACES[0])])
        (result,) = reply.results_by_transaction
        assert codes(result.topic_results) == {PLACES[0]: ErrorCode.NOT_COORDINATOR}
    fields = {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1]}
    assert story.ask(other, "EndTxn", version=5, committed=True, **fields).error_code == ErrorCode.NOT_COORDINATOR
    assert story.ask(other, "AddOffsetsToTxn", version=4, group_id="g", **fields).error_code in NOT_AVAILABLE
