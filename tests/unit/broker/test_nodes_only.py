"""What only nodes may call is refused to others in one place, as soon as there is authentication."""

from importlib import import_module
from typing import Any

import pytest
from broker_world import KEYS, Peer, World, batch, values
from msgspec.structs import replace

from skidway.broker.api.admission import SHARE_STATES
from skidway.broker.api.connection import LARGE_BYTES
from skidway.broker.api.table import SERVED, Audience
from skidway.errors import ErrorCode
from skidway.wire.message import Message
from skidway.wire.registry import APIS, api
from skidway.wire.schema.fetch import FetchRequest, ReplicaState

OF_NODES = [APIS[key] for key, row in SERVED.items() if row.audience is Audience.NODES and key not in SHARE_STATES]
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
LARGE = {"Envelope": {"request_data": bytes(LARGE_BYTES + 1)}}


@pytest.fixture
def world() -> World:
    """Callers prove who they are."""
    return World(authenticates=True)


def ask(peer: Peer, name: str, **fields: Any) -> Any:
    return peer.call(name, version=SERVED[KEYS[name]].versions[1], **fields)


def node_peer(world: World) -> Peer:
    """A connection by which a node has proven that it is one."""
    peer = world.peer()
    peer.connection.caller = replace(peer.connection.caller, is_node=True)
    return peer


def entered(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Fills with the requests that get as far as the quorum or the controller."""
    seen: list[Message] = []
    monkeypatch.setattr(world.node.quorum, "answer", lambda call, request: seen.append(request))
    monkeypatch.setattr(
        world.node.rooms.controller, "commit", lambda operation, now_ms, respond: seen.append(operation)
    )
    return seen


@pytest.mark.parametrize("name", OF_NODES)
def test_an_api_of_nodes_is_refused_to_a_client(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = entered(world, monkeypatch)
    assert ask(world.peer(), name, **LARGE.get(name, {})).error_code == REFUSED
    assert seen == []


@pytest.mark.parametrize("name", OF_NODES)
def test_an_api_of_nodes_is_served_to_a_node(world: World, name: str) -> None:
    assert ask(node_peer(world), name).error_code != REFUSED


@pytest.mark.parametrize("name", OF_NODES)
def test_without_authentication_everybody_may_be_a_node(name: str) -> None:
    assert ask(World().peer(), name).error_code != REFUSED


@pytest.mark.parametrize("name", [APIS[key] for key in SHARE_STATES])
def test_share_partitions_are_refused_one_by_one(world: World, name: str) -> None:
    schema = import_module(api(KEYS[name]).request.message.__module__)
    (data,) = [each for label, each in vars(schema).items() if label.endswith("StateData") or "SummaryData" in label]
    topics = [data(bytes(16), [schema.PartitionData(0), schema.PartitionData(7)])]

    def codes(peer: Peer) -> list[tuple[int, int]]:
        reply = ask(peer, name, group_id="g", topics=topics)
        return [(result.partition, result.error_code) for topic in reply.results for result in topic.partitions]

    assert codes(world.peer()) == [(0, REFUSED), (7, REFUSED)]
    assert [partition for partition, code in codes(node_peer(world)) if code != REFUSED] == [0, 7]


def test_a_client_cannot_fetch_as_a_replica(world: World) -> None:
    world.peer().create("t", flush="os")
    as_replica = {"replica_state": ReplicaState(2, 1)}
    assert ask(world.peer(), "Fetch", **as_replica).error_code == REFUSED
    assert ask(node_peer(world), "Fetch", **as_replica).error_code != REFUSED
    assert ask(World().peer(), "Fetch", **as_replica).error_code != REFUSED


def test_a_client_is_served_as_before(world: World) -> None:
    peer = world.peer()
    peer.create("t", flush="os")
    peer.produce("t", batch(b"x"))
    world.settle()
    peer.replies()
    peer.fetch({("t", 0): 0})
    assert values(peer.reply()) == [b"x"]
    # For this one the node asks itself, by an API of nodes.
    assert peer.call("InitProducerId", transactional_id=None, transaction_timeout_ms=1000).error_code == 0


def test_what_has_to_be_refused_has_a_code_to_say_so() -> None:
    for name in OF_NODES:
        assert api(KEYS[name]).response.message(error_code=REFUSED).error_code == REFUSED
    assert FetchRequest().replica_state.replica_id < 0, "older versions cannot fetch as a replica"


@pytest.mark.parametrize(
    "name", ["ReceiveMessages", "SettleMessages", "CountMessages", "SendMessages", "ManageSchedules"]
)
def test_the_messages_of_a_queue_are_for_clients_too(world: World, name: str) -> None:
    """They need rights of the queue's topic, as a fetch does; who is a node has those of a node."""
    for peer in (world.peer(), node_peer(world)):
        assert ask(peer, name).error_code != REFUSED
