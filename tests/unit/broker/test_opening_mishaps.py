"""What goes wrong while a node opens its partitions, or just after: one log's trouble stays its own."""

import errno
from collections.abc import Callable
from typing import Any

import pytest
from nodes_together import Cluster, create, made, produce, read

from skidway.broker import relay
from skidway.broker.partitions import lost_copies, opening
from skidway.broker.partitions.lives import Settling
from skidway.broker.upkeep.syncs import SyncJob
from skidway.log.durability import checkpointing
from skidway.log.positions import Positions
from skidway.metadata.image import LOST_DIRECTORY
from skidway.runtime.jobs import Job
from skidway.sim.world.disk import SimDisk

MAGIC_AT = 16


def cluster_with(topic: str, **configs: Any) -> tuple[Cluster, int]:
    """And a node that does not lead the topic."""
    cluster = made(size=3, replica_lag_ms=2_000)
    leader = create(cluster, topic, min_insync_replicas="2", **configs)
    return cluster, next(number for number in cluster.nodes if number != leader)


def checkpoint(cluster: Cluster, number: int, topic: str) -> None:
    log = cluster.copy(number, topic).log
    ticket = checkpointing.begin(log)
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)


def come_back(cluster: Cluster, number: int) -> Any:
    cluster.kill(number)
    cluster.disks[number].kill()
    cluster.restart(number)
    return cluster.nodes[number]


def test_a_log_that_cannot_be_read_at_its_watermark_keeps_no_other_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "TURN_MS_MAX", 0)
    cluster, victim = cluster_with("t")
    create(cluster, "u", partitions=6)
    for _ in range(6):
        assert produce(cluster, "t", bytes(1_000)) == 0
    cluster.pass_time(1_000)
    logs = cluster.nodes[victim].logs
    saved = logs.begin_save()
    assert saved is not None
    saved.run()
    logs.finish_save(saved)
    for _ in range(20):
        assert produce(cluster, "t", bytes(1_000)) == 0
    cluster.pass_time(1_000)
    checkpoint(cluster, victim, "t")
    position = cluster.copy(victim, "t").log.batches()[6][0]
    cluster.kill(victim)
    cluster.disks[victim].kill()
    cluster.disks[victim].corrupt("t-0/00000000000000000000.log", position + MAGIC_AT)
    cluster.restart(victim)
    node = cluster.nodes[victim]
    cluster.until(lambda: node.rooms.hosting.started and not node.rooms.registration.fenced)
    assert not node.logs.found
    cluster.until(lambda: cluster.agree("t"))


def is_of(job: Job, name: str) -> bool:
    return isinstance(job, SyncJob) and str(job.hosted) == name


def test_a_sync_that_fails_while_a_log_settles_is_that_logs_trouble_alone() -> None:
    cluster, victim = cluster_with("t", flush="sync")
    for value in (b"a", b"b", b"c"):
        assert produce(cluster, "t", value) == 0
    node = come_back(cluster, victim)
    disk, end_turn = cluster.disks[victim], node.end_turn
    failed: list[str] = []

    def failing() -> list[Job]:
        jobs: list[Job] = end_turn()
        if not failed and any(is_of(job, "t-0") for job in jobs):
            failed.append("t-0")
            jobs.sort(key=lambda job: not is_of(job, "t-0"))
            disk.failing_syncs = {disk.syncs}
        return jobs

    node.end_turn = failing
    cluster.until(lambda: failed)
    disk.failing_syncs = None
    cluster.until(lambda: cluster.agree("t") and not cluster.copy(victim, "t").log.quarantined)
    assert produce(cluster, "t", b"d") == 0
    cluster.until(lambda: cluster.agree("t"))
    assert node.failure is None


def test_too_many_open_files_while_a_log_settles_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, victim = cluster_with("t")
    assert produce(cluster, "t", b"a") == 0
    cluster.pass_time(500)
    node = come_back(cluster, victim)
    refused: list[str] = []
    end_turn, really_open = node.end_turn, SimDisk.open

    def refuse(disk: SimDisk, path: str, *, create: bool = False) -> Any:
        if path.startswith("t-0/") and len(refused) < 3 and disk is cluster.disks[victim]:
            refused.append(path)
            raise OSError(errno.EMFILE, "Too many open files")
        return really_open(disk, path, create=create)

    def short_of_files() -> Any:
        with monkeypatch.context() as patched:
            if isinstance(node.rooms.hosting.lives.present_at("t", 0), Settling):
                patched.setattr(SimDisk, "open", refuse)
            return end_turn()

    node.end_turn = short_of_files
    cluster.until(lambda: node.rooms.hosting.started)
    cluster.until(lambda: cluster.agree("t"))
    assert node.failure is None


