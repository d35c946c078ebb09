"""A node that may be elected finds its copy damaged: others do without it until it has fetched everything anew. Where
nobody else has everything, the partition waits for an operator."""

from random import Random
from typing import Any

import pytest
from broker_world import batch, code, part
from nodes_together import Cluster, create, made, produce, read

from skidway.records.batch import HEADER_BYTES
from skidway.records.record import Record, build_batch

NOT_LEADER = 6
STORAGE_ERROR = 56
VALUES = [b"a", b"b", b"c"]


class Story:
    """Five nodes, and a topic on two of them: the controller goes on when both are down."""

    def __init__(self, min_in_sync: int) -> None:
        self.cluster = made(size=5, replica_lag_ms=2000)
        self.first = create(self.cluster, "t", replicas=2, min_insync_replicas=str(min_in_sync), flush="sync")
        (self.second,) = set(self.described.replicas) - {self.first}
        for value in VALUES:
            assert produce(self.cluster, "t", value) == 0

    @property
    def described(self) -> Any:
        """As the controller knows it."""
        return self.cluster.nodes[self.cluster.until(self.cluster.controller)].image.topics["t"].partitions[0]

    @property
    def standing(self) -> tuple[int, list[int], list[int]]:
        """Leader, in-sync set, eligible leaders."""
        described = self.described
        return described.leader, sorted(described.isr), sorted(described.eligible_leader_replicas)

    def stop(self, number: int) -> None:
        node = self.cluster.nodes[number]
        node.leave(self.cluster.clock.now_ms)
        self.cluster.until(lambda: node.departed)
        self.cluster.stop(number)

    def start(self, number: int, *, damaged: bool = False) -> None:
        if damaged:
            # What was synced, and proven to be.
            self.cluster.disks[number].open("t-0/00000000000000000000.log").truncate(100)
        self.cluster.restart(number)

    def log(self, number: int) -> Any:
        return self.cluster.copy(number, "t").log

    def told(self, number: int, words: str) -> bool:
        return any(words in line for line in self.cluster.told[number])

    def agree(self) -> bool:
        one, other = (self.log(number) for number in self.described.replicas)
        stored = [b"".join(segment.file.read_at(0, segment.size) for segment in log.segments) for log in (one, other)]
        return stored[0] == stored[1] and one.high_watermark == other.high_watermark == other.end_offset


def ask_to_produce(cluster: Cluster, number: int) -> int:
    client = cluster.client(number)
    client.produce("t", batch(b"x"))
    ((_, reply),) = cluster.until(client.replies)
    return code(reply)


def ask_to_read(cluster: Cluster, number: int, offset: int) -> int:
    client = cluster.client(number)
    client.fetch({("t", 0): offset})
    cluster.settle()
    return int(client.reply().responses[0].partitions[0].error_code)


def test_one_that_is_eligible_with_a_damaged_copy_leaves_the_lead_to_the_other() -> None:
    story = Story(min_in_sync=2)
    cluster, first, second = story.cluster, story.first, story.second
    story.stop(second)
    story.stop(first)
    cluster.until(lambda: story.standing == (-1, [], sorted([first, second])))
    story.start(first, damaged=True)
    cluster.until(lambda: story.standing == (-1, [], [second]))
    cluster.until(cluster.ready)
    cluster.pass_time(1000)
    assert story.log(first).quarantined, "there is nobody to fetch from"
    assert story.standing == (-1, [], [second])
    story.start(second)
    cluster.until(lambda: story.standing == (second, sorted([first, second]), []))
    cluster.until(story.agree)
    assert read(cluster, second, "t") == VALUES
    assert produce(cluster, "t", b"d") == 0


def test_the_only_one_that_had_everything_serves_nothing_and_waits_for_an_operator() -> None:
    story = Story(min_in_sync=1)
    cluster, first, second = story.cluster, story.first, story.second
    story.stop(second)
    assert produce(cluster, "t", b"d") == 0
    story.stop(first)
    story.start(second)
    story.start(first, damaged=True)
    cluster.until(lambda: story.told(first, "unclean.leader.election.enable=true"))
    cluster.until(lambda: story.standing == (-1, [], [first]))
    cluster.until(cluster.ready)
    cluster.pass_time(20_000)
    assert story.standing == (-1, [], [first])
    assert ask_to_produce(cluster, first) == NOT_LEADER
    assert [ask_to_read(cluster, first, offset) for offset in (0, 3, 100)] == [STORAGE_ERROR] * 3
    assert story.log(second).end_offset == 3, "it was not told to throw away what it has"
    assert len([line for line in cluster.told[first] if "unavailable" in line]) == 1

    change = part("IncrementalAlterConfigs", "AlterableConfig", "unclean.leader.election.enable", 0, "true")
    resource = part("IncrementalAlterConfigs", "AlterConfigsResource", 2, "t", [change])
    cluster.client(first).send("IncrementalAlterConfigs", resources=[resource])
    cluster.until(lambda: story.standing == (second, sorted([first, second]), []))
    cluster.until(story.agree)
    assert read(cluster, second, "t") == VALUES, "the operator gave up the last one"


