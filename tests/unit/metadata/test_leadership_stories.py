"""Who leads, who is in sync, who is eligible: one rule a story."""

import pytest
from controller_world import SETTINGS, Cluster, shape

from skidway.errors import ErrorCode, InvalidRequest, StaleBrokerEpoch
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.image import LOST_DIRECTORY
from skidway.metadata.operations import (
    AlterConfigs,
    AlterOp,
    AlterPartition,
    AssignDirectories,
    BalanceLeaders,
    ConfigChange,
    ConfigReplacement,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    IncrementalAlterConfigs,
    LeaderElected,
    NewTopic,
    PartitionAlteration,
)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    return cluster


def configure(cluster: Cluster, name: str, key: str, value: str, resource_type: int = 2) -> None:
    [reply] = cluster.decide(IncrementalAlterConfigs([ConfigChange(resource_type, name, [(key, AlterOp.SET, value)])]))
    assert not reply.error, reply


# --- new topics ---


def test_a_new_partition_is_led_by_its_first_replica_that_is_not_fenced(cluster: Cluster) -> None:
    cluster.silence(1)
    cluster.create("orders", 1, 2, 3)
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2, 3]"


def test_internal_topics_have_three_replicas_and_wait_for_as_many_brokers_as_are_expected() -> None:
    cluster = Cluster(settings=type(SETTINGS)(brokers_expected=3))
    cluster.start(1, 2)
    topic = CreateTopics([NewTopic("__consumer_offsets", 2)])
    assert cluster.decide(topic)[0].error == ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.start(3, 4)
    assert cluster.decide(topic)[0].replication_factor == 3
    assert cluster.decide(CreateTopics([NewTopic("orders")]))[0].replication_factor == 1


def test_internal_topics_of_a_single_broker_have_one_replica() -> None:
    cluster = Cluster()
    cluster.start(1)
    assert cluster.decide(CreateTopics([NewTopic("__consumer_offsets")]))[0].replication_factor == 1


# --- eligible leader replicas ---


def test_while_enough_are_in_sync_nobody_else_is_eligible(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="2")
    cluster.silence(3)
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1, 2]"


def test_who_leaves_when_too_few_are_in_sync_stays_eligible(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="2")
    cluster.silence(3)
    cluster.silence(2, 3)
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1], eligible [2]"
    cluster.silence(1, 2, 3)
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [1, 2]"
    assert cluster.partition("orders").last_known_elr == [1]


def test_an_eligible_replica_leads_when_nobody_is_in_sync(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="2")
    cluster.silence(3)
    cluster.silence(2, 3)
    cluster.silence(1, 2, 3)
    cluster.heartbeat(3)
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [1, 2]", "3 lacks records"
    cluster.heartbeat(2)
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2], eligible [1]"
    assert cluster.partition("orders").last_known_elr == []
    assert cluster.partition("orders").leader_recovery_state == 0


def test_when_enough_are_in_sync_again_the_eligible_are_forgotten(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="2")
    cluster.silence(3)
    cluster.silence(2, 3)
    cluster.heartbeat(3)
    assert cluster.alter("orders", 1, 3).error == ErrorCode.NONE
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1, 3]"


def test_an_eligible_leader_that_is_enough_by_itself_is_the_only_one_eligible(cluster: Cluster) -> None:
    """What it acknowledges alone the others lack."""
    cluster.create("orders", 1, 2, 3, min_insync_replicas="1")
    cluster.silence(1, 2, 3)
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [1, 2, 3]"
    cluster.heartbeat(2)
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2]"


def test_brokers_that_fall_silent_together_are_equally_eligible(cluster: Cluster) -> None:
    """Nothing was acknowledged by one without the other, even where one would have been enough."""
    cluster.create("orders", 1, 2, min_insync_replicas="1")
    cluster.silence(1, 2)
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [1, 2]"


def test_lowering_min_in_sync_ends_eligibility_in_the_same_step(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="2")
    cluster.create("others", 1, 2, 3)
    configure(cluster, "", "min.insync.replicas", "3", resource_type=4)
    cluster.silence(2, 3)
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1], eligible [2, 3]"
    assert shape(cluster.partition("others")) == "leader 1, in sync [1], eligible [2, 3]"
    configure(cluster, "orders", "min.insync.replicas", "1")
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1]"
    assert shape(cluster.partition("others")) == "leader 1, in sync [1], eligible [2, 3]"
    configure(cluster, "", "min.insync.replicas", "1", resource_type=4)
    assert shape(cluster.partition("others")) == "leader 1, in sync [1]"


