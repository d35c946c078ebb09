"""A bit that a disk gets wrong: in a stored batch, of which another in-sync replica has a copy.

`flip`: one that the node meets when it starts: of the last batch below the newest checkpoint, where replay begins, and
of its header, which is looked at although it was proven. From then on the copy must be served to nobody.

`rot`: one of any record that was proven, while the machine runs. Nobody meets it but who reads it, and that may be a
client or a follower, whose checksum fails; so they are excused (for this very batch). The node must find it itself.

Either way the copy must be fetched anew: `whole` is a law of the end. `false-alarm`: what is not damaged is not thrown
away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from skidway.broker.events import Event
from skidway.broker.last_run import PATH as LAST_RUN
from skidway.log.durability.checkpoints import TRUNCATED
from skidway.log.durability.sync import snapshot_offset
from skidway.log.log import Log
from skidway.metadata.image import NO_LEADER, Image, Partition
from skidway.records.batch import HEADER_BYTES, iter_headers
from skidway.replica.news import BadBatchFetched, CopyDamaged, Remedy
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.disk import SimDisk, Tree
from skidway.sim.world.events import World
from skidway.sim.world.host import Host

MAGIC_AT = 16
"""Where in a batch the byte lies by which a damaged header is told."""
LAST_LOOKS = 15
"""So often an operator looks at a copy that only he can save, before he does."""


@dataclass(slots=True, frozen=True)
class Copy:
    node_id: int
    topic: str
    topic_id: bytes
    index: int
    directory: str


@dataclass(slots=True, frozen=True)
class Flip:
    path: str
    position: int
    mask: int
    batch_at: int = 0
    batch: bytes = b""
    """What rot has made of a batch; empty where a start meets the bit."""

    def mend(self, disk: SimDisk) -> None:
        disk.corrupt(self.path, self.position, self.mask)


@dataclass(slots=True, frozen=True)
class Loss:
    """See `losses`."""

    directory: str
    before: Tree
    """What was there."""
    batch: bytes = b""

    def mend(self, disk: SimDisk) -> None:
        disk.put(self.directory, self.before)


class Damage:
    def __init__(self, world: World, cluster: Cluster, topics: list[str]) -> None:
        self.world = world
        self.cluster = cluster
        self.topics = topics
        self.damaged: dict[Copy, Flip | Loss] = {}
        """Copies that are not whole again yet."""
        self.rotten: set[bytes] = set()
        """Batches as rot has made them."""
        self._rotted: set[str] = set()
        """The partitions of those."""
        self._looks: dict[Copy, int] = {}
        self._waits: dict[tuple[str, int], int] = {}
        self.on_wiped: Callable[[Host], None] = lambda host: None
        """A machine has another disk: whatever was on the one before is not asked for any more."""
        cluster.watch(self._watch)

    def _watch(self, host: Host) -> None:
        host.judge = self.judge

    def spare(self, host: Host, *, of_all: bool = False) -> list[Copy]:
        """What this machine could lose now, as the controller sees it; `of_all`: of all topics, not only of those that
        clients write to."""
        return [copy for copy in self.copies(host, of_all=of_all) if self.is_spare(copy)]

    def copies(self, host: Host, *, of_all: bool = False) -> list[Copy]:
        self._forget_whole()
        if host.node is None:
            return []
        return [
            Copy(host.settings.node_id, partition.topic, partition.topic_id, partition.index, partition.log.directory)
            for partition in host.node.partitions
            if (of_all or partition.topic in self.topics) and not partition.log.quarantined
        ]

    def is_spare(self, copy: Copy) -> bool:
        image = self._image() if self._is_newest() else None
        topic = None if image is None else image.topics_by_id.get(copy.topic_id)
        if topic is None or self._is_damaged(copy.topic_id, copy.index):
            return False
        return self._is_held(topic.partitions[copy.index], copy.node_id)

    def _is_held(self, described: Partition, node_id: int) -> bool:
        """By a leader that runs and counts on itself; or this node leads and all others are in sync: as long as some
        are not, they may be about to be left out."""
        if described.leader == node_id:
            return len(described.isr) > 1 and sorted(described.isr) == sorted(described.replicas)
        leader = self.cluster.hosts.get(described.leader)
        return leader is not None and leader.node is not None and not leader.is_hurt

    def flip(self, host: Host, copies: list[Copy], random: Random) -> None:
        """While the machine is down; if it took its time for that, others may not hold everything any more."""
        if not host.disk.exists(LAST_RUN):
            return  # After a failed sync what is not proven moves to a new file, and replay begins there.
        for copy in random.sample(copies, len(copies)):
            if not self.is_spare(copy):
                continue
            place = _met_at_start(host.disk, copy.directory)
            if place is not None:
                flip = self.damaged[copy] = Flip(place[0], place[1] + MAGIC_AT, 1 << random.randrange(8))
                host.disk.corrupt(flip.path, flip.position, flip.mask)
                self.world.mark("bit flipped")
                self.world.say(host.name, f"a bit of {flip.path} at {flip.position} flips")
                return

    def rot(self, host: Host, random: Random) -> None:
        """While the machine runs, and without its knowing."""
        copies = self.spare(host)
        for copy in random.sample(copies, len(copies)):
            assert host.node is not None
            log = host.node.partitions.find_by_id(copy.topic_id, copy.index).log
            places = _proven_batches(log)
            if not places:
                continue
            path, at, size = random.choice(places)
            position, mask = at + HEADER_BYTES + random.randrange(size - HEADER_BYTES), 1 << random.randrange(8)
            host.disk.corrupt(path, position, mask)
            batch = host.disk.open(path).read_at(at, size)
            self.damaged[copy] = Flip(path, position, mask, at, batch)
            self.rotten.add(batch)
            self._rotted.add(f"{copy.topic}-{copy.index}")
            self.world.mark("bit rotted")
            self.world.say(host.name, f"a bit of {path} at {position} rots")
            return

    def judge(self, host: Host, event: Event) -> str:
        """Which law an event of a node breaks."""
        match event:
            case BadBatchFetched(partition):
                return "" if partition in self._rotted else "corrupt-read"
            case CopyDamaged(by_failed_cut=True) if host.disk.refusals:
                return ""  # In the middle of a cut that its leader had asked for: nobody can use what is left.
            case CopyDamaged(partition, _, remedy):
                copies = [copy for copy in self.damaged if copy.node_id == host.settings.node_id]
                is_damaged = any(partition == f"{copy.topic}-{copy.index}" for copy in copies)
                return "" if is_damaged and remedy is not Remedy.RESTORE else "false-alarm"
        return ""

    def is_lost(self, host: Host, log: Log) -> bool:
        """Whether something of what this machine had stored of it is gone."""
        return any(
            isinstance(loss, Loss) and copy.node_id == host.settings.node_id and copy.directory == log.directory
            for copy, loss in self.damaged.items()
        )

    def is_rotten(self, host: Host, log: Log) -> bool:
        """Whether this log has a bit that nobody could know of."""
        return any(
            flip.batch and copy.node_id == host.settings.node_id and copy.directory == log.directory
            for copy, flip in self.damaged.items()
        )

    def last_copies(self) -> list[Copy]:
        """Those that the controller cannot do without: before anybody knew, all others fell out of sync. An operator
        has to decide."""
        self._forget_whole()
        image = self._image()
        last = [copy for copy in self.damaged if image is not None and self._is_last(image, copy)]
        self._looks = {copy: self._looks.get(copy, 0) + 1 for copy in last}
        # One that rots is served on, and so may help another back in sync.
        return [copy for copy in last if not self.damaged[copy].batch or self._looks[copy] > LAST_LOOKS]

    def _is_last(self, image: Image, copy: Copy) -> bool:
        host = self.cluster.hosts.get(copy.node_id)
        node = None if host is None else host.node
        partition = None if node is None else node.partitions.get(copy.topic_id, copy.index)
        if partition is None or not (partition.log.quarantined or self.damaged[copy].batch):
            return False
        described = image.topics_by_id[copy.topic_id].partitions[copy.index]
        return {*described.isr, *described.eligible_leader_replicas} == {copy.node_id}

    def without_candidates(self) -> list[tuple[str, int, list[int]]]:
        """Partitions that nobody may lead, because all who had everything say that they cannot read it, or have another
        disk: machines lost power one after the other. An operator who cannot repair anything has another replica
        elected: the first in this order, because it has the most."""
        image = self._image()
        if image is None or len(self.cluster.running) < len(self.cluster.hosts):
            return []
        waiting = [
            (topic.name, partition.index)
            for topic in image.topics.values()
            for partition in topic.partitions
            if partition.leader == NO_LEADER and _is_unreadable(image, partition)
        ]
        self._waits = {key: self._waits.get(key, 0) + 1 for key in waiting}
        return [(*key, self._by_length(image, *key)) for key, looks in self._waits.items() if looks > LAST_LOOKS + 5]

    def _by_length(self, image: Image, topic: str, index: int) -> list[int]:
        """Its replicas, the one with the longest log that can be read first."""
        logs = {host.settings.node_id: found.log for host, found in self.cluster.copies(topic, index)}
        ends = {each: (log.epoch, log.end_offset) for each, log in logs.items() if not log.quarantined}
        replicas = image.topics[topic].partitions[index].replicas
        return sorted(replicas, key=lambda each: ends.get(each, (-1, -1)), reverse=True)

    def mend(self, copy: Copy) -> None:
        """By hand, while the machine is down."""
        damage = self.damaged.pop(copy)
        damage.mend(self.cluster.hosts[copy.node_id].disk)
        self.world.mark("bit mended by hand" if isinstance(damage, Flip) else "files put back by hand")

    def all_whole(self) -> bool:
        self._forget_whole()
        return not self.damaged

    # --- inside ---

    def _image(self) -> Image | None:
        """As the controller has it; who has just started may know nothing yet."""
        controller = self.cluster.controller_host()
        return None if controller is None or controller.node is None else controller.node.image

    def _is_newest(self) -> bool:
        """Nobody knows more metadata than the controller, which may be cut off, with another one at work."""
        known = {host.name: node.quorum.quorum.high_watermark for host, node in self.cluster.running}
        controller = self.cluster.controller_host()
        return controller is not None and known[controller.name] == max(known.values())

    def _is_damaged(self, topic_id: bytes, index: int) -> bool:
        return any((copy.topic_id, copy.index) == (topic_id, index) for copy in self.damaged)

    def _forget_whole(self) -> None:
        image = self._image()
        if image is None:
            return
        for copy in [copy for copy in self.damaged if self._is_whole(image, copy)]:
            del self.damaged[copy]

    def _is_whole(self, image: Image, copy: Copy) -> bool:
        """It is in sync again, or was moved away."""
        topic = image.topics_by_id.get(copy.topic_id)
        if topic is None or copy.node_id not in topic.partitions[copy.index].replicas:
            return True
        if self._rots(copy):
            return False
        host = self.cluster.hosts.get(copy.node_id)
        node = None if host is None else host.node
        partition = None if node is None else node.partitions.get(copy.topic_id, copy.index)
        return (
            partition is not None and not partition.log.quarantined and copy.node_id in topic.partitions[copy.index].isr
        )

    def _rots(self, copy: Copy) -> bool:
        """Whether what rot has made is still there."""
        flip, disk = self.damaged[copy], self.cluster.hosts[copy.node_id].disk
        if not isinstance(flip, Flip) or not flip.batch or not disk.exists(flip.path):
            return False
        return disk.open(flip.path).read_at(flip.batch_at, len(flip.batch)) == flip.batch


def _is_unreadable(image: Image, partition: Partition) -> bool:
    """By the word of all who had everything, or because they have another disk."""
    directories = dict(zip(partition.replicas, partition.directories, strict=True))
    candidates = [*partition.isr, *partition.eligible_leader_replicas] or partition.last_known_elr
    return all(directories[each] not in image.brokers[each].log_dirs for each in candidates if each in directories)


def _proven_batches(log: Log) -> list[tuple[str, int, int]]:
    """File, position and size of those that no crash and no truncation makes doubtful: a bad one would be taken for a
    torn tail there."""
    proven = log.saved.vouched(log.high_watermark)
    return [
        (segment.path(".log"), position, size)
        for segment in log.segments
        for position, _, last_offset, size, _, _ in segment.batches(0, segment.size)
        if last_offset < proven and size > HEADER_BYTES
    ]


def _met_at_start(disk: SimDisk, directory: str) -> tuple[str, int] | None:
    """File and position of the last batch below the newest checkpoint; None where replay does not begin there."""
    if not disk.exists(directory) or disk.exists(f"{directory}/{TRUNCATED}"):
        return None
    names = disk.list(directory)
    proven = max((offset for name in names if (offset := snapshot_offset(name)) is not None), default=0)
    bases = [int(name[:-4]) for name in names if name.endswith(".log") and int(name[:-4]) < proven]
    if not bases or f"{proven:020d}.log" in names:
        return None
    path = f"{directory}/{max(bases):020d}.log"
    last = None
    for position, header in iter_headers(disk.read(path)):
        if header.last_offset < proven:
            last = (path, position)
        if header.last_offset >= proven - 1:
            break  # behind it may be what a crash has torn
    return last