def test_an_eligible_follower_throws_its_damaged_copy_away_only_when_it_is_not_eligible_any_more() -> None:
    story = Story(min_in_sync=2)
    cluster, first, second = story.cluster, story.first, story.second
    story.stop(second)
    cluster.until(lambda: story.standing == (first, [first], [second]))
    story.start(second, damaged=True)

    def is_back() -> bool:
        if second in story.standing[2] and second in cluster.nodes and cluster.nodes[second].rooms.hosting.started:
            assert story.log(second).quarantined, "elected now, it would lead with an empty log"
        return bool(story.standing == (first, sorted([first, second]), []))

    cluster.until(is_back)
    cluster.until(story.agree)
    assert read(cluster, first, "t") == VALUES


def test_a_new_controller_is_asked_when_the_old_one_dies() -> None:
    story = Story(min_in_sync=2)
    cluster, first, second = story.cluster, story.first, story.second
    story.stop(second)
    story.stop(first)
    controller = cluster.until(cluster.controller)
    story.start(first, damaged=True)
    cluster.until(lambda: cluster.nodes[first].rooms.registration.epoch >= 0)
    cluster.kill(controller)
    cluster.until(lambda: cluster.controller() is not None and story.standing == (-1, [], [second]))


# --- damage that is found later ---


def rot(cluster: Cluster, number: int, offset: int) -> None:
    """Some bits of a record, long after it was written."""
    segment, position = cluster.copy(number, "t").log.locate(offset)
    cluster.disks[number].corrupt(segment.path(".log"), position + HEADER_BYTES)


def lose(cluster: Cluster, number: int) -> None:
    """A follower loses its copy and has to fetch everything from the leader."""
    leader = cluster.nodes[cluster.until(lambda: cluster.leader("t"))]
    cluster.kill(number)
    cluster.until(lambda: number not in leader.image.topics["t"].partitions[0].isr)
    cluster.disks[number].remove_tree("t-0")


def told_of_damage(cluster: Cluster) -> list[int]:
    return [number for number, lines in cluster.told.items() for line in lines if "will be fetched again" in line]


def test_a_leader_that_sent_a_damaged_batch_hands_over_and_begins_anew() -> None:
    cluster = made()
    first = create(cluster, "t", flush="sync")
    for value in VALUES:
        assert produce(cluster, "t", value) == 0
    second, third = [number for number in (1, 2, 3) if number != first]
    lose(cluster, third)
    rot(cluster, first, 1)
    cluster.restart(third)
    cluster.until(cluster.ready)
    assert cluster.until(lambda: cluster.leader("t") != first and cluster.leader("t")) == second
    cluster.until(lambda: cluster.agree("t"))
    assert told_of_damage(cluster) == [first]
    cluster.until(lambda: sorted(cluster.nodes[second].image.topics["t"].partitions[0].isr) == [1, 2, 3])
    assert read(cluster, second, "t") == VALUES
    assert produce(cluster, "t", b"d") == 0
    cluster.until(lambda: cluster.agree("t"))


def test_where_nobody_can_take_over_a_leader_serves_on_what_it_has() -> None:
    cluster = made()
    first = create(cluster, "t", replicas=2, flush="sync")
    (second,) = set(cluster.nodes[first].image.topics["t"].partitions[0].replicas) - {first}
    for value in VALUES:
        assert produce(cluster, "t", value) == 0
    lose(cluster, second)
    rot(cluster, first, 1)
    cluster.restart(second)
    cluster.until(lambda: told_of_damage(cluster) == [first])
    cluster.pass_time(20_000)
    assert cluster.leader("t") == first
    assert produce(cluster, "t", b"d") == 0
    assert told_of_damage(cluster) == [first]
    assert cluster.copy(second, "t").log.end_offset == 0, "what is damaged is not copied"


@pytest.mark.parametrize("leads", [True, False])
def test_what_a_compaction_finds_damaged_is_fetched_anew(leads: bool) -> None:
    cluster = made(compaction_check_ms=1000, checkpoint_ms=1000)
    configs: dict[str, Any] = {"cleanup_policy": "compact", "segment_ms": "1000", "min_cleanable_dirty_ratio": "0"}
    first = create(cluster, "t", flush="sync", **configs)
    for value in VALUES:
        assert produce_keyed(cluster, value) == 0
        cluster.pass_time(2000)
    damaged = first if leads else next(number for number in (1, 2, 3) if number != first)
    epoch = cluster.copy(first, "t").role.leader_epoch
    rot(cluster, damaged, 0)
    cluster.until(lambda: maintained(cluster, damaged) and cluster.copy(first, "t").role.leader_epoch > epoch)
    cluster.until(lambda: cluster.agree("t") and sorted(cluster.copy(first, "t").role.in_sync) == [1, 2, 3])
    assert told_of_damage(cluster) == [damaged]
    assert (cluster.leader("t") == first) is not leads
    assert produce_keyed(cluster, b"d") == 0


