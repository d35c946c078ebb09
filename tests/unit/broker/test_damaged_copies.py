"""A node that may be elected finds its copy damaged: others do without it until it has fetched everything anew. Where
nobody else has everything, the partition waits for an operator."""

from typing import Any

from broker_world import batch, code, part
from nodes_together import Cluster, create, made, produce, read

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
    cluster.until(lambda: story.standing == (first, [first], []))
    cluster.until(cluster.ready)
    cluster.pass_time(20_000)
    assert story.standing == (first, [first], [])
    assert ask_to_produce(cluster, first) == STORAGE_ERROR
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
        if second in story.standing[2] and second in cluster.nodes and cluster.nodes[second].hosting.started:
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
    cluster.until(lambda: cluster.nodes[first].registration.epoch >= 0)
    cluster.kill(controller)
    cluster.until(lambda: cluster.controller() is not None and story.standing == (-1, [], [second]))
