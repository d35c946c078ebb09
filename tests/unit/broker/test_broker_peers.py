"""Asking other nodes: what goes out, that every request is answered once, and what becomes of links that fail."""

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from broker_world import HandClock
from hypothesis import given
from hypothesis import strategies as st

from skidway.broker.cluster.controller_access import ControllerAccess
from skidway.broker.cluster.peers import LOST_MS, RETRY_MS, Link, Peers
from skidway.broker.events import Event, PeerHungUpOn
from skidway.limits import KIB, MIB, Limits
from skidway.runtime.timers import Timers
from skidway.server.events import EventLog
from skidway.wire.headers import read_request_header, response_header
from skidway.wire.message import Message
from skidway.wire.registry import api
from skidway.wire.schema.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from skidway.wire.schema.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from skidway.wire.schema.vote import VoteRequest, VoteResponse

HEARTBEAT = BrokerHeartbeatRequest(broker_id=1, broker_epoch=5)


class Network:
    """The far side of every link: sees what was asked and answers when the test says so."""

    def __init__(self, **limits: int) -> None:
        self.now_ms = 1_000
        self.timers = Timers()
        self.peers = Peers("node-1", self.timers, Limits(**limits), lambda event: self.events.append(event))
        self.peers.dial = self._dial
        self.events: list[Event] = []
        self.dialled: list[Link] = []
        self.hung_up: list[Link] = []
        self.ready: list[Link] = []
        self.answers: list[Message | None] = []
        self.peers.locate(2, "two", 9092)

    def _dial(self, link: Link) -> None:
        self.dialled.append(link)
        link.hangup = lambda: self.hung_up.append(link)
        link.on_ready = lambda: self.ready.append(link)

    def ask(
        self,
        request: Message = HEARTBEAT,
        *,
        node_id: int = 2,
        channel: str = "control",
        timeout_ms: int = 500,
        respond: Callable[[Message | None], None] | None = None,
    ) -> None:
        before = len(self.answers)
        self.peers.ask(node_id, channel, request, self.now_ms, timeout_ms, respond or self.answers.append)
        assert len(self.answers) == before, "answered from inside ask"

    def open(self, **wanted: Any) -> Link:
        self.ask(**wanted)
        link = self.dialled[-1]
        link.opened(self.now_ms)
        return link

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.timers.fire(self.now_ms)

    def asked(self, link: Link) -> list[tuple[int, int, int, Message]]:
        """(API key, version, correlation id, request) of every frame in the outbox, which is sent by this."""
        data = b"".join(link.outbox)
        link.outbox.clear()
        requests = []
        while data:
            (length,) = struct.unpack_from(">i", data)
            body, data = data[4 : 4 + length], data[4 + length :]
            key, version, correlation_id, client_id, position = read_request_header(body)
            assert client_id == "node-1"
            request, end = api(key).request.decoder(version)(body, position)
            assert end == len(body)
            requests.append((key, version, correlation_id, request))
        return requests

    def give(self, link: Link, data: bytes) -> int:
        return link.receive(memoryview(data), self.now_ms)


def reply(correlation_id: int, response: Message) -> bytes:
    key = response.__key__
    assert key is not None
    version = api(key).versions[1]
    parts: list[Any] = [response_header(key, version, correlation_id)]
    api(key).response.encoder(version)(response, parts)
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


@pytest.fixture
def network() -> Network:
    return Network()


def test_a_question_and_its_answer(network: Network) -> None:
    link = network.open()
    assert (link.node_id, link.channel, link.host, link.port) == (2, "control", "two", 9092)
    assert network.ready == [link]  # opened with something to send
    ((key, version, correlation_id, request),) = network.asked(link)
    assert (key, version) == (63, api(63).versions[1])
    assert isinstance(request, BrokerHeartbeatRequest)
    assert request.broker_epoch == 5
    data = reply(correlation_id, BrokerHeartbeatResponse(is_caught_up=True))
    assert network.give(link, data) == len(data)
    (answer,) = network.answers
    assert isinstance(answer, BrokerHeartbeatResponse)
    assert answer.is_caught_up
    network.pass_time(10_000)
    assert len(network.answers) == 1  # its deadline went with its answer


