"""Handlers need no connection: a call made by hand is served like one that came in a frame."""

from typing import Any

import pytest
from broker_world import World, batch, code, part, values
from msgspec.structs import replace
from nodes_together import made

from skidway.broker.api.call import LocalCall
from skidway.broker.api.caller import ANONYMOUS, Caller, this_node
from skidway.broker.api.forwarding import handle_later
from skidway.broker.api.table import SERVED
from skidway.broker.node import Node
from skidway.errors import ErrorCode
from skidway.ports import FileSlice
from skidway.wire.message import Message
from skidway.wire.registry import api
from skidway.wire.schema.allocate_producer_ids import AllocateProducerIdsRequest
from skidway.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from skidway.wire.schema.fetch import FetchRequest
from skidway.wire.schema.produce import ProduceRequest

GATEWAY = Caller(ANONYMOUS, "gateway", "10.0.0.7", "HTTP")
NODE = replace(GATEWAY, is_node=True)
PRODUCE, FETCH = 9, 11


class Asked:
    def __init__(self, node: Node, request: Message, version: int | None = None, caller: Caller = GATEWAY) -> None:
        key = request.__key__
        assert key is not None
        self.answers: list[Any] = []
        self.bugs: list[Exception] = []
        route = node.routes.newest(key) if version is None else node.routes[key, version]
        now_ms = node.clock.monotonic_ms()
        self.call = LocalCall(route, caller, now_ms, self.answers.append, self.bugs.append)
        handle_later(node.rooms.services, self.call, route.handle, request)

    @property
    def answer(self) -> Any:
        assert self.bugs == []
        (answer,) = self.answers
        return answer


@pytest.fixture
def world() -> World:
    world = World()
    world.peer().create("t", flush="sync")
    return world


def produce_request(topic: str, data: bytes) -> ProduceRequest:
    # Writable, as in a frame: the leader stamps offsets into it.
    entry = part("Produce", "PartitionProduceData", 0, bytearray(data))
    topics = [part("Produce", "TopicProduceData", topic, partition_data=[entry])]
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)


def fetch_request(topic: str) -> FetchRequest:
    wanted = part("Fetch", "FetchPartition", 0, fetch_offset=0, partition_max_bytes=1_000_000)
    topics = [part("Fetch", "FetchTopic", topic, partitions=[wanted])]
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1_000_000, session_epoch=-1, topics=topics)


@pytest.mark.parametrize("key", [*SERVED])
def test_every_handler_answers_a_call_without_a_connection(world: World, key: int) -> None:
    """An empty request is answered with a response that has the form of its API, be it an error."""
    fields = {"acks": 1} if key == 0 else {}  # acks=0 has no answer
    asked = Asked(world.node, api(key).request.message(**fields), caller=NODE)
    world.settle()
    world.pass_time(1_000)
    world.settle()
    assert isinstance(asked.answer, api(key).response.message)
    parts: list[Any] = []
    api(key).response.encoder(asked.call.version)(asked.answer, parts)
    assert b"".join(item.read() if isinstance(item, FileSlice) else bytes(item) for item in parts)


def test_a_produced_batch_is_acknowledged_when_it_is_synced(world: World) -> None:
    asked = Asked(world.node, produce_request("t", batch(b"x")), PRODUCE)
    world.end_turn()
    assert asked.answers == []
    world.sync()
    assert code(asked.answer) == 0


def test_a_long_poll_is_answered_when_there_is_something(world: World) -> None:
    asked = Asked(world.node, fetch_request("t"), FETCH)
    world.settle()
    assert asked.answers == []
    Asked(world.node, produce_request("t", batch(b"x")), PRODUCE)
    world.settle()
    found = asked.answer.responses[0].partitions[0]
    found.records = found.records.read()  # a slice of the log's file
    assert values(asked.answer) == [b"x"]


def test_a_caller_that_gives_up_gets_no_answer_and_nothing_is_kept_for_it(world: World) -> None:
    asked = Asked(world.node, fetch_request("t"), FETCH)
    world.settle()
    assert len(world.node.waiting.polls) == 1
    asked.call.give_up()
    assert len(world.node.waiting.polls) == 0
    world.pass_time(500)
    assert asked.answers == []


def test_a_reply_that_comes_after_giving_up_goes_nowhere(world: World) -> None:
    request = CreateTopicsRequest([CreatableTopic("made", 1, 1)], timeout_ms=1000)
    asked = Asked(world.node, request)
    asked.call.give_up()
    world.settle()
    assert "made" in world.node.image.topics
    assert asked.answers == []


def test_a_bug_is_handed_to_the_caller(world: World) -> None:
    asked = Asked(world.node, fetch_request("t"), FETCH)
    bug = ValueError("a bug")
    asked.call.fail(bug)
    assert asked.bugs == [bug]


def test_a_request_of_the_controller_is_forwarded_from_any_node() -> None:
    cluster = made()
    controller = cluster.until(cluster.controller)
    other = next(node for number, node in cluster.nodes.items() if number != controller)
    asked = Asked(other, CreateTopicsRequest([CreatableTopic("t", 1, 3)], timeout_ms=1000))
    assert asked.answers == []
    cluster.until(lambda: asked.answers)
    assert [(topic.name, topic.error_code) for topic in asked.answer.topics] == [("t", 0)]


@pytest.mark.parametrize(("own", "error"), [(True, ErrorCode.NONE), (False, ErrorCode.STALE_BROKER_EPOCH)])
def test_only_this_very_node_gets_producer_ids_without_a_registration(world: World, own: bool, error: int) -> None:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=-1)
    asked = Asked(world.node, request, caller=this_node(world.node.settings.node_id) if own else NODE)
    world.settle()
    assert asked.answer.error_code == error
