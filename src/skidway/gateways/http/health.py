"""Whether this node lives, is ready for clients, and may be stopped: for load balancers and whoever restarts nodes.

`/livez` answers as long as the event loop turns, which the answer proves. `/readyz` says 503 with reasons while clients
should go elsewhere. `/v1/node/safe-to-stop` says 409 with reasons while a stop of this node would leave partitions with
fewer in-sync replicas than their `min.insync.replicas`, or the quorum without a majority. A cluster of one broker has
nothing to wait for: it is always safe, and `alone`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from skidway.broker.api.call import LocalCall
from skidway.broker.api.forwarding import handle_later
from skidway.gateways.http.replies import NO_STORE, TEXT, Reply, json_reply
from skidway.gateways.http.routes import Route
from skidway.steps import Question, Steps
from skidway.wire.message import Message
from skidway.wire.schema.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)

if TYPE_CHECKING:
    from skidway.broker.node import Node
    from skidway.gateways.http.call import HttpCall

DESCRIBE_QUORUM_KEY = 55
METADATA_TOPIC = "__cluster_metadata"
VOTER_SILENT_MS = 5_000
"""A voter that follows has all there is every half second or so."""
NAMED_MAX = 20


class Readiness(msgspec.Struct):
    ready: bool
    node: int
    reasons: list[str]


class Safety(msgspec.Struct):
    safe: bool
    node: int
    alone: bool
    """The only broker of its cluster."""
    partitions: int
    """How many would have fewer in-sync replicas than they need."""
    reasons: list[str]


def rows() -> list[Route]:
    return [
        Route("GET", "/livez", _live, "Whether the node lives.", content_type=TEXT, early=True),
        Route("GET", "/healthz", _live, "The same as /livez.", content_type=TEXT, early=True),
        Route("GET", "/readyz", _ready, "Whether the node is ready for clients.", answer=Readiness, early=True),
        Route(
            "GET",
            "/v1/node/safe-to-stop",
            _safe_to_stop,
            "Whether a stop of the node leaves every partition and the quorum with what they need.",
            answer=Safety,
            problems=(503,),
        ),
    ]


def _live(call: HttpCall) -> Reply:
    return Reply(200, TEXT, b"ok\n", NO_STORE)


def _ready(call: HttpCall) -> Reply:
    node = call.site.node
    reasons = not_ready(node)
    return json_reply(Readiness(not reasons, node.settings.node_id, reasons), 503 if reasons else 200, NO_STORE)


def not_ready(node: Node) -> list[str]:
    reasons: list[str] = []
    if node.failure is not None:
        reasons.append(f"nothing is written any more: {node.failure}")
    if not node.settings.is_broker:
        return reasons if node.quorum.leader_id >= 0 else [*reasons, "the quorum has no leader"]
    if not node.serving:
        reasons.append(
            "partitions are being opened" if node.opening else "the cluster has not taken this broker in yet"
        )
    broker = node.image.brokers.get(node.settings.node_id)
    if node.rooms.registration.leaving:
        reasons.append("the broker is stopping")
    elif broker is None:
        reasons.append("the broker is not registered")
    elif broker.fenced:
        reasons.append("the broker is fenced")
    if node.rooms.services.room.is_full:
        reasons.append("the disk is full")
    return reasons


def _safe_to_stop(call: HttpCall) -> Steps[Reply]:
    node = call.site.node
    own = node.settings.node_id
    if set(node.image.brokers) <= {own} and node.quorum.alone:
        return json_reply(Safety(True, own, True, 0, []), headers=NO_STORE)
    reasons: list[str] = []
    response = yield Question(lambda answer: _ask_about_quorum(call, answer))
    if (reason := _quorum_needs(own, response)) is not None:
        reasons.append(reason)
    lacking: list[str] = []
    yield from _find_lacking(node, lacking)
    if lacking:
        named = ", ".join(lacking[:NAMED_MAX]) + (", …" if len(lacking) > NAMED_MAX else "")
        reasons.append(f"would have fewer in-sync replicas than min.insync.replicas: {named}")
    safety = Safety(not reasons, own, False, len(lacking), reasons)
    return json_reply(safety, 409 if reasons else 200, NO_STORE)


def _ask_about_quorum(call: HttpCall, answer: object) -> None:
    node, services = call.site.node, call.site.services
    assert callable(answer)
    route = node.routes.newest(DESCRIBE_QUORUM_KEY)
    inner = LocalCall(route, call.caller, node.clock.monotonic_ms(), answer, call.fail)
    request = DescribeQuorumRequest([RequestTopicData(METADATA_TOPIC, [RequestPartitionData(0)])])
    handle_later(services, inner, route.handle, request)


def _quorum_needs(own: int, response: Message | None) -> str | None:
    """Why the quorum cannot do without this node."""
    assert isinstance(response, DescribeQuorumResponse)
    if response.error_code or not response.topics or response.topics[0].partitions[0].error_code:
        return "there is no controller that knows of the others"
    partition = response.topics[0].partitions[0]
    voters = partition.current_voters
    if all(voter.replica_id != own for voter in voters):
        return None
    newest_ms = max(voter.last_caught_up_timestamp for voter in voters)
    following = [
        voter.replica_id
        for voter in voters
        if voter.replica_id == partition.leader_id
        or (voter.log_end_offset >= 0 and newest_ms - voter.last_caught_up_timestamp <= VOTER_SILENT_MS)
    ]
    left = len(set(following) - {own})
    needed = len(voters) // 2 + 1
    return None if left >= needed else f"{left} of {len(voters)} voters would be left; {needed} are a majority"


def _find_lacking(node: Node, lacking: list[str]) -> Steps[None]:
    own, image = node.settings.node_id, node.image
    settings = node.rooms.hosting.topic_settings
    for name in list(image.topics):
        topic = image.topics.get(name)
        if topic is None:
            continue
        needed = settings.of(name).min_insync_replicas
        for partition in topic.partitions:
            yield None
            if own not in partition.isr:
                continue
            fenced = set(image.offline(partition.isr))
            left = sum(replica != own and replica not in fenced for replica in partition.isr)
            if left < min(needed, len(partition.replicas)):
                lacking.append(f"{name}-{partition.index}")