def test_a_node_is_asked_once_where_it_is_said_to_be(network: Network) -> None:
    for outcome in ("answered", "refused", "late"):
        network.answers.clear()
        network.peers.ask_at(2, "elsewhere", 9999, HEARTBEAT, network.now_ms, 500, network.answers.append)
        link = network.dialled[-1]
        assert (link.host, link.port, network.answers) == ("elsewhere", 9999, [])
        if outcome == "answered":
            link.opened(network.now_ms)
            ((_, _, correlation_id, _),) = network.asked(link)
            network.give(link, reply(correlation_id, BrokerHeartbeatResponse(is_caught_up=True)))
        elif outcome == "refused":
            link.closed(network.now_ms)
        network.pass_time(501)
        assert [answer is not None for answer in network.answers] == [outcome == "answered"], outcome
        assert link.ended
        assert (link in network.hung_up) == (outcome != "refused")
    # Nothing of that is remembered.
    assert network.peers.address_of(2) == ("two", 9092)
    assert network.open().host == "two"


def test_answers_belong_to_their_questions_in_order(network: Network) -> None:
    link = network.open()
    network.ask(VoteRequest())
    network.ask()
    ids = [correlation_id for _, _, correlation_id, _ in network.asked(link)]
    assert len(set(ids)) == 3
    data = reply(ids[0], BrokerHeartbeatResponse()) + reply(ids[1], VoteResponse())
    data += reply(ids[2], BrokerHeartbeatResponse(is_fenced=True))
    assert network.give(link, data) == len(data)
    first, second, third = network.answers
    assert isinstance(first, BrokerHeartbeatResponse)
    assert isinstance(second, VoteResponse)
    assert isinstance(third, BrokerHeartbeatResponse)
    assert third.is_fenced


def test_answers_come_in_any_pieces(network: Network) -> None:
    link = network.open()
    network.ask()
    ids = [correlation_id for _, _, correlation_id, _ in network.asked(link)]
    data = b"".join(reply(each, BrokerHeartbeatResponse()) for each in ids)
    tail = b""
    for at in range(len(data)):
        tail += data[at : at + 1]
        tail = tail[network.give(link, tail) :]
        assert link.needed in (0, len(data) // 2)
        assert (link.needed > 0) == (len(tail) >= 4)
    assert len(network.answers) == 2
    assert tail == b""


def test_whoever_is_answered_may_ask_at_once(network: Network) -> None:
    seen: list[Message | None] = []

    def again(response: Message | None) -> None:
        seen.append(response)
        if len(seen) < 3:
            network.peers.ask(2, "control", HEARTBEAT, network.now_ms, 500, again)

    link = network.open(respond=again)
    for _ in range(3):
        ((_, _, correlation_id, _),) = network.asked(link)
        network.give(link, reply(correlation_id, BrokerHeartbeatResponse()))
    assert len(seen) == 3
    assert None not in seen
    assert len(network.dialled) == 1


def test_fetched_records_are_views_of_what_was_received(network: Network) -> None:
    records = b"r" * (3 * MIB)
    link = network.open(request=FetchRequest(), channel="replica-0")
    ((_, version, correlation_id, _),) = network.asked(link)
    assert version == 18
    partition = PartitionData(partition_index=7, high_watermark=3, records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[partition])])
    data = bytearray(reply(correlation_id, response))
    link.receive(memoryview(data), network.now_ms)
    (answer,) = network.answers
    assert isinstance(answer, FetchResponse)
    got = answer.responses[0].partitions[0].records
    assert isinstance(got, memoryview)
    assert got.obj is data
    assert got == records


