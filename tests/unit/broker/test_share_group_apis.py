"""Share groups over the wire, up to where records are delivered: joining, describing, offsets, deletion."""

from typing import Any

import pytest
from broker_world import Peer, World, batch, part
from nodes_together import Cluster, create, made, produce

from skidway.errors import CoordinatorNotAvailable, ErrorCode
from skidway.groups.share.operations import ShareHeartbeat, StatesChanged
from skidway.metadata.group_configs import GROUP_KEYS, share_config, share_start, validate
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.operations import Read, State
from skidway.shares.coordinator.settings import ShareCoordinatorSettings

FEW = ShareCoordinatorSettings(state_partitions=3)


class Story:
    def __init__(self) -> None:
        self.world = World(shares=FEW)
        self.peer: Peer = self.world.peer()
        self.peer.create("t", 2)
        self.call("FindCoordinator", version=4, key_type=0, coordinator_keys=["g"])
        self.epoch = 0

    def call(self, name: str, **fields: Any) -> Any:
        fields.setdefault(
            "version", 1 if name.startswith(("ShareGroup", "DescribeShare")) else fields.get("version", 0)
        )
        self.peer.send(name, **fields)
        for _ in range(30):
            self.world.settle()
            if replies := self.peer.replies():
                ((_, reply),) = replies
                return reply
            self.world.pass_time(50)
        raise AssertionError(f"no answer to {name}")

    def beat(self, epoch: int | None = None, topics: list[str] | None = None) -> Any:
        epoch = self.epoch if epoch is None else epoch
        reply = self.call(
            "ShareGroupHeartbeat", group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=topics
        )
        assert reply.error_code == 0, reply
        self.epoch = reply.member_epoch
        return reply

    def join(self) -> None:
        self.beat(0, ["t"])
        for _ in range(20):
            self.world.pass_time(200)
            self.world.settle()
            reply = self.beat()
            if reply.assignment is not None and reply.assignment.topic_partitions:
                (topic,) = reply.assignment.topic_partitions
                assert sorted(topic.partitions) == [0, 1]
                return
        raise AssertionError("never assigned")

    def produce(self, index: int, *values: bytes) -> None:
        self.peer.produce("t", batch(*values), index=index)
        self.world.settle()
        self.peer.replies()

    def configure(self, **configs: str) -> list[int]:
        resource = part(
            "IncrementalAlterConfigs",
            "AlterConfigsResource",
            32,
            "g",
            [
                part("IncrementalAlterConfigs", "AlterableConfig", name.replace("_", "."), 0, value)
                for name, value in configs.items()
            ],
        )
        reply = self.call("IncrementalAlterConfigs", version=1, resources=[resource])
        return [each.error_code for each in reply.responses]

    def offsets(self, topics: Any = None) -> dict[tuple[str, int], tuple[int, int]]:
        asked = part("DescribeShareGroupOffsets", "DescribeShareGroupOffsetsRequestGroup", "g", topics)
        (group,) = self.call("DescribeShareGroupOffsets", groups=[asked]).groups
        assert group.error_code == 0, group
        return {
            (topic.topic_name, entry.partition_index): (entry.start_offset, entry.lag)
            for topic in group.topics
            for entry in topic.partitions
        }


def test_a_member_joins_and_is_described() -> None:
    story = Story()
    story.join()
    (group,) = story.call("ShareGroupDescribe", group_ids=["g"]).groups
    assert (group.group_state, group.assignor_name, group.error_code) == ("Stable", "simple", 0)
    (member,) = group.members
    assert (member.member_id, member.subscribed_topic_names) == ("m", ["t"])
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, sorted(assigned.partitions)) == ("t", [0, 1])
    (listed,) = story.call("ListGroups", version=5, types_filter=["share"]).groups
    assert (listed.group_id, listed.group_type, listed.group_state) == ("g", "share", "Stable")
    (unknown,) = story.call("ShareGroupDescribe", group_ids=["nobody"]).groups
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("reset", "starts"), [(None, (2, 0)), ("latest", (2, 0)), ("earliest", (0, 0)), ("by_duration:PT1H", (0, 0))]
)
def test_where_delivery_starts(reset: str | None, starts: tuple[int, int]) -> None:
    story = Story()
    story.produce(0, b"a", b"b")
    if reset is not None:
        assert story.configure(share_auto_offset_reset=reset) == [0]
    story.join()
    ends = (2, 0)
    expected = {("t", number): (starts[number], ends[number] - starts[number]) for number in (0, 1)}
    assert story.offsets() == expected
    story.produce(1, b"c")
    assert story.offsets()["t", 1] == (0, 1)


def test_a_group_hears_of_its_states_however_often_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    groups = story.world.node.rooms.services.groups
    submit, refused = groups.submit, list[Any]()

    def fails_twice(key: Any, operation: Any, now_ms: int, respond: Any) -> None:
        if isinstance(operation, StatesChanged) and len(refused) < 2:
            refused.append(operation)
            respond(CoordinatorNotAvailable("too few replicas are in sync"))
        else:
            submit(key, operation, now_ms, respond)

    monkeypatch.setattr(groups, "submit", fails_twice)
    story.join()
    assert len(refused) == 2


