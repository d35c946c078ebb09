"""Changes of the quorum's voters on the node that leads it, from the request to its answer.

A change holds when it is appended and is done when it is committed; who asked for it waits until then. Before a node is
added it is asked, at the address that the others will use, whether it is that node and may be a voter. Voters that
were named in a configuration are known by their ids alone: once all of them were heard of, their directories are
written down.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from skidway.broker.cluster.peers import Peers
from skidway.broker.world import World
from skidway.errors import ErrorCode, InvalidRequest, NotController, ProtocolError, RequestTimedOut, StorageError
from skidway.metadata.config_keys import ResourceType
from skidway.quorum import membership
from skidway.quorum.machine import Quorum
from skidway.quorum.membership import VoterChange
from skidway.quorum.voters import NO_DIRECTORY, Voter
from skidway.wire.message import Message
from skidway.wire.schema.add_raft_voter import AddRaftVoterRequest
from skidway.wire.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from skidway.wire.schema.remove_raft_voter import RemoveRaftVoterRequest

Respond = Callable[[ErrorCode, str | None], None]
REMOVAL_TIMEOUT_MS = 30_000
"""Who removes a voter cannot say how long it would wait."""
NOT_LEADING = "this node does not lead the quorum"
ROLES = "process.roles"
ASKING_MAX = 8
"""Nodes that may be asked at the same time; each costs a connection to wherever somebody says it is."""


class QuorumMember(Protocol):
    """This node's part in the quorum."""

    quorum: Quorum

    @property
    def leads(self) -> bool: ...

    @property
    def alone(self) -> bool: ...

    def touch(self) -> None:
        """Something may be to do at the end of the turn."""
        ...


class Membership:
    def __init__(self, world: World, peers: Peers, cluster_id: str, host: QuorumMember) -> None:
        self._world = world
        self._peers = peers
        self._cluster_id = cluster_id
        self._host = host
        self._waiting: list[tuple[VoterChange, Respond]] = []
        self._asking: set[int] = set()
        """The nodes that are asked whether they may be voters."""

    def add(self, request: AddRaftVoterRequest, now_ms: int, respond: Respond) -> None:
        quorum = self._host.quorum
        deadline_ms = now_ms + max(request.timeout_ms, 0)
        try:
            if not self._host.leads:
                raise NotController(NOT_LEADING)
            voter = membership.voter_to_add(request, self._cluster_id)
            membership.check_addable(quorum, voter, now_ms)
            node_id = voter.member.node_id
            if node_id in self._asking:
                raise RequestTimedOut(f"the controller is already asking node {node_id} whether it can vote; retry")
            if len(self._asking) >= ASKING_MAX:
                raise RequestTimedOut(
                    f"the controller is already asking {ASKING_MAX} other nodes whether they can vote; retry"
                )
        except ProtocolError as refusal:
            respond(refusal.code, refusal.message)
            return

        def answered(response: Message | None) -> None:
            self._asking.discard(node_id)
            then_ms = self._world.clock.monotonic_ms()

            def change() -> VoterChange:
                _check_candidate(voter, response)
                return membership.add_voter(quorum, voter, then_ms, deadline_ms - then_ms)

            self._change(change, respond if request.ack_when_committed else None, respond)

        self._asking.add(node_id)
        host, port = self._world.settings.peer_addresses.get(node_id, (voter.host, voter.port))
        timeout_ms = quorum.settings.request_timeout_ms
        self._peers.ask_at(node_id, host, port, _what_it_does(node_id), now_ms, timeout_ms, answered)

    def remove(self, request: RemoveRaftVoterRequest, now_ms: int, respond: Respond) -> None:
        def change() -> VoterChange:
            member = membership.member_to_remove(request, self._cluster_id)
            return membership.remove_voter(self._host.quorum, member, now_ms, REMOVAL_TIMEOUT_MS)

        self._change(change, respond, respond)

    def _change(self, change: Callable[[], VoterChange], when_done: Respond | None, respond: Respond) -> None:
        if not self._host.leads:
            respond(NotController.code, NOT_LEADING)
            return
        try:
            begun = change()
        except ProtocolError as refusal:
            respond(refusal.code, refusal.message)
            return
        if when_done is None:
            respond(ErrorCode.NONE, None)
        else:
            self._waiting.append((begun, when_done))
            self._world.timers.at(begun.deadline_ms, self._host.touch)
        self._host.touch()

    def work(self, now_ms: int) -> None:
        """Answer what is decided by now; learn directories."""
        quorum = self._host.quorum
        waiting, self._waiting = self._waiting, []
        for change, respond in waiting:
            became = membership.outcome(quorum, change, now_ms)
            if became is None:
                self._waiting.append((change, respond))
            else:
                respond(
                    became, None if became is ErrorCode.NONE else "it is not known whether the change will be committed"
                )
        if quorum.leads and any(voter.member.directory_id == NO_DIRECTORY for voter in quorum.voters):
            self._learn_directories(now_ms)

    def _learn_directories(self, now_ms: int) -> None:
        if self._host.alone or not self._host.leads:
            return
        with suppress(StorageError):  # no room: it is tried again the next time something happens
            membership.learn_directories(self._host.quorum, now_ms)


def _what_it_does(node_id: int) -> DescribeConfigsRequest:
    """Answered by that very node alone."""
    return DescribeConfigsRequest([DescribeConfigsResource(ResourceType.BROKER, str(node_id), [ROLES])])


def _check_candidate(voter: Voter, response: Message | None) -> None:
    """Whoever follows the metadata has said which node it is, not what it may do."""
    node_id, at = voter.member.node_id, f"{voter.host}:{voter.port}"
    if not isinstance(response, DescribeConfigsResponse):
        raise RequestTimedOut(f"node {node_id} does not answer at {at}, where the other voters would connect to it")
    for result in response.results:
        if result.error_code:
            raise InvalidRequest(f"node {node_id} is not at {at}: {result.error_message or 'another node answers'}")
    roles = [entry.value or "" for result in response.results for entry in result.configs if entry.name == ROLES]
    if not any("controller" in each.split(",") for each in roles):
        raise InvalidRequest(
            f"node {node_id} cannot be a voter: its roles are {','.join(roles) or 'not known'}; restart it with the "
            "role controller too"
        )