# --- unclean stops ---


def test_one_broker_alone_cannot_be_told_how_many_must_be_in_sync(cluster: Cluster) -> None:
    """It would acknowledge what the controller's eligible leaders lack."""
    alone = ConfigChange(ResourceType.BROKER, "1", [("min.insync.replicas", AlterOp.SET, "1")])
    [reply] = cluster.decide(IncrementalAlterConfigs([alone]))
    assert reply.error is ErrorCode.INVALID_CONFIG
    replaced = ConfigReplacement(ResourceType.BROKER, "1", [("min.insync.replicas", "1")])
    [reply] = cluster.decide(AlterConfigs([replaced]))
    assert reply.error is ErrorCode.INVALID_CONFIG
    configure(cluster, "", "min.insync.replicas", "2", resource_type=ResourceType.BROKER)


def test_after_an_unclean_stop_a_broker_is_neither_in_sync_nor_eligible(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="2")
    cluster.silence(2, 3)
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1], eligible [2, 3]"
    cluster.start(2)
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1], eligible [3]"
    cluster.now_ms += 1_000
    cluster.register(1)
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [3]"
    cluster.heartbeat(1)
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [3]", "3 may have what 1 lost"
    cluster.heartbeat(3)
    assert shape(cluster.partition("orders")) == "leader 3, in sync [3]"


def test_after_a_clean_stop_a_broker_stays_eligible(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="2")
    cluster.silence(2, 3)
    cluster.start(2, clean=True)
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1], eligible [2, 3]"


def test_when_all_stopped_uncleanly_the_last_leader_leads(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="2")
    cluster.silence(1)
    cluster.silence(1, 2, 3)
    assert cluster.partition("orders").last_known_elr == [2]
    cluster.start(1, 3)
    cluster.register(2)
    assert shape(cluster.partition("orders")) == "no leader, in sync []"
    cluster.heartbeat(2)
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2]"
    assert cluster.partition("orders").leader_recovery_state == 1


def test_a_last_leader_with_a_new_disk_does_not_lead(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    cluster.silence(2, 3)
    cluster.silence(1, 2, 3)
    cluster.register(1, disk=2)
    cluster.heartbeat(1)
    assert shape(cluster.partition("orders")) == "no leader, in sync []"


def test_a_follower_with_a_new_disk_may_lead_once_it_was_in_sync(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2)
    cluster.silence(2)
    cluster.register(2, disk=2)
    cluster.heartbeat(2)
    assert cluster.alter("orders", 1, 2).error == ErrorCode.NONE
    cluster.silence(1)
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2]"


# --- unclean elections ---


def test_a_replica_that_lacks_records_leads_only_where_that_is_allowed(cluster: Cluster) -> None:
    cluster.create("strict", 1, 2)
    cluster.create("lenient", 1, 2, unclean_leader_election_enable="true")
    for name in ("strict", "lenient"):
        assert cluster.alter(name, 1).error == ErrorCode.NONE
    cluster.silence(1)
    assert shape(cluster.partition("strict")) == "no leader, in sync [], eligible [1]"
    assert shape(cluster.partition("lenient")) == "leader 2, in sync [2]"
    assert cluster.partition("lenient").leader_recovery_state == 1


def test_allowing_unclean_elections_elects_at_once(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2)
    cluster.alter("orders", 1)
    cluster.silence(1)
    configure(cluster, "orders", "unclean.leader.election.enable", "true")
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2]"


def test_an_operator_may_order_an_unclean_election_of_what_has_no_leader(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2)
    cluster.create("fine", 2, 3)
    cluster.alter("orders", 1)
    cluster.silence(1)
    order = ElectLeaders(ElectionType.UNCLEAN, [("orders", [0, 7]), ("fine", [0]), ("nowhere", [0])])
    codes = [(name, [each.error.name for each in elected]) for name, elected in cluster.decide(order)]
    assert codes == [
        ("orders", ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]),
        ("fine", ["ELECTION_NOT_NEEDED"]),
        ("nowhere", ["UNKNOWN_TOPIC_OR_PARTITION"]),
    ]
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2]"


def test_without_any_live_replica_even_an_unclean_election_finds_nobody(cluster: Cluster) -> None:
    cluster.create("orders", 1)
    cluster.silence(1)
    [(_, [elected])] = cluster.decide(ElectLeaders(ElectionType.UNCLEAN, [("orders", [0])]))
    assert elected.error == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