def test_channels_wait_for_nobody_else(network: Network) -> None:
    control = network.open(channel="control")
    quorum = network.open(channel="quorum")
    assert control is not quorum
    ((_, _, correlation_id, _),) = network.asked(quorum)
    network.give(quorum, reply(correlation_id, BrokerHeartbeatResponse()))
    assert len(network.answers) == 1
    control.closed(network.now_ms)
    network.pass_time(0)
    assert network.answers[1:] == [None]
    assert quorum.is_open


# --- no answer ---


def test_a_node_that_nobody_knows(network: Network) -> None:
    network.ask(node_id=9)
    network.pass_time(0)
    assert network.answers == [None]
    assert network.dialled == []


def test_without_a_shell_nobody_is_reached(network: Network) -> None:
    network.peers.dial = None
    network.ask()
    network.pass_time(0)
    assert network.answers == [None]


def test_refused(network: Network) -> None:
    network.ask()
    network.ask()
    (link,) = network.dialled
    link.closed(network.now_ms)
    link.closed(network.now_ms)
    network.pass_time(0)
    assert network.answers == [None, None]


def test_refused_while_it_is_dialled(network: Network) -> None:
    network.peers.dial = lambda link: link.closed(network.now_ms)
    network.ask()
    network.pass_time(0)
    assert network.answers == [None]


def test_lost_while_a_question_is_sent(network: Network) -> None:
    link = network.open()
    link.on_ready = lambda: link.closed(network.now_ms)
    network.ask()
    network.pass_time(0)
    assert network.answers == [None, None]


def test_a_dead_node_is_dialled_now_and_then(network: Network) -> None:
    for _ in range(RETRY_MS * 10):
        network.ask()
        for link in network.dialled:
            link.closed(network.now_ms)
        network.pass_time(1)
    assert network.answers == [None] * (RETRY_MS * 10)
    assert 9 <= len(network.dialled) <= 11


def test_after_a_loss_the_next_question_dials_again(network: Network) -> None:
    network.open().closed(network.now_ms)
    network.pass_time(RETRY_MS)
    link = network.open()
    assert len(network.dialled) == 2
    ((_, _, correlation_id, _),) = network.asked(link)
    network.give(link, reply(correlation_id, BrokerHeartbeatResponse()))
    assert network.answers[0] is None
    assert network.answers[1] is not None


def test_too_late(network: Network) -> None:
    """Whoever does not answer in time is hung up on: all that waits there has no answer, and a late one is nobody's."""
    link = network.open(timeout_ms=100)
    network.ask(timeout_ms=60_000)
    ids = [correlation_id for _, _, correlation_id, _ in network.asked(link)]
    network.pass_time(99)
    assert network.answers == []
    network.pass_time(1)
    network.pass_time(0)
    assert network.answers == [None, None]
    assert network.hung_up == [link]
    late = reply(ids[0], BrokerHeartbeatResponse())
    assert network.give(link, late) == len(late)
    network.pass_time(60_000)
    assert network.answers == [None, None]


def test_too_late_while_it_is_dialled(network: Network) -> None:
    network.ask(timeout_ms=100)
    (link,) = network.dialled
    network.pass_time(100)
    assert network.answers == [None]
    assert network.hung_up == [link]
    link.opened(network.now_ms)
    assert network.hung_up == [link, link]
    assert not link.is_open


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 4) + struct.pack(">i", 1),  # a header without its tags
        struct.pack(">i", 8) + struct.pack(">ixxxx", 1),  # a body that is too short
        reply(2, BrokerHeartbeatResponse()),  # another correlation id
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", len(reply(1, BrokerHeartbeatResponse())) - 3)
        + reply(1, BrokerHeartbeatResponse())[4:]
        + b"x",
    ],
)
def test_garbage(network: Network, garbage: bytes) -> None:
    link = network.open()
    network.ask()
    network.asked(link)
    assert network.give(link, garbage) == len(garbage)
    network.pass_time(0)
    assert network.answers == [None, None]
    assert network.hung_up == [link]
    (event,) = network.events
    assert isinstance(event, PeerHungUpOn)
    assert (event.node_id, event.link) == (2, "node 2 at two:9092 (control)")