def maintained(cluster: Cluster, number: int) -> bool:
    cluster.nodes[number].maintain(cluster.clock.now_ms, cluster.clock.wall_ms())
    return True


def produce_keyed(cluster: Cluster, value: bytes) -> int:
    client = cluster.client(cluster.until(lambda: cluster.leader("t")))
    client.produce("t", bytes(build_batch([Record(0, cluster.clock.wall_ms(), b"key", value)])))
    ((_, reply),) = cluster.until(client.replies)
    return code(reply)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_damaged_and_whoever_is_killed_all_that_was_acknowledged_is_there(seed: int) -> None:
    dice = Random(seed)
    cluster = made(seed=seed)
    create(cluster, "t", flush=dice.choice(["os", "sync"]), min_insync_replicas="2")
    sent, acknowledged = 0, []
    for _ in range(5):
        for _ in range(dice.randrange(1, 6)):
            sent += 1
            if produce(cluster, "t", b"%d" % sent) == 0:
                acknowledged.append(b"%d" % sent)
        cluster.until(lambda: cluster.agree("t") and len(cluster.copy(1, "t").role.in_sync) == 3)
        leader = cluster.until(lambda: cluster.leader("t"))
        victim = dice.choice([1, 2, 3])
        if victim != leader:
            rot(cluster, leader, dice.randrange(cluster.copy(leader, "t").log.end_offset))
            lose(cluster, victim)
        else:
            dice.choice([cluster.stop, cluster.kill])(victim)
            cluster.disks[victim].open("t-0/00000000000000000000.log").truncate(30)
        cluster.pass_time(dice.choice([0, 100, 3000]))
        cluster.restart(victim)
        cluster.until(cluster.ready)
        cluster.pass_time(dice.choice([0, 1000, 3000]))
    cluster.until(lambda: cluster.agree("t") and len(cluster.copy(1, "t").role.in_sync) == 3)
    found = read(cluster, cluster.until(lambda: cluster.leader("t")), "t")
    assert [value for value in found if value in acknowledged] == acknowledged
    assert len(acknowledged) > 3


# --- copies that are gone ---


def test_after_a_stop_of_all_an_empty_copy_does_not_lead_because_its_directory_is_gone() -> None:
    cluster = made()
    create(cluster, "t", min_insync_replicas="2")
    for value in VALUES:
        assert produce(cluster, "t", value) == 0
    cluster.until(lambda: cluster.agree("t"))
    for number in (1, 2, 3):
        cluster.stop(number)
    cluster.disks[1].remove_tree("t-0")
    # It comes first, and was in sync.
    for number in (1, 2, 3):
        cluster.restart(number)
    cluster.until(cluster.ready)
    leader = cluster.until(lambda: cluster.leader("t"))
    assert leader != 1
    assert read(cluster, leader, "t") == VALUES
    assert any("its directory is missing, and everything below 3 was committed" in line for line in cluster.told[1])
    cluster.until(lambda: cluster.agree("t"))
    assert not cluster.copy(1, "t").log.quarantined


def test_a_topic_that_was_just_created_when_all_were_killed_needs_no_directory() -> None:
    cluster = made()
    create(cluster, "t", min_insync_replicas="2")
    for number in (1, 2, 3):
        cluster.kill(number)
        cluster.disks[number].remove_tree("t-0")
    for number in (1, 2, 3):
        cluster.restart(number)
    cluster.until(cluster.ready)
    assert cluster.until(lambda: cluster.leader("t"))
    assert produce(cluster, "t", b"a") == 0


def test_a_copy_that_is_fetched_anew_says_what_it_dropped_and_why() -> None:
    story = Story(min_in_sync=2)
    cluster, first, second = story.cluster, story.first, story.second
    story.stop(second)
    story.stop(first)
    story.start(second, damaged=True)
    story.start(first)
    cluster.until(lambda: story.standing == (first, sorted([first, second]), []))
    lines = cluster.events[second]
    assert any("t-0: starts again at offset 0, without offsets" in line and "damaged" in line for line in lines), lines


def test_damage_to_the_only_replica_is_said_once_and_where() -> None:
    cluster = made()
    first = create(cluster, "t", replicas=1, flush="sync", internal_segment_bytes="200")
    for value in VALUES * 3:
        assert produce(cluster, "t", value * 60) == 0
    cluster.disks[first].lose("t-0/00000000000000000000.log")
    for segment in cluster.copy(first, "t").log.segments:
        segment.release_file()
    for _ in range(3):
        assert ask_to_read(cluster, first, 0) == STORAGE_ERROR
    (line,) = [line for line in cluster.told[first] if "no other replica" in line]
    assert line.startswith("t-0: damaged")
    assert "t-0/00000000000000000000.log" in line
