"""Brokers register, are watched, fall silent, come back and shut down."""

from typing import Any

import pytest
from controller_world import Cluster, shape

from skidway.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InvalidRegistration,
    InvalidRequest,
    StaleBrokerEpoch,
)
from skidway.limits import INT64_MAX
from skidway.metadata import brokers
from skidway.metadata.cluster_view import ClusterView
from skidway.metadata.image import Partition, Topic
from skidway.metadata.operations import (
    AllocateProducerIds,
    BrokerHeartbeat,
    FenceSilentBrokers,
    RegisterBroker,
    SuspectBroker,
    UnregisterBroker,
)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    return cluster


def test_a_broker_is_fenced_until_it_has_followed_the_metadata_to_its_registration() -> None:
    cluster = Cluster()
    cluster.register(1)
    behind = cluster.heartbeat(1, offset=cluster.epochs[1] - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    level = cluster.heartbeat(1, offset=cluster.epochs[1])
    assert (level.is_caught_up, level.is_fenced) == (True, False)
    assert cluster.controller.image.brokers[1].active


def test_a_broker_that_wants_to_stay_fenced_does() -> None:
    cluster = Cluster()
    cluster.register(1)
    assert cluster.heartbeat(1, fence=True).is_fenced
    assert cluster.controller.image.brokers[1].fenced


def test_each_run_has_an_epoch_of_its_own_and_the_old_one_is_refused(cluster: Cluster) -> None:
    old = cluster.epochs[1]
    cluster.silence(1)
    cluster.register(1)
    assert cluster.epochs[1] > old
    stale: Any
    for stale in (BrokerHeartbeat(1, old, 100), AllocateProducerIds(1, old), BrokerHeartbeat(9, 1, 100)):
        with pytest.raises(StaleBrokerEpoch):
            cluster.decide(stale)


def test_a_second_broker_with_the_same_id_has_to_wait_until_the_first_is_silent(cluster: Cluster) -> None:
    with pytest.raises(DuplicateBrokerRegistration):
        cluster.register(1)
    cluster.now_ms += 999
    with pytest.raises(DuplicateBrokerRegistration):
        cluster.register(1)
    cluster.now_ms += 1
    cluster.register(1)


def test_the_same_run_that_asks_again_keeps_its_epoch(cluster: Cluster) -> None:
    again = RegisterBroker(1, cluster.controller.image.brokers[1].incarnation_id, [], fenced=True)
    assert cluster.decide(again).epoch == cluster.epochs[1]
    assert cluster.controller.image.brokers[1].active


def test_two_brokers_with_one_directory_are_one_too_many(cluster: Cluster) -> None:
    directory = cluster.controller.image.brokers[1].log_dirs
    for log_dirs in (directory, [bytes(16)], [b"d" * 16, b"d" * 16]):
        with pytest.raises(InvalidRegistration):
            cluster.decide(RegisterBroker(4, b"4" * 16, [], log_dirs=log_dirs, fenced=True))


def test_there_are_only_so_many_brokers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are known come and go as they like; when one is forgotten there is room for another."""
    monkeypatch.setattr(brokers, "BROKERS_MAX", 3)
    with pytest.raises(InvalidRegistration, match="3 brokers already"):
        cluster.register(4)
    cluster.now_ms += 1_000
    cluster.register(3)
    cluster.decide(UnregisterBroker(3))
    cluster.register(4)


def test_a_silent_broker_is_fenced_when_its_session_ends_not_before(cluster: Cluster) -> None:
    cluster.now_ms = 600
    cluster.heartbeat(1)
    cluster.heartbeat(3)
    assert cluster.controller.deadline_ms == 1_000
    cluster.now_ms = 999
    assert cluster.controller.due(999) == []
    cluster.decide(FenceSilentBrokers())
    assert cluster.last == []
    cluster.now_ms = 1_000
    cluster.do_what_is_due()
    assert [broker.id for broker in cluster.controller.image.brokers.values() if broker.fenced] == [2]
    assert cluster.controller.deadline_ms == 1_600


def test_a_controller_that_was_held_up_reads_its_heartbeats_before_it_fences(cluster: Cluster) -> None:
    cluster.now_ms = 5_000
    cluster.do_what_is_due()
    assert all(broker.active for broker in cluster.controller.image.brokers.values())
    assert cluster.controller.deadline_ms == 5_250
    cluster.heartbeat(1)
    cluster.heartbeat(2)
    cluster.now_ms = 8_000
    cluster.do_what_is_due()
    assert [broker.id for broker in cluster.controller.image.brokers.values() if broker.fenced] == [3]


def test_a_broker_whose_connection_closed_has_little_time_to_open_another(cluster: Cluster) -> None:
    cluster.now_ms = 100
    for broker_id in (1, 2, 3):
        cluster.heartbeat(broker_id)
    for broker_id in (1, 2):
        cluster.decide(SuspectBroker(broker_id, cluster.epochs[broker_id]))
    assert cluster.controller.deadline_ms == 350
    cluster.now_ms = 300
    cluster.heartbeat(1)
    cluster.now_ms = 350
    cluster.do_what_is_due()
    assert [broker.id for broker in cluster.controller.image.brokers.values() if broker.fenced] == [2]
    with pytest.raises(StaleBrokerEpoch):
        cluster.decide(SuspectBroker(3, cluster.epochs[3] - 1))


def test_the_controller_before_has_little_time_to_show_that_it_lives_as_a_broker(cluster: Cluster) -> None:
    cluster.elsewhere(predecessor=2)
    assert cluster.controller.deadline_ms == 250
    cluster.now_ms = 250
    cluster.do_what_is_due()
    assert [broker.id for broker in cluster.controller.image.brokers.values() if broker.fenced] == [2]
    cluster.elsewhere(predecessor=3)
    cluster.now_ms = 300
    cluster.heartbeat(3)
    assert cluster.controller.deadline_ms == 250 + 1_000
    cluster.elsewhere(predecessor=4)  # a controller that is no broker


def test_the_only_broker_is_not_watched_after_its_restart() -> None:
    cluster = Cluster()
    cluster.decide(RegisterBroker(1, b"1" * 16, []))
    cluster.elsewhere()
    cluster.decide(RegisterBroker(1, b"2" * 16, []))
    assert cluster.controller.deadline_ms == INT64_MAX


def test_a_suspicion_does_not_lengthen_a_session(cluster: Cluster) -> None:
    cluster.now_ms = 900
    cluster.decide(SuspectBroker(1, cluster.epochs[1]))
    assert cluster.controller.deadline_ms == 1_000


def test_fencing_looks_only_at_what_it_changes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        cluster.create(f"elsewhere-{number}", 2, 3)
    cluster.create("led", 1, 2)
    cluster.create("followed", 2, 1)
    looked_at: list[bytes] = []
    find = ClusterView.find

    def watched(view: ClusterView, key: tuple[bytes, int]) -> tuple[Topic, Partition]:
        looked_at.append(key[0])
        return find(view, key)

    monkeypatch.setattr(ClusterView, "find", watched)
    cluster.silence(1)
    topics = cluster.controller.image.topics
    assert looked_at == [topics["led"].id, topics["followed"].id]


def test_a_new_controller_gives_everybody_a_full_session(cluster: Cluster) -> None:
    cluster.now_ms = 5_000
    cluster.elsewhere()
    assert cluster.controller.deadline_ms == 6_000
    assert cluster.controller.due(5_999) == []


def test_a_quorum_of_one_that_asks_for_no_fence_is_not_watched() -> None:
    cluster = Cluster()
    cluster.decide(RegisterBroker(1, b"1" * 16, []))
    assert cluster.controller.deadline_ms == INT64_MAX
    assert cluster.controller.due(INT64_MAX - 1) == []


def test_a_fenced_broker_leaves_the_in_sync_sets_and_what_it_led_is_led_by_another(cluster: Cluster) -> None:
    cluster.create("led", 1, 2, 3)
    cluster.create("followed", 2, 1, 3)
    cluster.create("elsewhere", 2, 3)
    cluster.silence(1)
    assert shape(cluster.partition("led")) == "leader 2, in sync [2, 3]"
    assert cluster.partition("led").leader_epoch == 1
    assert shape(cluster.partition("followed")) == "leader 2, in sync [2, 3]"
    assert cluster.partition("followed").leader_epoch == 0
    assert cluster.partition("followed").partition_epoch == 1
    assert cluster.partition("elsewhere").partition_epoch == 0


def test_a_broker_that_comes_back_leads_what_nobody_leads(cluster: Cluster) -> None:
    cluster.create("lonely", 1)
    cluster.silence(1)
    assert shape(cluster.partition("lonely")) == "no leader, in sync [], eligible [1]"
    cluster.heartbeat(1)
    assert shape(cluster.partition("lonely")) == "leader 1, in sync [1]"
    assert cluster.partition("lonely").leader_epoch == 2


# --- controlled shutdown ---


def test_a_broker_stops_when_it_leads_nothing_and_everybody_knows(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    before = len(cluster.log) - 1
    first = cluster.heartbeat(1, stop=True)
    assert (first.is_fenced, first.should_shut_down) == (False, False)
    assert cluster.controller.image.brokers[1].in_controlled_shutdown
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2, 3]"
    cluster.heartbeat(2)
    cluster.heartbeat(3, offset=before)
    assert not cluster.heartbeat(1, stop=True).should_shut_down, "3 may still believe that 1 leads"
    cluster.heartbeat(3)
    last = cluster.heartbeat(1, stop=True)
    assert (last.is_fenced, last.should_shut_down) == (True, True)


def test_a_broker_in_controlled_shutdown_cannot_get_in_sync_again(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    cluster.heartbeat(1, stop=True)
    assert cluster.alter("orders", 2, 3, 1).error.name == "INELIGIBLE_REPLICA"


def test_a_broker_without_partitions_stops_at_once(cluster: Cluster) -> None:
    assert cluster.heartbeat(1, stop=True).should_shut_down


def test_a_fenced_broker_stops_at_once(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    cluster.silence(1)
    assert cluster.heartbeat(1, stop=True).should_shut_down


def test_the_last_broker_stops_too_and_leads_again_after_its_start() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.create("orders", 1)
    assert not cluster.heartbeat(1, stop=True).should_shut_down
    assert cluster.heartbeat(1, stop=True).should_shut_down
    assert shape(cluster.partition("orders")) == "no leader, in sync [], eligible [1]"
    cluster.start(1, clean=True)
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1]"


def test_a_shutdown_goes_on_under_another_controller(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    cluster.heartbeat(1, stop=True)
    cluster.elsewhere()
    assert not cluster.heartbeat(1, stop=True).should_shut_down, "it does not know yet what the others know"
    cluster.heartbeat(2)
    assert not cluster.heartbeat(1, stop=True).should_shut_down
    cluster.heartbeat(3)
    assert cluster.heartbeat(1, stop=True).should_shut_down


# --- removal ---


def test_a_broker_that_is_up_is_not_forgotten(cluster: Cluster) -> None:
    """It would be back in a moment, and nothing that only it has would have a leader any more."""
    cluster.create("lonely", 1, min_insync_replicas="1")
    with pytest.raises(InvalidRequest, match="Broker 1 is up; stop it first"):
        cluster.decide(UnregisterBroker(1))
    assert shape(cluster.partition("lonely")) == "leader 1, in sync [1]"


def test_an_unregistered_broker_is_trusted_with_nothing(cluster: Cluster) -> None:
    cluster.create("orders", 1, 2, 3)
    cluster.create("lonely", 1, min_insync_replicas="1")
    cluster.silence(1)
    cluster.decide(UnregisterBroker(1))
    assert shape(cluster.partition("orders")) == "leader 2, in sync [2, 3]"
    assert shape(cluster.partition("lonely")) == "no leader, in sync []"
    with pytest.raises(StaleBrokerEpoch):
        cluster.heartbeat(1)
    with pytest.raises(BrokerIdNotRegistered):
        cluster.decide(UnregisterBroker(1))


def test_the_only_broker_that_was_stopped_and_unregistered_starts_again_and_leads() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.create("orders", 1)
    while not cluster.heartbeat(1, stop=True).should_shut_down:
        pass
    log_dirs = cluster.controller.image.brokers[1].log_dirs
    cluster.decide(UnregisterBroker(1))
    cluster.decide(RegisterBroker(1, b"1" * 16, [], log_dirs=log_dirs))
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1]"