def test_nonsense_is_told_now_and_then(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    events = EventLog(clock, lambda wait_s, step: None)
    for _ in range(100):
        network.give(network.open(), b"HTTP/1.1 400 Bad Request\r\n\r\n")
        events.report(network.events[-1])
        network.pass_time(150)
        clock.now_ms += 150
    assert len(network.dialled) == 100
    assert len([line for line in caplog.messages if line.startswith("closed the connection to node 2")]) == 2


def test_a_reply_to_nothing(network: Network) -> None:
    link = network.open()
    ((_, _, correlation_id, _),) = network.asked(link)
    data = reply(correlation_id, BrokerHeartbeatResponse())
    network.give(link, data + data)
    network.pass_time(0)
    assert len(network.answers) == 1
    assert network.hung_up == [link]


def test_a_reply_may_be_as_long_as_a_fetch_and_no_longer() -> None:
    network = Network(frame_bytes_max=64 * KIB, fetch_bytes_max=32 * KIB, reply_bytes_max=16 * KIB)
    link = network.open()
    network.give(link, struct.pack(">i", 80 * KIB))
    assert link.needed == 80 * KIB + 4
    network.give(link, struct.pack(">i", 80 * KIB + 1))
    assert network.hung_up == [link]


def test_so_many_questions_may_be_under_way() -> None:
    network = Network(inflight_requests_max=3)
    for _ in range(5):
        network.ask()
    network.pass_time(0)
    assert network.answers == [None, None]
    assert len(network.asked(network.dialled[0])) == 3


def test_a_failing_answer_leaves_the_others_alone(network: Network) -> None:
    """The shell reports it and drops the link; the answers behind it are lost, but nobody waits for ever."""

    def fail(response: Message | None) -> None:
        raise RuntimeError("a bug")

    link = network.open(respond=fail)
    network.ask()
    ids = [correlation_id for _, _, correlation_id, _ in network.asked(link)]
    with pytest.raises(RuntimeError, match="a bug"):
        network.give(link, b"".join(reply(each, BrokerHeartbeatResponse()) for each in ids))
    link.closed(network.now_ms)
    network.pass_time(0)
    assert network.answers == [None]


# --- addresses ---


def test_a_node_that_moved(network: Network) -> None:
    old = network.open()
    network.peers.locate(2, "two", 9092)
    assert network.hung_up == []  # it did not
    network.peers.locate(2, "elsewhere", 9093)
    assert network.hung_up == [old]
    network.pass_time(0)
    assert network.answers == [None]
    new = network.open()  # at once: the new address has refused nothing yet
    assert (new.host, new.port) == ("elsewhere", 9093)
    assert network.peers.address_of(2) == ("elsewhere", 9093)
    old.closed(network.now_ms)
    assert new.is_open
    network.ask()
    assert len(network.asked(new)) == 2


def test_a_node_that_is_forgotten(network: Network) -> None:
    links = [network.open(channel="control"), network.open(channel="quorum")]
    network.peers.locate(3, "three", 9092)
    other = network.open(node_id=3)
    network.peers.forget(2)
    assert network.hung_up == links
    network.pass_time(0)
    assert network.answers == [None, None]
    assert other.is_open
    network.ask(node_id=2)
    network.pass_time(0)
    assert network.answers == [None, None, None]
    assert len(network.dialled) == 3


def test_what_was_asked_of_a_former_controller_is_given_up(network: Network) -> None:
    """It may have lost its power, and then nothing says so: whoever asked would wait for the whole time-out."""
    network.peers.locate(3, "three", 9092)
    leader = SimpleNamespace(leader_id=2, alone=False)
    world = SimpleNamespace(settings=SimpleNamespace(node_id=1), timers=network.timers)
    hosts: tuple[Any, ...] = (world, None, leader, SimpleNamespace(active=None), network.peers, None)
    controller = ControllerAccess(*hosts)
    controller.follow_quorum(network.now_ms)
    controller.ask(HEARTBEAT, network.answers.append, network.now_ms)
    other = network.open(channel="forward")
    for leader.leader_id in (2, -1):
        controller.follow_quorum(network.now_ms)
        network.pass_time(0)
        assert network.answers == [], "the same one, or nobody knows another one"
    leader.leader_id = 3
    controller.follow_quorum(network.now_ms)
    network.pass_time(0)
    assert network.answers == [None]
    assert other not in network.hung_up, "forwarded requests may have been carried out: their answers are waited for"
    controller.ask(HEARTBEAT, network.answers.append, network.now_ms)
    assert [link.node_id for link in network.dialled] == [2, 2, 3]


def test_an_answer_that_makes_the_node_move(network: Network) -> None:
    """Metadata in a reply may say that its sender is elsewhere: what followed on that link is not taken."""
    link = network.open(respond=lambda response: network.peers.locate(2, "elsewhere", 1))
    network.ask()
    ids = [correlation_id for _, _, correlation_id, _ in network.asked(link)]
    data = b"".join(reply(each, BrokerHeartbeatResponse()) for each in ids)
    assert network.give(link, data) == len(data)
    network.pass_time(0)
    assert network.answers == [None]


@given(st.data())
def test_whatever_arrives_every_question_is_answered_once(data: st.DataObject) -> None:
    """Replies cut into pieces, with bytes changed, inserted and left out; questions and losses in between."""
    network = Network()
    asked = 0
    for _ in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(1, 4))):
            network.ask(timeout_ms=data.draw(st.integers(1, 1_000)))
            asked += 1
        if network.dialled and not network.dialled[-1].ended:
            link = network.dialled[-1]
            link.opened(network.now_ms)
            ids = [correlation_id for _, _, correlation_id, _ in network.asked(link)]
            stream = bytearray(b"".join(reply(each, BrokerHeartbeatResponse()) for each in ids))
            for _ in range(data.draw(st.integers(0, 2))):
                at = data.draw(st.integers(0, len(stream)))
                stream[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
            tail = b""
            while stream:
                size = data.draw(st.integers(1, len(stream)))
                tail += bytes(stream[:size])
                del stream[:size]
                tail = tail[network.give(link, tail) :]
            if data.draw(st.booleans()):
                link.closed(network.now_ms)
        network.pass_time(data.draw(st.integers(0, 500)))
    network.pass_time(2_000)
    network.pass_time(0)
    assert len(network.answers) == asked
    assert len(network.timers) == 0


def talking(network: Network, channel: str = "control") -> Link:
    """With an answer behind it and a question under way."""
    link = network.open(channel=channel)
    ((_, _, correlation_id, _),) = network.asked(link)
    network.give(link, reply(correlation_id, BrokerHeartbeatResponse()))
    network.ask(channel=channel)
    return link


def test_a_node_that_hangs_up_in_the_middle_of_something_counts_as_lost_for_a_while(network: Network) -> None:
    link, other = talking(network), talking(network, "fetch")
    link.closed(network.now_ms)
    assert not network.peers.is_lost(2, network.now_ms), "it lives on another link"
    other.closed(network.now_ms)
    assert network.peers.is_lost(2, network.now_ms)
    assert not network.peers.is_lost(2, network.now_ms + LOST_MS)
    network.pass_time(RETRY_MS)
    network.open()
    assert not network.peers.is_lost(2, network.now_ms)


def test_a_node_that_ends_an_idle_link_or_refuses_one_is_not_lost(network: Network) -> None:
    link = network.open()
    ((_, _, correlation_id, _),) = network.asked(link)
    network.give(link, reply(correlation_id, BrokerHeartbeatResponse()))
    link.closed(network.now_ms)
    assert not network.peers.is_lost(2, network.now_ms)
    for _ in range(3):
        network.pass_time(RETRY_MS)
        network.ask()
        network.dialled[-1].closed(network.now_ms)
        network.pass_time(RETRY_MS)
        network.open().closed(network.now_ms)
        assert not network.peers.is_lost(2, network.now_ms), "it refuses, or takes no more connections"