def test_offsets_are_altered_and_deleted() -> None:
    story = Story()
    story.produce(0, b"a", b"b", b"c")
    story.join()
    topic = part("DescribeShareGroupOffsets", "DescribeShareGroupOffsetsRequestTopic", "t", [0, 7])
    assert story.offsets([topic]) == {("t", 0): (3, 0), ("t", 7): (-1, -1)}

    def alter(topic: str, *offsets: tuple[int, int]) -> Any:
        partitions = [
            part("AlterShareGroupOffsets", "AlterShareGroupOffsetsRequestPartition", *each) for each in offsets
        ]
        asked = part("AlterShareGroupOffsets", "AlterShareGroupOffsetsRequestTopic", topic, partitions)
        return story.call("AlterShareGroupOffsets", group_id="g", topics=[asked])

    assert alter("t", (0, 1)).error_code == ErrorCode.NON_EMPTY_GROUP
    story.beat(-1)
    reply = alter("t", (0, 1), (7, 0))
    (answered,) = reply.responses
    assert [each.error_code for each in answered.partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert story.offsets()["t", 0] == (1, 2)
    (refused,) = alter("nothing", (0, 1)).responses
    assert refused.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = part("DeleteShareGroupOffsets", "DeleteShareGroupOffsetsRequestTopic", "t")
    (deleted,) = story.call("DeleteShareGroupOffsets", group_id="g", topics=[asked]).responses
    assert deleted.error_code == 0
    assert story.offsets() == {}
    assert story.offsets([topic])["t", 0] == (-1, -1)


def test_a_group_is_deleted_with_its_state() -> None:
    story = Story()
    story.join()
    (result,) = story.call("DeleteGroups", version=2, groups_names=["g"]).results
    assert result.error_code == ErrorCode.NON_EMPTY_GROUP
    story.beat(-1)
    story.epoch = 0
    (result,) = story.call("DeleteGroups", version=2, groups_names=["g"]).results
    assert result.error_code == 0
    assert story.call("ListGroups", version=5).groups == []
    states = [each.host.machine.states for each in story.world.node.rooms.services.share_states.shares.loaded.values()]
    assert all(state == {} for state in states)
    story.produce(0, b"a")
    story.join()
    assert story.offsets()["t", 0] == (1, 0), "it begins again, at the end of now"


def test_settings_of_share_groups_have_bounds() -> None:
    story = Story()
    assert story.configure(share_session_timeout_ms="50000", share_isolation_level="read_committed") == [0]
    for name, bad in [
        ("share_session_timeout_ms", "1000"),
        ("share_record_lock_duration_ms", "1000"),
        ("share_delivery_count_limit", "11"),
        ("share_partition_max_record_locks", "99"),
        ("share_auto_offset_reset", "sometime"),
        ("share_auto_offset_reset", "by_duration:P"),
        ("share_auto_offset_reset", "by_duration:-PT1H"),
        ("share_isolation_level", "none"),
        ("share_assignment_interval_ms", "10"),
    ]:
        assert story.configure(**{name: bad}) == [ErrorCode.INVALID_CONFIG], (name, bad)
    for text, duration_ms in [("P1D", 86_400_000), ("PT1H30M", 5_400_000), ("P1DT0.5S", 86_400_500)]:
        assert share_start({"share.auto.offset.reset": f"by_duration:{text}"}).duration_ms == duration_ms


def test_what_leaders_obey_is_within_the_bounds_of_now() -> None:
    overrides = {"share.record.lock.duration.ms": "60000", "share.renew.acknowledge.enable": "false"}
    validate(overrides, {})
    assert share_config(overrides, {}) == (60_000, 5, 2_000, False, False, False, False)
    lower = {"group.share.max.record.lock.duration.ms": "30000"}
    assert share_config(overrides, lower).lock_ms == 30_000
    assert [name for name, key in GROUP_KEYS.items() if not key.default] == ["errors.deadletterqueue.topic.name"]


def test_groups_and_their_starts_survive_their_coordinators() -> None:
    cluster = made(shares=FEW)
    create(cluster, "t", 2)
    produce(cluster, "t", b"a", b"b")

    def ask(epoch: int, topics: list[str] | None = None) -> Any:
        node = cluster.nodes[min(cluster.nodes)]
        ready: list[Any] = []
        node.rooms.services.groups.prepare(cluster.clock.now_ms, ready.append)
        cluster.until(lambda: ready)
        found = cluster.until(lambda: _coordinator(cluster))
        answers: list[Any] = []
        operation = ShareHeartbeat("g", "m", epoch, topics=topics)
        cluster.nodes[found].rooms.services.groups.submit("g", operation, cluster.clock.now_ms, answers.append)
        (answer,) = cluster.until(lambda: answers)
        return answer

    reply = ask(0, ["t"])
    while not reply.assignment:
        cluster.pass_time(reply.heartbeat_interval_ms)
        reply = ask(reply.member_epoch, ["t"])
    topic_id = cluster.nodes[1].image.topics["t"].id
    assert reply.assignment == [(topic_id, [0, 1])]
    coordinator = cluster.until(lambda: _coordinator(cluster))
    cluster.kill(coordinator)
    produce(cluster, "t", b"c")
    cluster.until(lambda: _coordinator(cluster))
    again = ask(reply.member_epoch, ["t"])
    assert (again.member_epoch, again.assignment) == (reply.member_epoch, reply.assignment)
    states: list[Any] = []
    node = cluster.nodes[min(cluster.nodes)]
    node.rooms.services.share_states.ask(Read(ShareKey("g", topic_id, 0), 0), cluster.clock.now_ms, states.append)
    (state,) = cluster.until(lambda: states)
    assert isinstance(state, State)
    assert state.start_offset == 2, "where it was when the group began"


def _coordinator(cluster: Cluster) -> int | None:
    groups = cluster.nodes[min(cluster.nodes)].rooms.services.groups
    place = groups.place_of("g")
    return None if place < 0 else cluster.leader("__consumer_offsets", place)
