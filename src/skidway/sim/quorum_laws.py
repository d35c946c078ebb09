"""The laws of the metadata quorum, over all its members at once.

| law | meaning |
|---|---|
| quorum-leaders | one leader for each epoch |
| quorum-memory | an epoch or a vote, once remembered, is never forgotten |
| quorum-watermark | neither the epoch nor what is committed goes back |
| quorum-log | all members have the same committed batches |
| quorum-majority | what a leader calls committed, a majority of the voters has on disk |
| image | metadata is the same wherever it is followed equally far |
"""

from __future__ import annotations

from zlib import crc32

from skidway.broker.node import Node
from skidway.metadata.snapshot import records_of
from skidway.records.batch import iter_headers
from skidway.sim.cluster import Cluster
from skidway.sim.host import Host
from skidway.sim.world import Violation

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
            if machine.leads:
                self._check_majority(host, node)

    def _check_committed(self, host: Host, node: Node) -> None:
        key = (host.name, host.life)
        log = node.quorum.log
        committed = min(node.quorum.quorum.high_watermark, log.end_offset)
        offset = self._checked.get(key, log.start_offset)
        while offset < committed:
            found = log.read(offset, READ_BYTES, committed=False)
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

    def _check_majority(self, host: Host, node: Node) -> None:
        machine = node.quorum.quorum
        watermark = machine.high_watermark
        holders = 0
        for voter in machine.voters:
            other = self.cluster.hosts.get(voter.member.node_id)
            if other is None:
                continue
            stored = self._stored.get(voter.member.node_id, 0)
            if other.node is not None:
                stored = other.node.quorum.log.synced_offset
            holders += stored >= watermark
        if holders < machine.voters.majority:
            raise Violation(
                "quorum-majority",
                f"{host.name} calls {watermark} committed; {holders} of {len(machine.voters)} voters have it",
            )

    def check_images(self) -> None:
        """Equally far means equal."""
        known: dict[int, tuple[str, int]] = {}
        for host, node in self.cluster.running:
            offset = node.quorum.published_offset
            signature = crc32(repr([repr(record) for record in records_of(node.image)]).encode())
            first, other = known.setdefault(offset, (host.name, signature))
            if other != signature:
                raise Violation("image", f"{first} and {host.name} follow metadata up to {offset} and disagree")
