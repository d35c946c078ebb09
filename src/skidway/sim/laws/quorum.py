"""The laws of the metadata quorum, over all its members at once.

| law | meaning |
|---|---|
| quorum-leaders | one leader for each epoch |
| quorum-memory | an epoch or a vote, once remembered, is never forgotten |
| quorum-watermark | neither the epoch nor what is committed goes back |
| quorum-log | all members have the same committed batches |
| quorum-majority | what a leader calls committed, a majority of the voters in force has on disk |
| quorum-voters | sets of voters differ by one, changes wait for each other, who was removed does not lead |
| image | metadata is the same wherever it is followed equally far |
"""

from __future__ import annotations

from itertools import pairwise
from zlib import crc32

from skidway.broker.node import Node
from skidway.log.bounds import Bound
from skidway.metadata.snapshot import records_of
from skidway.quorum.machine import Quorum
from skidway.quorum.voters import Voters
from skidway.records.batch import iter_headers
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import Violation
from skidway.sim.world.host import Host

READ_BYTES = 1 << 20


class QuorumLaws:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._leaders: dict[int, int] = {}
        self._committed: dict[int, tuple[int, int, int]] = {}
        """Base offset -> (end, epoch, checksum) of every batch that somebody called committed."""
        self._checked: dict[tuple[str, int], int] = {}
        self._watermarks: dict[tuple[str, int], tuple[int, int]] = {}
        self._remembered: dict[str, tuple[int, object]] = {}
        self._stored: dict[int, int] = {}
        """What machines that are down have on disk."""
        self._in_force: dict[int, Voters] = {}
        """By the end of what is committed."""
        self._followed: dict[tuple[str, int], list[tuple[int, Voters]]] = {}
        """The sets of voters of each member, as they were last looked at."""

    def on_crash(self, host: Host, node: Node) -> None:
        machine = node.quorum.quorum
        self._remembered[host.name] = (machine.epoch, machine.voted)
        self._stored[node.settings.node_id] = node.quorum.log.synced_offset

    def on_start(self, host: Host, node: Node) -> None:
        epoch, voted = self._remembered.get(host.name, (0, None))
        machine = node.quorum.quorum
        if machine.epoch < epoch or (machine.epoch == epoch and voted is not None and machine.voted != voted):
            raise Violation(
                "quorum-memory",
                f"{host.name} knew epoch {epoch} and voted for {voted}, and came back with epoch {machine.epoch} "
                f"and {machine.voted}",
            )

    def on_wiped(self, host: Host) -> None:
        """With another disk it is another member, which has promised nothing."""
        self._remembered.pop(host.name, None)

    def sweep(self) -> None:
        for host, node in self.cluster.running:
            machine = node.quorum.quorum
            node_id = node.settings.node_id
            if machine.leads and self._leaders.setdefault(machine.epoch, node_id) != node_id:
                raise Violation(
                    "quorum-leaders", f"epoch {machine.epoch} is led by {self._leaders[machine.epoch]} and {node_id}"
                )
            key = (host.name, host.life)
            now = (machine.epoch, machine.high_watermark)
            before = self._watermarks.get(key, now)
            if now[0] < before[0] or now[1] < before[1]:
                raise Violation("quorum-watermark", f"{host.name}: epoch and watermark went from {before} to {now}")
            self._watermarks[key] = now
            self._check_committed(host, node)
            self._check_voters(host, machine)
            if machine.leads:
                self._check_majority(host, node)

    def _check_committed(self, host: Host, node: Node) -> None:
        key = (host.name, host.life)
        log = node.quorum.log
        committed = min(node.quorum.quorum.high_watermark, log.end_offset)
        offset = self._checked.get(key, log.start_offset)
        while offset < committed:
            found = log.read(offset, READ_BYTES, Bound.END)
            assert found is not None
            data = found.read()
            for position, header in iter_headers(data):
                if header.last_offset >= committed:
                    offset = committed
                    break
                facts = (header.last_offset, header.partition_leader_epoch, header.crc)
                known = self._committed.setdefault(header.base_offset, facts)
                if known != facts:
                    raise Violation(
                        "quorum-log",
                        f"{host.name} has {facts} committed at {header.base_offset}, others have {known} "
                        f"(position {position})",
                    )
                offset = header.last_offset + 1
        self._checked[key] = offset

    def _check_voters(self, host: Host, machine: Quorum) -> None:
        sets, committed = machine.history.sets, machine.high_watermark
        if sets != self._followed.get((host.name, host.life)):
            self._followed[host.name, host.life] = sets
            for (_, before), (offset, after) in pairwise(sets):
                if not after.is_next_to(before):
                    raise Violation("quorum-voters", f"{host.name}: {before} became {after} at {offset} in one step")
        in_force = machine.history.at(committed)
        if self._in_force.setdefault(committed, in_force) != in_force:
            known = self._in_force[committed]
            raise Violation("quorum-voters", f"{host.name}: {in_force} vote at {committed}, others have {known}")
        if not machine.leads or machine.followers is None:
            return
        # What a leader before it left behind may be unknown to be committed; its own changes wait for each other.
        pending = [offset for offset, _ in sets if offset >= committed and offset > machine.followers.epoch_start]
        if len(pending) > 1:
            raise Violation("quorum-voters", f"{host.name} has changes of the voters under way at {pending}")
        if not machine.is_voter and committed > machine.history.latest_offset:
            raise Violation(
                "quorum-voters",
                f"{host.name} leads epoch {machine.epoch} and is not one of the voters {machine.voters}",
            )

    def _check_majority(self, host: Host, node: Node) -> None:
        """By the voters in force there, or by those of a change that was under way when it was committed."""
        history, watermark = node.quorum.quorum.history, node.quorum.quorum.high_watermark
        changing = [voters for offset, voters in history.sets if offset >= watermark]
        told = []
        for voters in [history.at(watermark), *changing[:1]]:
            holders = [member.node_id for member in voters.members if self._stored_by(member.node_id) >= watermark]
            # Counted here, not by the product.
            if len(holders) > len(voters.members) // 2:
                return
            told.append(f"{holders} of {voters} have it")
        raise Violation("quorum-majority", f"{host.name} reports {watermark} as committed; {', '.join(told)}")

    def _stored_by(self, node_id: int) -> int:
        host = self.cluster.hosts.get(node_id)
        if host is None or host.node is None:
            return self._stored.get(node_id, 0)
        return host.node.quorum.log.synced_offset

    def check_images(self) -> None:
        """Equally far means equal."""
        known: dict[int, tuple[str, int]] = {}
        for host, node in self.cluster.running:
            offset = node.quorum.published_offset
            signature = crc32(repr([repr(record) for record in records_of(node.image)]).encode())
            first, other = known.setdefault(offset, (host.name, signature))
            if other != signature:
                raise Violation("image", f"{first} and {host.name} follow metadata up to {offset} and disagree")
