"""Changes of the quorum's voters on the node that leads it, from the request to its answer.

A change holds when it is appended and is done when it is committed; who asked for it waits until then. Voters that
were named in a configuration are known by their ids alone: once all of them were heard of, their directories are
written down.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, NotController, ProtocolError, StorageError
from skidway.quorum import membership
from skidway.quorum.membership import VoterChange
from skidway.quorum.voters import NO_DIRECTORY
from skidway.wire.schema.add_raft_voter import AddRaftVoterRequest
from skidway.wire.schema.remove_raft_voter import RemoveRaftVoterRequest

if TYPE_CHECKING:
    from skidway.broker.quorum_host import QuorumHost

Respond = Callable[[ErrorCode, str | None], None]
REMOVAL_TIMEOUT_MS = 30_000
"""Who removes a voter cannot say how long it would wait."""


class Membership:
    def __init__(self, host: QuorumHost) -> None:
        self._host = host
        self._waiting: list[tuple[VoterChange, Respond]] = []

    def add(self, request: AddRaftVoterRequest, now_ms: int, respond: Respond) -> None:
        def change() -> VoterChange:
            voter = membership.voter_to_add(request, self._host.node.cluster_id)
            return membership.add_voter(self._host.quorum, voter, now_ms, request.timeout_ms)

        self._change(change, respond if request.ack_when_committed else None, respond)

    def remove(self, request: RemoveRaftVoterRequest, now_ms: int, respond: Respond) -> None:
        def change() -> VoterChange:
            member = membership.member_to_remove(request, self._host.node.cluster_id)
            return membership.remove_voter(self._host.quorum, member, now_ms, REMOVAL_TIMEOUT_MS)

        self._change(change, respond, respond)

    def _change(self, change: Callable[[], VoterChange], when_done: Respond | None, respond: Respond) -> None:
        if not self._host.leads:
            respond(NotController.code, "this node does not lead the quorum")
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
            self._host.node.timers.at(begun.deadline_ms, self._host.touch)
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
                respond(became, None if became is ErrorCode.NONE else "it is not known whether the change will hold")
        if quorum.leads and any(voter.member.directory_id == NO_DIRECTORY for voter in quorum.voters):
            self._learn_directories(now_ms)

    def _learn_directories(self, now_ms: int) -> None:
        if self._host.alone or not self._host.leads:
            return
        with suppress(StorageError):  # no room: it is tried again the next time something happens
            membership.learn_directories(self._host.quorum, now_ms)