# --- preferred leaders ---


def moved(cluster: Cluster) -> None:
    """Led by 2 though 1 is preferred and in sync again."""
    cluster.create("orders", 1, 2, 3)
    cluster.silence(1)
    cluster.heartbeat(1)
    assert cluster.alter("orders", 1, 2, 3).error == ErrorCode.NONE
    assert shape(cluster.partition("orders")) == "leader 2, in sync [1, 2, 3]"


def test_leadership_goes_back_to_the_preferred_replica_when_an_operator_asks(cluster: Cluster) -> None:
    moved(cluster)
    cluster.create("fine", 2, 3)
    everything = [("orders", [0]), ("fine", [0]), ("gone", [0])]
    elected = cluster.decide(ElectLeaders(ElectionType.PREFERRED, everything, everything=True))
    assert elected == [("orders", [LeaderElected(0)]), ("fine", []), ("gone", [])]
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1, 2, 3]"


def test_a_preferred_replica_that_is_not_in_sync_does_not_lead(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    cluster.silence(1)
    cluster.heartbeat(1)
    [(_, [elected])] = cluster.decide(ElectLeaders(ElectionType.PREFERRED, [("orders", [0])]))
    assert elected.error == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert cluster.last == []


def test_leadership_goes_back_by_itself_after_a_while(cluster: Cluster) -> None:
    moved(cluster)
    cluster.now_ms = 59_999
    for broker_id in (1, 2, 3):
        cluster.heartbeat(broker_id)
    assert cluster.controller.deadline_ms == 60_000
    assert cluster.controller.due(59_999) == []
    assert cluster.controller.due(60_000) == [BalanceLeaders()]
    cluster.now_ms = 60_000
    cluster.do_what_is_due()
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1, 2, 3]"


def test_there_are_two_kinds_of_election(cluster: Cluster) -> None:
    with pytest.raises(InvalidRequest):
        cluster.decide(ElectLeaders(2, []))


# --- AlterPartition ---


