"""The active controller as the rest of a node sees it, be it here or on another node.

A request (`ask`) reaches it wherever it is. An operation is for a node that has it: `commit` answers when what it
decided is committed, `carry_out` when this node has done its own part of it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from skidway.broker.cluster.controller_host import ControllerHost
from skidway.broker.cluster.peers import Peers, Respond
from skidway.broker.cluster.quorum_host import QuorumHost
from skidway.broker.partitions.hosting import Hosting
from skidway.broker.world import World
from skidway.errors import ErrorCode, ProtocolError, StorageError
from skidway.runtime.replicated import Operation
from skidway.wire.message import Message
from skidway.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

Reply = TypeVar("Reply")
AskHere = Callable[[Message, int, Respond], None]
"""(request, now_ms, respond): has this node's own handler answer."""
CHANNEL = "control"
TIMEOUT_MS = 5_000
NO_CONTROLLER = "no controller answers now: retry"


class ControllerAccess:
    def __init__(
        self,
        world: World,
        hosting: Hosting,
        quorum: QuorumHost,
        controllers: ControllerHost,
        peers: Peers,
        ask_here: AskHere,
    ) -> None:
        self._world = world
        self._hosting = hosting
        self._quorum = quorum
        self._controllers = controllers
        self._peers = peers
        self._ask_here = ask_here
        self._leader = -1
        """Of the quorum, the last that was known."""

    @property
    def is_here(self) -> bool:
        """Whether this node has the active controller."""
        return self._controllers.active is not None

    @property
    def answers_here(self) -> bool:
        """Whether this node has it, or no other node ever could."""
        return self.is_here or self._quorum.alone

    @property
    def node_id(self) -> int:
        """Where it is; -1 when this node knows of none."""
        return self._quorum.leader_id

    def ask(
        self, request: Message, respond: Respond, now_ms: int, timeout_ms: int = TIMEOUT_MS, channel: str = CHANNEL
    ) -> None:
        """`respond` gets None when the controller cannot be asked."""
        leader = self.node_id
        if self.answers_here:
            self._ask_here(request, now_ms, respond)
        elif leader in (-1, self._world.settings.node_id):
            self._world.timers.at(now_ms, lambda: respond(None))
        else:
            self._peers.ask(leader, channel, request, now_ms, timeout_ms, respond)

    def follow_quorum(self, now_ms: int) -> None:
        """Once another node leads, the one before answers nothing that counts, and perhaps nothing at all: it may have
        lost its power. What it was asked is given up, so that those who asked turn to the new one."""
        leader = self.node_id
        if leader in (-1, self._leader):
            return
        before, self._leader = self._leader, leader
        if before not in (-1, self._world.settings.node_id):
            self._peers.abandon(before, CHANNEL, now_ms)

    def commit(
        self, operation: Operation[Reply], now_ms: int, respond: Callable[[Reply | ProtocolError], None]
    ) -> None:
        """Have the controller here decide; answered when that is committed. For brokers, which must not wait for each
        other's files."""
        if self._world.failure is not None:
            # What it would decide on may never be committed, so the answer might wait for ever.
            respond(StorageError(self._world.failure))
            return
        self._controllers.submit(operation, now_ms, respond)

    def carry_out(
        self, operation: Operation[Reply], now_ms: int, respond: Callable[[Reply | ProtocolError], None]
    ) -> None:
        """Have the controller here decide; answered when that is committed, and this node has opened and removed what
        it says."""
        self.commit(operation, now_ms, lambda reply: self._hosting.backlog.when_done(lambda: respond(reply)))

    def create_missing_topics(
        self, topics: list[CreatableTopic], now_ms: int, respond: Callable[[dict[str, tuple[ErrorCode, str]]], None]
    ) -> None:
        """For clients that just begin to use a topic; answers with those that could not be created, and why."""

        def answer(response: Message | None) -> None:
            if not isinstance(response, CreateTopicsResponse):
                respond({topic.name: (ErrorCode.LEADER_NOT_AVAILABLE, NO_CONTROLLER) for topic in topics})
                return
            # Another client may have been quicker: then it exists, which is all that was wanted.
            fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            respond(
                {
                    created.name: (ErrorCode(created.error_code), created.error_message or "")
                    for created in response.topics
                    if created.error_code not in fine
                }
            )

        self.ask(CreateTopicsRequest(topics), answer, now_ms)
