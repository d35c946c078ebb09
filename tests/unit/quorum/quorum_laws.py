"""The laws of Raft, held against a world of members after every event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quorum_disks import StoredLog

from skidway.quorum.machine import Quorum
from skidway.quorum.messages import Ask, Fetch, FetchSnapshot, Vote
from skidway.quorum.replication import CUT_OFF
from skidway.quorum.role import Role
from skidway.quorum.voters import Member, Voters

if TYPE_CHECKING:
    from quorum_world import World


class Laws:
    """What holds at every moment, whatever happens (R1 to R10 of Raft as the notes on reliability count them)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.votes: dict[tuple[int, int], Member] = {}
        """Who was promised a vote, by voter and epoch."""
        self.epochs: dict[int, int] = {}
        """The latest epoch each node was seen in."""
        self.watermarks: dict[int, tuple[int, int]] = {}
        """Life and high watermark of each node at the last look."""
        self.heard: dict[tuple[int, int], int] = {}
        """When a fetch of one node last reached another."""
        self.reigns: dict[int, tuple[int, int, Voters, int]] = {}
        """Life, epoch and voters of a leader, and since when it leads by them."""

    def on_start(self, node_id: int, machine: Quorum, log: StoredLog) -> None:
        """A crash takes nothing that was promised: neither epoch nor vote nor what was said to be on disk."""
        kept = self.world.hosts[node_id].kept
        assert log.whole()[: len(kept)] == kept, f"{node_id} lost what it had synced"
        assert machine.epoch >= self.epochs.get(node_id, 0), f"{node_id} forgot epoch {self.epochs[node_id]}"
        promised = self.votes.get((node_id, machine.epoch))
        assert promised in (None, machine.voted), f"{node_id} forgot its vote for {promised} in {machine.epoch}"

    def on_delivered(self, sender: int, ask: Ask, answer: Any) -> None:
        request = ask.request
        if isinstance(request, Fetch | FetchSnapshot) and not answer.error:
            self.heard[sender, ask.to] = self.world.now_ms
        if isinstance(request, Vote) and not request.pre_vote and answer.granted:
            first = self.votes.setdefault((ask.to, request.epoch), request.candidate)
            assert first == request.candidate, f"{ask.to} votes twice in epoch {request.epoch}"

    def check(self, node_id: int, machine: Quorum, log: StoredLog) -> None:
        self._check_epoch(node_id, machine)
        if machine.leads:
            self._check_leadership(node_id, machine)
        self._check_committed(node_id, machine, log)
        self._check_watermark(node_id, machine, log)
        self._check_voters(node_id, machine, log)

    def _check_epoch(self, node_id: int, machine: Quorum) -> None:
        assert machine.epoch >= self.epochs.get(node_id, 0), f"{node_id} goes back in epochs"
        self.epochs[node_id] = machine.epoch
        assert CUT_OFF not in (machine.trouble or ""), f"{node_id}: {machine.trouble}"
        assert (machine.role is Role.FOLLOWER) <= (machine.leader not in (-1, node_id))

    def _check_leadership(self, node_id: int, machine: Quorum) -> None:
        """One leader in an epoch, and none for long without a majority that asks it for records."""
        world = self.world
        first = world.leaders.setdefault(machine.epoch, node_id)
        assert first == node_id, f"epoch {machine.epoch}: {first} and {node_id} both lead"
        life = world.hosts[node_id].life
        reign = self.reigns.get(node_id)
        if reign is None or reign[:3] != (life, machine.epoch, machine.voters):
            self.reigns[node_id] = reign = (life, machine.epoch, machine.voters, world.now_ms)
        ids = [voter.member.node_id for voter in machine.voters]
        times = [
            world.now_ms if voter == node_id else max(self.heard.get((voter, node_id), 0), reign[3]) for voter in ids
        ]
        heard = sorted(times, reverse=True)[machine.voters.majority - 1]
        silence = world.now_ms - heard
        assert silence <= 2 * world.settings.check_quorum_ms, f"{node_id} leads, unheard for {silence} ms"

    def _check_committed(self, node_id: int, machine: Quorum, log: StoredLog) -> None:
        whole = log.whole()
        acknowledged = self.world.acknowledged
        assert machine.high_watermark <= len(whole), f"{node_id} commits what it does not have"
        for offset in range(max(0, machine.high_watermark - 3), machine.high_watermark):
            entry = acknowledged.setdefault(offset, whole[offset])
            assert entry == whole[offset], f"{node_id} has {whole[offset]} at {offset}, {entry} was committed"

    def _check_watermark(self, node_id: int, machine: Quorum, log: StoredLog) -> None:
        """It never goes back, and a leader moves it by records of its own epoch that a majority has on disk."""
        life = self.world.hosts[node_id].life
        before_life, before = self.watermarks.get(node_id, (life, 0))
        if before_life == life:
            assert machine.high_watermark >= before, f"{node_id} takes back what is committed"
        self.watermarks[node_id] = (life, machine.high_watermark)
        end = machine.high_watermark
        if not machine.leads or (before_life, before) == (life, end) or end == 0:
            return
        last = log.whole()[end - 1]
        if last.epoch != machine.epoch:
            assert before_life == life, "nobody leads at once"
            known = any(seen >= end for other, (_, seen) in self.watermarks.items() if other != node_id)
            assert known or end <= before, f"{node_id} commits {last} in epoch {machine.epoch}"
            return
        holders = [voter for voter in machine.voters if self.world.hosts[voter.member.node_id].holds(end - 1, last)]
        assert len(holders) >= machine.voters.majority, f"{node_id} commits {last}: only {holders} have it"

    def _check_voters(self, node_id: int, machine: Quorum, log: StoredLog) -> None:
        offset = machine.history.latest_offset
        assert offset < log.end_offset, f"{node_id} believes in voters whose record is gone"
        if machine.leads and machine.followers is not None and offset > machine.followers.epoch_start:
            # Sets that the leader itself appended: each waits for the one before.
            pending = [at for at, _ in machine.history._sets if at >= machine.high_watermark]
            assert len(pending) <= 1, f"{node_id} has several changes of the voters under way: {pending}"
        if offset >= log.start_offset:
            assert log.whole()[offset].value == machine.voters, f"{node_id}: other voters in the log"