def test_a_leader_says_who_is_in_sync(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    shrunk = cluster.alter("orders", 1, 3)
    assert (shrunk.error, shrunk.isr, shrunk.partition_epoch, shrunk.leader_epoch) == (ErrorCode.NONE, [1, 3], 1, 0)
    grown = cluster.alter("orders", 1, 2, 3)
    assert (grown.isr, grown.partition_epoch, grown.leader) == ([1, 2, 3], 2, 1)
    cluster.alter("orders", 3, 2, 1)
    assert cluster.last == [], "the same set"


@pytest.mark.parametrize(
    ("isr", "epochs", "expected"),
    [
        ([1, 2], {"leader_epoch": -1}, "FENCED_LEADER_EPOCH"),
        ([1, 2], {"leader_epoch": 1}, "NOT_CONTROLLER"),
        ([1, 2], {"partition_epoch": 1}, "NOT_CONTROLLER"),
        ([1, 2], {"partition_epoch": -1}, "INVALID_UPDATE_VERSION"),
        ([1, 2], {"by": 2}, "INVALID_REQUEST"),
        ([3], {}, "INVALID_REQUEST"),
        ([2], {"leader_epoch": -1}, "FENCED_LEADER_EPOCH"),
        ([2], {"partition_epoch": -1}, "INVALID_UPDATE_VERSION"),
        ([], {"by": 2}, "INVALID_REQUEST"),
        ([1, 2], {"by": 4}, "INVALID_REQUEST"),
        ([1, 1, 2], {}, "INVALID_REQUEST"),
        ([1, 4], {}, "INVALID_REQUEST"),
        ([1, 2], {"recovering": 1}, "INVALID_REQUEST"),
        ([1], {"recovering": 1}, "INVALID_REQUEST"),
    ],
)
def test_an_order_that_is_stale_or_makes_no_sense_is_refused(
    cluster: Cluster, isr: list[int], epochs: dict[str, int], expected: str
) -> None:
    cluster.start(4)
    cluster.create("orders", 1, 2, 3)
    cluster.alter("orders", 1, 2)
    before = cluster.partition("orders").partition_epoch
    assert cluster.alter("orders", *isr, **epochs).error.name == expected  # type: ignore[arg-type]
    assert cluster.partition("orders").partition_epoch == before


def test_a_stale_broker_orders_nothing(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    topic_id = cluster.controller.image.topics["orders"].id
    order = PartitionAlteration(0, 0, 0, [(1, -1)])
    with pytest.raises(StaleBrokerEpoch):
        cluster.decide(AlterPartition(1, cluster.epochs[1] - 1, [(topic_id, [order])]))


def test_unknown_topics_and_partitions_are_told_one_by_one(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    topic_id = cluster.controller.image.topics["orders"].id
    there, nowhere = PartitionAlteration(0, 0, 0, [(1, -1)]), PartitionAlteration(5, 0, 0, [(1, -1)])
    order = AlterPartition(1, cluster.epochs[1], [(b"?" * 16, [there]), (topic_id, [nowhere, there, there])])
    codes = [[each.error.name for each in altered] for _, altered in cluster.decide(order)]
    assert codes == [["UNKNOWN_TOPIC_ID"], ["UNKNOWN_TOPIC_OR_PARTITION", "NONE", "INVALID_UPDATE_VERSION"]]


def test_an_earlier_run_of_a_broker_is_not_in_sync(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    old = cluster.epochs[2]
    cluster.silence(2)
    cluster.start(2)
    new, cluster.epochs[2] = cluster.epochs[2], old
    assert cluster.alter("orders", 1, 2, 3).error == ErrorCode.INELIGIBLE_REPLICA
    cluster.epochs[2] = new
    assert cluster.alter("orders", 1, 2, 3).error == ErrorCode.NONE


def test_an_order_that_was_refused_for_its_replica_is_not_obeyed_later(cluster: Cluster) -> None:
    """A copy of it may be late; by then the leader no longer waits for that replica."""
    cluster.create("orders", 1, 2, 3)
    cluster.silence(2)
    assert cluster.alter("orders", 1, 2, 3).error == ErrorCode.INELIGIBLE_REPLICA
    cluster.heartbeat(2)
    assert cluster.alter("orders", 1, 2, 3, partition_epoch=-1).error == ErrorCode.INVALID_UPDATE_VERSION


def test_a_leader_that_recovers_has_to_say_so_before_others_join(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, unclean_leader_election_enable="true")
    cluster.alter("orders", 1)
    cluster.silence(1)
    cluster.heartbeat(1)
    assert cluster.alter("orders", 1, 2, recovering=True).error == ErrorCode.INVALID_REQUEST
    assert cluster.alter("orders", 1, 2).error == ErrorCode.NONE
    assert cluster.partition("orders").leader_recovery_state == 0


# --- damaged copies ---


def test_a_leader_whose_copy_is_damaged_hands_over_and_is_not_eligible(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="3")
    epoch = cluster.partition("orders").leader_epoch
    assert cluster.alter("orders", 2, 3).error == ErrorCode.NEW_LEADER_ELECTED
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2, 3]", "1 left when too few were in sync"
    assert cluster.partition("orders").leader_epoch == epoch + 1
    cluster.silence(2, 3)
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [2, 3]"


def test_it_leads_again_when_it_is_in_sync_again(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    cluster.alter("orders", 2, 3)
    assert cluster.alter("orders", 1, 2, 3).error == ErrorCode.NONE
    cluster.decide(ElectLeaders(ElectionType.PREFERRED, [("orders", [0])]))
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1, 2, 3]"


def test_the_last_one_in_sync_keeps_its_place_though_its_copy_is_damaged(cluster: Cluster) -> None:
    """What the others lack may have been acknowledged."""
    cluster.create("orders", 1, 2, 3)
    cluster.alter("orders", 1)
    before = cluster.partition("orders").partition_epoch
    assert cluster.alter("orders").error == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1]"
    assert cluster.partition("orders").partition_epoch == before


def test_unless_the_topic_may_lose_records(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    cluster.alter("orders", 1)
    configure(cluster, "orders", "unclean.leader.election.enable", "true")
    assert cluster.alter("orders").error == ErrorCode.NEW_LEADER_ELECTED
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2]"
    assert cluster.partition("orders").leader_recovery_state == 1


def test_an_eligible_replica_takes_over_from_the_last_one_in_sync(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="2")
    cluster.silence(2)
    cluster.silence(2, 3)
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1], eligible [3]"
    cluster.heartbeat(2)
    assert cluster.alter("orders").error == ErrorCode.NEW_LEADER_ELECTED
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [3]", "2 lacks records"
    cluster.heartbeat(3)
    assert shape(cluster.partition("orders")) == "leader 3, in sync [3]"


def test_a_follower_gives_up_its_damaged_copy_and_the_leader_leads_on_in_a_new_epoch(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="3")
    epoch = cluster.partition("orders").leader_epoch
    altered = cluster.alter("orders", 1, 3, by=2)
    assert (altered.error, altered.leader, altered.isr) == (ErrorCode.NONE, 1, [1, 3])
    assert altered.leader_epoch == cluster.partition("orders").leader_epoch == epoch + 1
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1, 3]"


