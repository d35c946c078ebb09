"""Who calls travels with every call, and through an Envelope to the controller."""

from typing import Any

import pytest
from broker_world import World, part
from nodes_together import made

from skidway.broker.api.caller import ANONYMOUS, NODE, Caller, Principal, from_envelope, this_node, to_envelope
from skidway.broker.node import Node
from skidway.errors import ErrorCode, InvalidRequest
from skidway.wire.headers import write_request_header
from skidway.wire.registry import codec
from skidway.wire.schema.envelope import EnvelopeRequest
from skidway.wire.schema.principal_data import DefaultPrincipalData

ALICE = Caller(Principal("User", "alice", True), "shop", "10.1.2.3", "OUTSIDE")


def callers_of(node: Node, key: int, version: int) -> list[Caller]:
    """Fills with the callers of an API from now on."""
    seen: list[Caller] = []
    route = node.routes[key, version]
    handle = route.handle_here

    def seeing(node: Node, call: Any, request: Any) -> Any:
        seen.append(call.caller)
        return handle(node, call, request)

    route.handle = route.handle_here = seeing
    return seen


def asked_by(world: World, peer_address: str, *client_ids: str | None) -> list[Caller]:
    seen = callers_of(world.node, 18, 0)
    connection = world.node.connect(peer_address, "PLAINTEXT")
    for client_id in client_ids:
        header = write_request_header(18, 0, 1, client_id)
        connection.receive(memoryview(len(header).to_bytes(4, "big") + header), world.clock.now_ms)
    return seen


def test_a_client_is_anonymous_and_has_an_address_and_a_listener() -> None:
    (caller,) = asked_by(World(), "10.0.0.7:5000", "shop")
    assert caller == Caller(ANONYMOUS, "shop", "10.0.0.7", "PLAINTEXT", is_node=True)
    assert caller.shown_host == "/10.0.0.7"
    assert not caller.is_this_node


def test_an_address_of_version_6_has_no_brackets() -> None:
    (caller,) = asked_by(World(), "[fe80::1]:5000", "shop")
    assert caller.host == "fe80::1"


def test_requests_of_one_connection_may_have_different_client_ids() -> None:
    callers = asked_by(World(), "10.0.0.7:5000", None, "a", "a", "b")
    assert [caller.client_id for caller in callers] == [None, "a", "a", "b"]
    assert callers[1] is callers[2], "one value as long as nothing changes"


@pytest.mark.parametrize("host", ["10.1.2.3", "fe80::1", ""])
def test_a_caller_comes_out_of_an_envelope_as_it_went_in(host: str) -> None:
    caller = Caller(ALICE.principal, "shop", host, "OUTSIDE")
    envelope = to_envelope(caller, b"request")
    assert envelope.request_data == b"request"
    assert from_envelope(envelope, "shop") == caller


def test_other_readers_of_an_envelope_find_the_principal_as_kafka_writes_it() -> None:
    data = to_envelope(ALICE, b"").request_principal
    assert data is not None
    assert bytes(data[:2]) == b"\0\0"
    principal, end = codec(DefaultPrincipalData).decoder(0)(data, 2)
    assert (principal.type, principal.name, principal.token_authenticated) == ("User", "alice", True)
    assert end == len(data)


def test_the_name_of_a_host_is_not_an_address() -> None:
    assert to_envelope(Caller(ANONYMOUS, None, "somewhere", "OUTSIDE"), b"").client_host_address == b""


def test_an_envelope_of_an_older_node_names_nobody() -> None:
    assert from_envelope(EnvelopeRequest(b"", None, b""), "shop") == Caller(ANONYMOUS, "shop", "", "")


def test_nobody_outside_becomes_this_very_node() -> None:
    enveloped = from_envelope(to_envelope(this_node(1), b""), None)
    assert enveloped.principal == Principal(NODE, "1")
    assert not enveloped.is_this_node
    assert not enveloped.is_node


GOOD = to_envelope(ALICE, b"")


@pytest.mark.parametrize(
    ("principal", "address"),
    [
        (b"", b""),
        (b"\0", b""),
        (b"\0\1" + bytes(GOOD.request_principal or b"")[2:], b""),
        (bytes(GOOD.request_principal or b"")[:-1], b""),
        (bytes(GOOD.request_principal or b"") + b"\0", b""),
        (GOOD.request_principal, b"\1\2\3"),
        (None, b"\1\2\3\4\5"),
    ],
)
def test_a_caller_that_cannot_be_read_is_refused(principal: bytes | None, address: bytes) -> None:
    with pytest.raises(InvalidRequest):
        from_envelope(EnvelopeRequest(b"", principal, address), None)
    request = write_request_header(55, 0, 1, "shop") + b"\1\0"
    reply = (
        World().peer().call("Envelope", request_data=request, request_principal=principal, client_host_address=address)
    )
    assert reply.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


def test_the_controller_hears_who_asked_the_node_that_forwards() -> None:
    cluster = made()
    controller = cluster.until(cluster.controller)
    other = next(number for number in cluster.nodes if number != controller)
    seen = callers_of(cluster.nodes[controller], 19, 7)
    client = cluster.client(other)
    client.connection = cluster.nodes[other].connect("10.0.0.7:5000", "PLAINTEXT")
    client.send("CreateTopics", topics=[part("CreateTopics", "CreatableTopic", "t", 1, 1)], timeout_ms=1000)
    ((_, reply),) = cluster.until(client.replies)
    assert [topic.error_code for topic in reply.topics] == [0]
    assert seen == [Caller(ANONYMOUS, "test", "10.0.0.7", "PLAINTEXT")]
