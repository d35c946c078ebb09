"""The laws of elections in the metadata quorum, looked at after everything that happens to a member.

| law | meaning |
|---|---|
| quorum-votes | a member votes once in an epoch |
| quorum-leaders | one leader for each epoch; and if it is started anew, it does not lead that epoch again |
| quorum-epochs | a leader calls nothing committed before a record of its own epoch is |
"""

from __future__ import annotations

from skidway.broker.node import Node
from skidway.quorum.machine import Quorum
from skidway.quorum.role import Role
from skidway.quorum.voters import Member
from skidway.sim.world.events import Violation
from skidway.sim.world.host import Host


class ElectionLaws:
    def __init__(self) -> None:
        self._votes: dict[tuple[Member, int], Member] = {}
        """By member (a node that comes back with another directory is another one) and epoch."""
        self._leaders: dict[int, tuple[str, int]] = {}
        """By epoch, and in which life of it."""
        self._watermarks: dict[tuple[int, int], int] = {}
        """Of a leader, by node and epoch, when it began and since."""
        self._seen: dict[Host, tuple[object, Role, int]] = {}

    def on_step(self, host: Host, node: Node) -> None:
        machine = node.quorum.quorum
        seen = (machine.remembered, machine.role, machine.high_watermark)
        if seen != self._seen.get(host):
            self._seen[host] = seen
            self._check_vote(host, machine)
            if machine.leads:
                self._check_leader(host, machine)

    def _check_vote(self, host: Host, machine: Quorum) -> None:
        if machine.voted is None:
            return
        first = self._votes.setdefault((machine.me, machine.epoch), machine.voted)
        if first != machine.voted:
            raise Violation(
                "quorum-votes", f"{host.name} voted for {first} and for {machine.voted} in epoch {machine.epoch}"
            )

    def _check_leader(self, host: Host, machine: Quorum) -> None:
        key = (machine.me.node_id, machine.epoch)
        first, life = self._leaders.setdefault(machine.epoch, (host.name, host.life))
        if first != host.name:
            raise Violation("quorum-leaders", f"epoch {machine.epoch} is led by {first} and by {host.name}")
        if life != host.life:
            raise Violation(
                "quorum-leaders", f"{host.name} leads epoch {machine.epoch}, which it led before its restart"
            )
        watermark = machine.high_watermark
        before = self._watermarks.setdefault(key, watermark)
        self._watermarks[key] = watermark
        assert machine.followers is not None
        if before < watermark <= machine.followers.epoch_start:
            raise Violation(
                "quorum-epochs",
                f"{host.name} reports {watermark} as committed; its first record of epoch {machine.epoch} is at "
                f"{machine.followers.epoch_start}",
            )
