"""What a machine has stored is damaged or gone when it starts again: for one machine at a time, in any order of starts.

| kind | what happens while the machine is down |
|---|---|
| tail | a bit flips in what was synced and committed, above the newest checkpoint |
| lost files | segments, snapshots, epochs or indexes of a partition are gone, or a checkpoint of all |
| bad metadata | a bit of a `partition.metadata` flips, or the file is gone |
| lost directory | the whole directory of a partition is gone |
| old backup | the directory of a partition is one that was copied earlier |
| lost disk | everything is gone; the machine comes back under the same number |
| lost beginning | the first segment of a partition is gone |
| lost vote | `quorum-state` beside the metadata log, or its copy, is gone or damaged |

The machine goes down alone, or all go down and it starts first (and is alone for a while), last, or with the others.
The last good copy stays: a partition is touched only if another in-sync replica has all that is committed, and no other
copy of it is damaged. Where one machine is all there is, nobody else has it: there the node must not serve what is
left, and in the end the operator puts the files back. What goes lies below the watermark that was saved: of more, no
node could know that it is missing. But a bit that flips in the tail of a process that was only killed can be anywhere:
no crash explains it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from skidway.broker.last_run import PATH as LAST_RUN
from skidway.broker.node import Node
from skidway.broker.partitions.partition import Partition
from skidway.errors import CorruptMessage
from skidway.log.durability.checkpoints import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    TRUNCATED,
    read_offsets,
)
from skidway.log.durability.sync import snapshot_offset
from skidway.quorum.state_file import METADATA_DIRECTORY
from skidway.records.batch import iter_headers
from skidway.sim.faults.damage import MAGIC_AT, Copy, Damage, Loss
from skidway.sim.plan import Fault, Plan
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.disk import SimDisk, Tree
from skidway.sim.world.events import MS, World
from skidway.sim.world.host import Host

ORDERS = ("alone", "first", "last", "together")
SOON_MS = 60
STOPPED_US = 20 * MS
CHECKPOINTS = (HIGH_WATERMARKS, RECOVERY_POINTS, CLEANED_OFFSETS)
BESIDE = (".snapshot", ".index", ".timeindex", LEADER_EPOCHS)
"""Files of a partition without which all its records are still there."""

Step = Callable[[Host, Copy, Random], str]
"""Does the damage and says what it is; nothing where there is nothing to damage."""


class Losses:
    def __init__(
        self,
        world: World,
        cluster: Cluster,
        plan: Plan,
        damage: Damage,
        down: Callable[[Host], None],
        revive: Callable[[Host], None],
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.plan = plan
        self.damage = damage
        self.over = False
        self._down = down
        self._revive = revive
        self._boots = 0
        """How often the machine had lost its power before it was struck."""
        self._unread: Host | None = None
        """The machine whose tail was damaged above what its files prove."""
        self._wiped: list[Copy] = []
        """What was on the disk that was lost."""
        self.are_voters_unsure: Callable[[], bool] = lambda: False
        """Whether one of them may be about to be removed: then the others may not do without this machine."""
        self._steps: dict[str, Step] = {
            "tail": self._flip_tail,
            "lost files": _lose_files,
            "bad metadata": _break_metadata,
            "lost directory": _lose_directory,
            "lost beginning": _lose_beginning,
        }

    def strike(self, fault: Fault, host: Host, random: Random) -> None:
        if fault.kind == "lost disk":
            self._lose_disk(fault, host, random)
        elif fault.kind == "lost vote":
            self._lose_vote(fault, host, random)
        elif fault.kind == "old backup":
            self._keep_backup(fault, host, random)
        else:
            step = self._steps[fault.kind]
            self._strike(fault, host, random, lambda copies: self._lose_one(host, copies, step, random))

    @property
    def was_disk_lost(self) -> bool:
        return bool(self._wiped)

    @property
    def is_disk_lost(self) -> bool:
        """And not everything is back that was on it."""
        return any(copy in self.damage.damaged for copy in self._wiped)

    # --- one partition ---

    def _lose_one(self, host: Host, copies: list[Copy], step: Step, random: Random) -> None:
        for copy in random.sample(copies, len(copies)):
            if not _is_settled(host.disk, copy):
                continue
            before = host.disk.copy_of(copy.directory)
            if what := step(host, copy, random):
                self._note(host, copy, before, what)
                return

    def _note(self, host: Host, copy: Copy, before: Tree, what: str) -> None:
        self.damage.damaged[copy] = Loss(copy.directory, before)
        self.world.mark(what.split(":")[0])
        self.world.say(host.name, what)

    def _keep_backup(self, fault: Fault, host: Host, random: Random) -> None:
        """Taken now, put back later."""
        copies = self._find(host, whole=False)
        if not copies:
            return
        copy = random.choice(copies)
        backup = host.disk.copy_of(copy.directory)
        end_offset = _end_of(host.disk, copy.directory)

        def put_back(host: Host, found: Copy, random: Random) -> str:
            if found != copy or end_offset >= _saved_watermark(host.disk, copy):
                return ""
            host.disk.put(copy.directory, backup)
            return f"old backup put back: {copy.directory} ends at {end_offset}"

        def due() -> None:
            if not self.over:
                self._strike(fault, host, random, lambda copies: self._lose_one(host, copies, put_back, random))

        # Meanwhile more is committed, and saved.
        self.world.after((fault.lasts_ms + self.plan.checkpoint_ms) * MS, due)

    def _flip_tail(self, host: Host, copy: Copy, random: Random) -> str:
        is_intact = host.disk.boots == self._boots
        if is_intact:
            self._unread = host
        return _flip_tail(host.disk, copy, random, 1 << 62 if is_intact else _saved_watermark(host.disk, copy))

    def is_unread(self, host: Host) -> bool:
        """Whether a damaged tail here is the only copy and no start has read it yet. If power was lost before that, it
        would look like what the loss of power tore: nobody could know."""
        if host is self._unread and host.node is not None and host.node.rooms.hosting.started:
            self._unread = None
        return self.plan.nodes == 1 and host is self._unread

    # --- a vote ---

    def _lose_vote(self, fault: Fault, host: Host, random: Random) -> None:
        """One of its two files, while the other is sound: nobody may vote twice (law `quorum-votes`)."""

        def lost() -> None:
            paths = [f"{METADATA_DIRECTORY}/quorum-state", "quorum-state"]
            path = random.choice(paths)
            if host.node is not None or not all(host.disk.exists(each) for each in paths):
                return
            if len({bytes(host.disk.read(each)) for each in paths}) > 1:
                return  # the node has not started since another loss
            if random.random() < 0.5:
                host.disk.lose(path)
            else:
                host.disk.corrupt(path, 0, 1)
            self.world.mark("vote lost")
            self.world.say(host.name, f"vote lost: {path}")

        host.kill()
        lost()
        self.world.after(fault.lasts_ms * MS, lambda: self._start(host))

    # --- everything ---

    def _lose_disk(self, fault: Fault, host: Host, random: Random) -> None:
        if self._wiped or self.plan.nodes < 3 or self.are_voters_unsure():
            return

        def wipe(copies: list[Copy]) -> None:
            if self._wiped or self.are_voters_unsure():
                return
            self._wiped = copies
            for copy in copies:
                self.damage.damaged[copy] = Loss(copy.directory, host.disk.copy_of(copy.directory))
            host.disk.wipe()
            self.damage.on_wiped(host)
            self.world.mark("disk lost")
            self.world.say(host.name, "disk lost")

        self._strike(fault, host, random, wipe, whole=True)

    def _find(self, host: Host, whole: bool) -> list[Copy]:
        """What this machine may lose now; with `whole`, all of it or nothing."""
        if self.plan.nodes == 1:
            return self.damage.copies(host)
        copies = [copy for copy in self.damage.spare(host, of_all=whole) if self._is_held(copy)]
        if not whole:
            return copies
        return copies if copies and self._is_known_elsewhere(host, len(copies)) else []

    def _is_held(self, copy: Copy) -> bool:
        """Whether another in-sync replica, on a machine that runs, has all that any leader called committed."""
        running = [node for host, node in self.cluster.running if not host.paused]
        newest = max(running, key=lambda node: node.quorum.published_offset, default=None)
        topic = None if newest is None else newest.image.topics_by_id.get(copy.topic_id)
        if topic is None:
            return False
        in_sync = topic.partitions[copy.index].isr
        found = [(node.settings.node_id, node.partitions.get(copy.topic_id, copy.index)) for node in running]
        copies = {node_id: partition for node_id, partition in found if partition is not None}
        committed = max((partition.log.high_watermark for partition in copies.values()), default=0)
        return any(
            node_id != copy.node_id and node_id in in_sync and _stored(partition) >= committed
            for node_id, partition in copies.items()
        )

    def _is_known_elsewhere(self, host: Host, spare: int) -> bool:
        """All partitions of this machine are spare, and all other voters have all metadata."""
        node = host.node
        if node is None or len(list(node.partitions)) != spare or not node.rooms.hosting.started:
            return False
        return self._is_metadata_held(node)

    def _is_metadata_held(self, node: Node) -> bool:
        """All voters but this one run, and have all metadata that is committed. It may have stopped by now."""
        running = [other for _, other in self.cluster.running if other is not node]
        voters = node.quorum.quorum.voters.ids
        others = [other for other in running if other.settings.node_id in voters]
        committed = max(other.quorum.quorum.high_watermark for other in [node, *running])
        has_all = all(other.quorum.log.synced_offset >= committed for other in others)
        return len(voters) >= 3 and len(others) >= len(voters) - (node.settings.node_id in voters) and has_all

    # --- going down and coming back ---

    def _strike(
        self, fault: Fault, host: Host, random: Random, lose: Callable[[list[Copy]], None], *, whole: bool = False
    ) -> None:
        if not (copies := self._find(host, whole)):
            return
        order = random.choice(ORDERS) if self.plan.nodes > 1 else "alone"
        kills = whole or random.random() < 0.5
        self._boots = host.disk.boots
        if order == "alone":
            self._strike_alone(fault, host, copies, lose, whole=whole, kills=kills)
            return
        everybody = list(self.cluster.hosts.values())
        for each in everybody:
            each.kill() if kills else self._down(each)
        if host.disk.exists(LAST_RUN):
            lose(copies)
        self.world.say(host.name, f"starts {order}")
        for each in everybody:
            late = (each is host) if order == "last" else (each is not host and order == "first")
            wait_ms = max(fault.lasts_ms, SOON_MS) + random.randrange(SOON_MS) if late else random.randrange(SOON_MS)
            self.world.after(wait_ms * MS, lambda each=each: self._start(each))  # type: ignore[misc]

    def _start(self, host: Host) -> None:
        if not self.over:
            self._revive(host)

    def _is_still_spare(self, copy: Copy) -> bool:
        return self.plan.nodes == 1 or (self.damage.is_spare(copy) and self._is_held(copy))

    def _strike_alone(
        self,
        fault: Fault,
        host: Host,
        copies: list[Copy],
        lose: Callable[[list[Copy]], None],
        *,
        whole: bool,
        kills: bool,
    ) -> None:
        """While it stops, the others may lose what they hold, and metadata may be committed that only this one and the
        leader have: it is looked at once more when it has stopped."""
        node = host.node

        def struck() -> None:
            if host.node is None:
                # Others may have moved away meanwhile.
                there = [copy for copy in copies if host.disk.is_directory(copy.directory)]
                still = [copy for copy in there if self._is_still_spare(copy)]
                is_all_spare = len(still) == len(there) and node is not None and self._is_metadata_held(node)
                if host.disk.exists(LAST_RUN) and (is_all_spare or not whole):
                    lose(still)
                self.world.after(fault.lasts_ms * MS, lambda: self._start(host))
            elif not self.over:
                self.world.after(STOPPED_US, struck)

        if fault.amount % 2 or self.plan.nodes == 1:
            host.kill() if kills else self._down(host)
        else:
            host.stop()
        struck()


# --- what is done to a disk ---


def _flip_tail(disk: SimDisk, copy: Copy, random: Random, below: int) -> str:
    proven = max((at for name in disk.list(copy.directory) if (at := snapshot_offset(name)) is not None), default=0)
    places = [
        (path, position, size)
        for path, position, base_offset, last_offset, size in _batches(disk, copy.directory)
        if base_offset >= proven and last_offset < below
    ]
    if not places:
        return ""
    path, position, size = random.choice(places)
    at = position + MAGIC_AT + random.randrange(size - MAGIC_AT)
    disk.corrupt(path, at, 1 << random.randrange(8))
    return f"tail damaged: {path} at {at}"


def _lose_files(host: Host, copy: Copy, random: Random) -> str:
    disk, directory = host.disk, copy.directory
    names = disk.list(directory)
    segments = [name for name in names if name.endswith(".log")]
    below = [name for name in segments if int(name[:-4]) < _saved_watermark(disk, copy)]
    chance = random.random()
    if chance < 0.2:
        lost = random.choice(CHECKPOINTS)
        if not disk.exists(lost):
            return ""
        disk.lose(lost)
        return f"checkpoint lost: {lost}"
    if chance < 0.5:
        suffix = random.choice(BESIDE)
        gone = [name for name in names if name.endswith(suffix)]
    elif not below:
        return ""
    else:
        gone = [below[-1]] if chance < 0.75 and below[-1] == segments[-1] else segments
        gone = [name for name in names if f"{name.split('.')[0]}.log" in gone and not name.endswith(".snapshot")]
    for name in gone:
        disk.lose(f"{directory}/{name}")
    return f"files lost: {directory}: {', '.join(gone)}" if gone else ""


def _break_metadata(host: Host, copy: Copy, random: Random) -> str:
    disk, path = host.disk, f"{copy.directory}/{PARTITION_METADATA}"
    if not disk.exists(path) or not disk.size(path) or _saved_watermark(disk, copy) == 0:
        return ""
    if random.random() < 0.3:
        disk.lose(path)
        return f"partition.metadata lost: {path}"
    disk.corrupt(path, random.randrange(disk.size(path)), 1 << random.randrange(8))
    return f"partition.metadata damaged: {path}"


def _lose_directory(host: Host, copy: Copy, random: Random) -> str:
    if _saved_watermark(host.disk, copy) == 0:
        return ""
    host.disk.lose(copy.directory)
    return f"directory lost: {copy.directory}"


def _lose_beginning(host: Host, copy: Copy, random: Random) -> str:
    """Where a snapshot tells that the log began there."""
    disk, directory = host.disk, copy.directory
    names = disk.list(directory)
    segments = [name for name in names if name.endswith(".log")]
    proven = max((at for name in names if (at := snapshot_offset(name)) is not None), default=0)
    if len(segments) < 2 or int(segments[1][:-4]) > min(proven, _saved_watermark(disk, copy)):
        return ""
    disk.lose(f"{directory}/{segments[0]}")
    return f"beginning lost: {directory}/{segments[0]}"


def _stored(partition: Partition) -> int:
    log = partition.log
    if log.failure is not None:
        return -1
    return log.synced_offset if log.is_flushed else log.end_offset


# --- what is on a disk ---


def _is_settled(disk: SimDisk, copy: Copy) -> bool:
    """Not in the middle of a cut: then what was committed is not what the files say."""
    return disk.exists(copy.directory) and not disk.exists(f"{copy.directory}/{TRUNCATED}")


def _saved_watermark(disk: SimDisk, copy: Copy) -> int:
    if not disk.exists(HIGH_WATERMARKS):
        return 0
    return read_offsets(disk.read(HIGH_WATERMARKS)).get((copy.topic, copy.index), 0)


def _batches(disk: SimDisk, directory: str) -> list[tuple[str, int, int, int, int]]:
    """File, position, first and last offset, and size of each, up to what a crash may have torn."""
    found = []
    for name in disk.list(directory):
        if not name.endswith(".log"):
            continue
        try:
            for position, header in iter_headers(disk.read(f"{directory}/{name}")):
                found.append((f"{directory}/{name}", position, header.base_offset, header.last_offset, header.size))
        except CorruptMessage:
            break
    return found


def _end_of(disk: SimDisk, directory: str) -> int:
    return max((last_offset + 1 for _, _, _, last_offset, _ in _batches(disk, directory)), default=0)