def test_a_copy_that_was_given_up_is_still_so_after_a_restart() -> None:
    cluster, _ = cluster_with("t", flush="sync")
    victim = cluster.leader("t")
    assert victim is not None
    for number in range(6):
        assert produce(cluster, "t", b"%d" % number) == 0
    cluster.pass_time(1_000)
    checkpoint(cluster, victim, "t")
    cluster.disks[victim].corrupt("t-0/00000000000000000000.log", 65)
    node, copy = cluster.nodes[victim], cluster.copy(victim, "t")
    node.rooms.followers._pump = lambda fetcher: None  # type: ignore[method-assign]  # the next leader cannot be reached
    node.rooms.damaged.found(copy, "a checksum is wrong")
    cluster.until(lambda: copy.log.quarantined)
    come_back(cluster, victim)
    cluster.until(cluster.ready)
    cluster.until(lambda: cluster.agree("t"))
    assert "damaged" not in cluster.disks[victim].list("t-0")


# --- a directory that cannot be opened ---


class Closed:
    """The directory of a partition that the disks of some nodes do not open."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, error: int, names: tuple[str, ...] = ("list", "read", "open")
    ) -> None:
        self.disks: list[SimDisk] = []
        for name in names:
            monkeypatch.setattr(SimDisk, name, self._unless_closed(getattr(SimDisk, name), error))

    def _unless_closed(self, as_ever: Callable[..., Any], error: int) -> Callable[..., Any]:
        def act(disk: SimDisk, path: str, **options: Any) -> Any:
            if path.startswith("t-0") and any(disk is each for each in self.disks):
                raise OSError(error, "closed")
            return as_ever(disk, path, **options)

        return act


class Pair:
    """A topic on two of five nodes, both of which have everything and are stopped."""

    def __init__(self) -> None:
        self.cluster = cluster = made(size=5, replica_lag_ms=2_000)
        self.first = create(cluster, "t", replicas=2, min_insync_replicas="2", flush="sync")
        (self.second,) = set(self.described.replicas) - {self.first}
        assert produce(cluster, "t", b"a") == 0
        for number in (self.second, self.first):
            node = cluster.nodes[number]
            node.leave(cluster.clock.now_ms)
            cluster.until(lambda node=node: node.departed)  # type: ignore[misc]
            cluster.stop(number)
        cluster.until(lambda: self.standing == (-1, [], sorted([self.first, self.second])))

    @property
    def described(self) -> Any:
        return self.cluster.nodes[self.cluster.until(self.cluster.controller)].image.topics["t"].partitions[0]

    @property
    def standing(self) -> tuple[int, list[int], list[int]]:
        """Leader, in-sync set, eligible leaders."""
        described = self.described
        return described.leader, sorted(described.isr), sorted(described.eligible_leader_replicas)

    @property
    def lost(self) -> bool:
        """Whether the copy of the first counts as lost."""
        described = self.described
        directories = dict(zip(described.replicas, described.directories, strict=True))
        return bool(directories[self.first] == LOST_DIRECTORY)

    def maintain(self) -> None:
        for node in self.cluster.nodes.values():
            node.maintain(self.cluster.clock.now_ms, self.cluster.clock.wall_ms())
        self.cluster.pass_time(1_000)


def test_a_copy_that_cannot_be_opened_leaves_the_lead_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, pair = Closed(monkeypatch, errno.EACCES), Pair()
    cluster, first, second = pair.cluster, pair.first, pair.second
    closed.disks.append(cluster.disks[first])
    cluster.restart(first)
    cluster.until(lambda: pair.standing == (-1, [], [second]))
    assert pair.lost
    assert any("t-0 is offline: [Errno 13] closed" in line for line in cluster.told[first])
    cluster.pass_time(20_000)
    assert pair.standing == (-1, [], [second])
    cluster.restart(second)
    cluster.until(lambda: pair.standing == (second, [second], []))
    closed.disks.clear()
    for _ in range(20):
        pair.maintain()
    assert pair.standing == (second, sorted([first, second]), [])
    assert not pair.lost
    assert produce(cluster, "t", b"b") == 0
    assert [cluster.copy(number, "t").log.end_offset for number in (first, second)] == [2, 2]


def test_a_copy_that_waits_for_a_free_descriptor_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, pair = Closed(monkeypatch, errno.EMFILE), Pair()
    cluster, first = pair.cluster, pair.first
    closed.disks.append(cluster.disks[first])
    cluster.restart(first)
    cluster.until(lambda: cluster.nodes[first].rooms.hosting.started)
    cluster.pass_time(lost_copies.MISSING_MS // 2)
    assert not pair.lost, cluster.told[first]
    closed.disks.clear()
    for _ in range(20):
        pair.maintain()
        assert not pair.lost
    assert pair.standing[0] == first


def test_a_directory_that_vanished_after_it_could_not_be_opened_is_not_begun_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed, pair = Closed(monkeypatch, errno.EMFILE), Pair()
    cluster, first = pair.cluster, pair.first
    closed.disks.append(cluster.disks[first])
    cluster.restart(first)
    cluster.until(lambda: cluster.nodes[first].rooms.hosting.started)
    cluster.disks[first].remove_tree("t-0")
    closed.disks.clear()
    for _ in range(20):
        pair.maintain()
    assert pair.lost, "empty, it would lead, and the other be cut to nothing"
    assert pair.standing == (-1, [], [pair.second])


# --- too many open files: a shortage, no damage ---


@pytest.mark.parametrize("call", ["list", "read", "open"])
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_log_that_finds_no_free_descriptor_waits_for_one(
    monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    cluster = made(size=1)
    for topic in ("t", "u"):
        create(cluster, topic, replicas=1, flush="sync")
        assert produce(cluster, topic, b"a") == 0
    disk = cluster.disks[1]
    cluster.kill(1, power_lost=True)
    closed = Closed(monkeypatch, code, (call,))
    closed.disks.append(disk)
    cluster.restart(1)
    node = cluster.nodes[1]
    cluster.until(lambda: node.rooms.hosting.started and not node.rooms.registration.fenced)
    assert (produce(cluster, "t", b"b", by=1), produce(cluster, "u", b"b", by=1)) == (56, 0), "others are served"
    assert cluster.told[1].count(f"t-0 is offline: [Errno {code}] closed") == 1, cluster.told[1]
    closed.disks.clear()
    cluster.pass_time(2 * relay.RETRY_MS)
    assert produce(cluster, "t", b"c") == 0
    assert read(cluster, 1, "t") == [b"a", b"c"]
    assert "t-0 is open again" in cluster.events[1]
    assert not [line for line in cluster.told[1] if "quarantined" in line]


def test_nor_is_a_log_damaged_that_finds_none_for_its_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, victim = cluster_with("t")
    assert produce(cluster, "t", b"a") == 0
    cluster.until(lambda: cluster.agree("t"))
    really_place = Positions.place_watermark
    refused: list[int] = []

    def refuse(positions: Positions, offset: int) -> None:
        if len(refused) < 2 and positions.tail[1].directory == "t-0":
            refused.append(offset)
            raise OSError(errno.EMFILE, "Too many open files")
        really_place(positions, offset)

    cluster.kill(victim)
    cluster.disks[victim].kill()
    monkeypatch.setattr(Positions, "place_watermark", refuse)
    cluster.restart(victim)
    cluster.until(lambda: cluster.nodes[victim].rooms.hosting.started)
    cluster.pass_time(5 * relay.RETRY_MS)
    assert len(refused) == 2
    assert produce(cluster, "t", b"b") == 0
    cluster.until(lambda: cluster.agree("t"))
    assert not [line for line in cluster.told[victim] if "quarantined" in line]


def test_a_log_that_was_not_opened_since_a_crash_is_not_believed_after_a_clean_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = made(size=1)
    create(cluster, "t", replicas=1, flush="sync")
    assert produce(cluster, "t", b"a") == 0
    disk = cluster.disks[1]
    cluster.kill(1, power_lost=True)
    closed = Closed(monkeypatch, errno.EMFILE)
    closed.disks.append(disk)
    cluster.restart(1)
    node = cluster.nodes[1]
    cluster.until(lambda: node.rooms.hosting.started and not node.rooms.registration.fenced)
    cluster.pass_time(3 * relay.RETRY_MS)
    assert not node.last_run.has_opened, "its tail may be torn, and a kill would not explain that"
    cluster.stop(1)
    closed.disks.clear()
    assert not disk.exists(".kafka_cleanshutdown")
    cluster.restart(1)
    cluster.until(cluster.ready)
    cluster.until(lambda: cluster.nodes[1].last_run.has_opened)
    assert read(cluster, 1, "t") == [b"a"]


def test_all_logs_count_as_opened_when_the_last_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = made(size=1)
    create(cluster, "t", replicas=1)
    assert produce(cluster, "t", b"a") == 0
    cluster.pass_time(1_000)
    cluster.kill(1, power_lost=True)
    closed = Closed(monkeypatch, errno.EMFILE)
    closed.disks.append(cluster.disks[1])
    cluster.restart(1)
    node = cluster.nodes[1]
    cluster.until(lambda: node.rooms.hosting.started and not node.rooms.registration.fenced)
    closed.disks.clear()
    cluster.pass_time(2 * relay.RETRY_MS)
    node.maintain(cluster.clock.now_ms, cluster.clock.wall_ms())
    cluster.until(lambda: node.last_run.has_opened)
