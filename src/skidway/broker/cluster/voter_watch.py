"""Watches the metadata quorum for operators: who leads it, who votes, which voters are silent or lost their directory.

The leader of the quorum knows who asks for the log, so it reports voters that fall silent and come back. Every node
reports another leader, other voters, and that it is itself a voter whose directory was emptied or replaced.
"""

from __future__ import annotations

from skidway.broker.events import ControllerChanged, VoterLost, VoterReturned, VotersChanged, VoterWiped
from skidway.broker.world import World
from skidway.quorum.machine import Quorum
from skidway.quorum.voters import NO_DIRECTORY, Member, Voters

SILENT_FETCHES = 2
"""A voter is lost when it was silent for so many times `quorum.fetch_timeout_ms`."""
LOOKS_PER_TIMEOUT = 2
DIRECTORIES_MAX = 1_000


class VoterWatch:
    def __init__(self, world: World, quorum: Quorum) -> None:
        self._world = world
        self._quorum = quorum
        self._voters = quorum.voters
        self._leader = (-1, -1)
        self._lost: set[int] = set()
        self._wiped: dict[Member, None] = {}
        """Reported: members with a directory that is not the voter's."""
        self._look_ms = 0

    def work(self, leader_id: int, now_ms: int) -> None:
        """`leader_id` is -1 when this node knows of no leader."""
        self._follow_leader(leader_id)
        self._follow_voters()
        quorum = self._quorum
        if quorum.followers is None or not quorum.leads:
            self._lost.clear()
        elif now_ms >= self._look_ms:
            self._look_ms = now_ms + quorum.settings.fetch_timeout_ms // LOOKS_PER_TIMEOUT
            self._look(now_ms)

    def _follow_leader(self, leader_id: int) -> None:
        leader = (leader_id, self._quorum.epoch)
        if leader[0] < 0 or leader == self._leader:
            return
        self._leader = leader
        if leader[0] != self._world.settings.node_id:  # of itself it reports when it can decide
            self._world.report(ControllerChanged(leader[0], leader[1], here=False))

    def _follow_voters(self) -> None:
        quorum = self._quorum
        if quorum.voters is not self._voters:
            before, self._voters = self._voters, quorum.voters
            added = [node_id for node_id in self._voters.ids if before.find(node_id) is None]
            removed = [node_id for node_id in before.ids if self._voters.find(node_id) is None]
            if added or removed:
                self._world.report(VotersChanged(added, removed))
        if _is_wiped(quorum.me, quorum.voters):
            self._report_wiped(quorum.me, here=True)

    def _look(self, now_ms: int) -> None:
        quorum = self._quorum
        assert quorum.followers is not None
        silent_ms = SILENT_FETCHES * quorum.settings.fetch_timeout_ms
        silent = {member.node_id for member in quorum.followers.silent(quorum.voters, now_ms - silent_ms, now_ms)}
        for node_id in sorted(silent - self._lost):
            self._world.report(VoterLost(node_id, silent_ms, len(quorum.voters) - len(silent), len(quorum.voters)))
        for node_id in sorted(self._lost - silent):
            if quorum.voters.find(node_id) is not None:
                self._world.report(VoterReturned(node_id))
        self._lost = silent
        for follower in quorum.followers:
            if _is_wiped(follower.member, quorum.voters):
                self._report_wiped(follower.member, here=False)

    def _report_wiped(self, member: Member, *, here: bool) -> None:
        if member not in self._wiped and len(self._wiped) < DIRECTORIES_MAX:
            self._wiped[member] = None
            self._world.report(VoterWiped(member.node_id, here))


def _is_wiped(member: Member, voters: Voters) -> bool:
    """Whether it has the number of a voter and another directory."""
    voter = voters.find(member.node_id)
    return voter is not None and member.directory_id != NO_DIRECTORY and member not in voters