def test_an_eligible_replica_gives_up_its_damaged_copy_before_it_is_unfenced(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, min_insync_replicas="2")
    cluster.silence(2)
    cluster.silence(2, 3)
    cluster.register(3, clean=True)
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1], eligible [3]"
    assert cluster.alter("orders", 1, by=3).error == ErrorCode.NONE
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1]"


def test_a_leader_takes_nobody_in_for_a_copy_that_was_given_up(cluster: Cluster) -> None:
    """It saw that 3 had everything, and 3 found its copy damaged before that was said."""
    cluster.create("orders", 1, 2, 3)
    cluster.alter("orders", 1, 2)
    assert cluster.alter("orders", 1, 2, by=3).error == ErrorCode.NONE
    assert cluster.alter("orders", 1, 2, 3, leader_epoch=-1, partition_epoch=-1).error == ErrorCode.FENCED_LEADER_EPOCH
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1, 2]"


def test_the_only_eligible_replica_keeps_its_place_though_its_copy_is_damaged(cluster: Cluster) -> None:
    """Not even the last known leader takes over: it stopped uncleanly, and this copy may yet be repaired."""
    cluster.create("orders", 1, 2, min_insync_replicas="2")
    cluster.silence(2)
    cluster.silence(1, 2)
    cluster.start(1)
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [2]"
    cluster.register(2, clean=True)
    assert cluster.alter("orders", by=2).error == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [2]"


# --- copies that nobody can read ---


def assign(cluster: Cluster, broker_id: int, directory: bytes, topic: str = "orders") -> ErrorCode:
    topic_id = cluster.controller.image.topics[topic].id
    order = AssignDirectories(broker_id, cluster.epochs[broker_id], [(directory, [(topic_id, [0])])])
    [(_, [(_, [assigned])])] = cluster.decide(order)
    return ErrorCode(assigned.error)


def own_directory(cluster: Cluster, broker_id: int) -> bytes:
    return bytes(cluster.controller.image.brokers[broker_id].log_dirs[0])


def test_a_lost_copy_is_given_up_and_not_elected_even_uncleanly_until_it_is_in_sync(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3, unclean_leader_election_enable="true")
    assert assign(cluster, 1, LOST_DIRECTORY) == ErrorCode.NONE
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2, 3]"
    cluster.silence(2, 3)
    assert cluster.partition("orders").leader == -1, "1 is up, and its copy cannot be read"
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    assert cluster.alter("orders", 1, 2, 3).error == ErrorCode.NONE
    cluster.silence(2, 3)
    assert cluster.partition("orders").leader == 1


def test_the_last_copy_that_had_everything_is_lost_and_an_operator_elects_a_sound_one(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    cluster.alter("orders", 1)
    assert assign(cluster, 1, LOST_DIRECTORY) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [1]"
    before = cluster.partition("orders").partition_epoch
    assert assign(cluster, 1, LOST_DIRECTORY) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert cluster.partition("orders").partition_epoch == before, "asked again, it changes nothing"
    cluster.decide(ElectLeaders(ElectionType.UNCLEAN, [("orders", [0])]))
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2]", "1 comes first, and cannot be read"


def test_the_last_copy_that_had_everything_leads_again_when_it_was_repaired(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    cluster.alter("orders", 1)
    assign(cluster, 1, LOST_DIRECTORY)
    assert assign(cluster, 1, own_directory(cluster, 1)) == ErrorCode.NONE
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1]"


def test_only_a_replica_says_where_its_copy_is_and_only_of_its_own_directories(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2)
    assert assign(cluster, 3, LOST_DIRECTORY) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(cluster, 1, own_directory(cluster, 2)) == ErrorCode.INVALID_REQUEST
    with pytest.raises(StaleBrokerEpoch):
        cluster.decide(AssignDirectories(1, cluster.epochs[1] - 1, []))
    unknown = AssignDirectories(1, cluster.epochs[1], [(LOST_DIRECTORY, [(b"?" * 16, [0])])])
    [(_, [(_, [assigned])])] = cluster.decide(unknown)
    assert assigned.error == ErrorCode.UNKNOWN_TOPIC_ID
