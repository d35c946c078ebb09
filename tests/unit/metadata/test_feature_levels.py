"""Features of the whole cluster: what a new one begins with, who may join, and how levels change."""

from collections.abc import Mapping

import pytest
from controller_world import Cluster
from msgspec.structs import replace

from skidway.errors import InvalidUpdateVersion, UnsupportedVersion
from skidway.metadata.controller import Controller
from skidway.metadata.features import FIRST_LEVELS, SUPPORTED, Range, transaction_version
from skidway.metadata.image import Image
from skidway.metadata.operations import Bootstrap, FeatureUpdate, RegisterBroker, UpdateFeatures, UpgradeType
from skidway.metadata.snapshot import records_of
from skidway.runtime.replicated import Now

METADATA, SHARES, TRANSACTIONS = "metadata.version", "share.version", "transaction.version"
UPGRADE, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
OLD = {METADATA: (7, 25)}
"""What a broker of before there were transactions may say, if it says anything."""


def broker(number: int, features: Mapping[str, Range] = SUPPORTED) -> RegisterBroker:
    operation = RegisterBroker(number, bytes([number]) * 16, [], None, [bytes([number]) * 16], fenced=True)
    return replace(operation, features=features)


def upgraded() -> Cluster:
    """Its log has no record of the feature."""
    cluster = Cluster()
    assert cluster.controller.image.features == {METADATA: 25}
    return cluster


def new() -> Cluster:
    cluster = Cluster()
    cluster.controller = Controller(cluster.random, settings=cluster.settings)
    cluster.log.clear()
    assert cluster.decide(Bootstrap(FIRST_LEVELS)) == FIRST_LEVELS
    return cluster


def levels(cluster: Cluster) -> dict[str, int]:
    return cluster.controller.image.features


def update(cluster: Cluster, *updates: FeatureUpdate, validate_only: bool = False) -> None:
    cluster.decide(UpdateFeatures(list(updates), validate_only))


def test_a_new_cluster_begins_with_the_newest() -> None:
    cluster = new()
    assert levels(cluster) == FIRST_LEVELS
    cluster.decide(Bootstrap(FIRST_LEVELS))
    assert cluster.last == [], "once"


def test_an_older_cluster_gets_a_level_when_the_last_broker_can_do_it() -> None:
    cluster = upgraded()
    cluster.decide(broker(1, {}))
    cluster.decide(broker(2, {}))
    cluster.decide(Bootstrap(FIRST_LEVELS))
    assert transaction_version(cluster.controller.image) == 0, "neither can"
    cluster.decide(replace(broker(1), incarnation_id=b"1" * 16))
    assert transaction_version(cluster.controller.image) == 0, "broker 2 cannot"
    cluster.now_ms += 10_000
    cluster.decide(replace(broker(2), incarnation_id=b"2" * 16))
    assert transaction_version(cluster.controller.image) == 2


def test_an_older_cluster_whose_brokers_all_can_gets_it_from_its_next_controller() -> None:
    cluster = upgraded()
    cluster.controller.image.features[TRANSACTIONS] = 0  # an older controller takes registrations as they come
    cluster.decide(broker(1))
    del cluster.controller.image.features[TRANSACTIONS]
    assert cluster.decide(Bootstrap(FIRST_LEVELS)) == FIRST_LEVELS
    assert transaction_version(cluster.controller.image) == 2


def test_a_broker_that_cannot_do_what_is_in_use_is_not_registered() -> None:
    cluster = new()
    for features in ({}, OLD, {**OLD, TRANSACTIONS: (0, 1)}, {**SUPPORTED, METADATA: (26, 30)}):
        with pytest.raises(UnsupportedVersion):
            cluster.decide(broker(1, features))
    update(cluster, FeatureUpdate(TRANSACTIONS, 0, SAFE))
    with pytest.raises(UnsupportedVersion, match=r"level 2 of share.version is in use"):
        cluster.decide(broker(1, OLD))
    update(cluster, FeatureUpdate(SHARES, 0, SAFE))
    cluster.decide(broker(1, OLD))
    assert list(cluster.controller.image.brokers) == [1]
    assert levels(cluster)[TRANSACTIONS] == 0


def test_levels_go_down_and_up() -> None:
    cluster = new()
    cluster.decide(broker(1))
    for level, kind in ((1, SAFE), (0, UNSAFE), (0, UPGRADE), (1, UPGRADE), (1, SAFE), (2, UPGRADE)):
        update(cluster, FeatureUpdate(TRANSACTIONS, level, kind))
        assert levels(cluster)[TRANSACTIONS] == level
    update(cluster, FeatureUpdate(METADATA, 25), FeatureUpdate(TRANSACTIONS, 2))


def test_what_an_operator_has_lowered_nobody_raises_again() -> None:
    cluster = new()
    cluster.decide(broker(1))
    update(cluster, FeatureUpdate(TRANSACTIONS, 0, SAFE))
    image = Image()
    for record in records_of(cluster.controller.image):
        image.apply(record)
    assert image == cluster.controller.image, "a snapshot says it too"
    successor = Controller(cluster.random, settings=cluster.settings, image=image)
    assert successor.decide(Bootstrap(FIRST_LEVELS), Now(0, 0)).records == []
    again = replace(broker(1), incarnation_id=b"n" * 16)
    successor_records = successor.decide(again, Now(0, 0)).records
    assert [type(record).__name__ for record in successor_records] == ["RegisterBrokerRecord"]


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (
            FeatureUpdate(TRANSACTIONS, 1, UPGRADE),
            "the level is 2, and an upgrade does not lower it",
        ),
        (FeatureUpdate(TRANSACTIONS, 3, UPGRADE), "controller 0 supports levels 0 to 2 only"),
        (FeatureUpdate(TRANSACTIONS, -1, SAFE), "a level cannot be less than 0"),
        (FeatureUpdate(TRANSACTIONS, 1, UpgradeType.UNKNOWN), "the controller does not know this type of upgrade"),
        (FeatureUpdate("group.version", 1), "controller 0 does not support this feature"),
        (FeatureUpdate(METADATA, 24, UNSAFE), "the level is 25, and a downgrade might delete metadata"),
        (FeatureUpdate(METADATA, 26), "controller 0 supports levels 7 to 25 only"),
    ],
    ids=str,
)
def test_a_change_that_cannot_be_is_refused_with_all_others(refused: FeatureUpdate, why: str) -> None:
    cluster = new()
    before = dict(levels(cluster))
    with pytest.raises(InvalidUpdateVersion) as refusal:
        update(cluster, FeatureUpdate(METADATA, 25), refused)
    expected = f"{refused.feature} cannot be at level {refused.level}: {why}"
    assert refusal.value.message == expected
    assert levels(cluster) == before


def test_a_downgrade_raises_nothing() -> None:
    cluster = new()
    update(cluster, FeatureUpdate(TRANSACTIONS, 1, SAFE))
    for kind in (SAFE, UNSAFE):
        with pytest.raises(InvalidUpdateVersion, match="the level is 1, and a downgrade does not raise it"):
            update(cluster, FeatureUpdate(TRANSACTIONS, 2, kind))


def test_one_broker_that_cannot_do_it_is_enough_be_it_gone() -> None:
    cluster = new()
    update(cluster, FeatureUpdate(TRANSACTIONS, 0, SAFE))
    cluster.decide(broker(1))
    cluster.decide(broker(2, {**SUPPORTED, TRANSACTIONS: (0, 1)}))
    cluster.decide(broker(3))
    update(cluster, FeatureUpdate(TRANSACTIONS, 1))
    with pytest.raises(InvalidUpdateVersion, match="broker 2 supports levels 0 to 1 only"):
        update(cluster, FeatureUpdate(TRANSACTIONS, 2))


def test_what_is_only_checked_changes_nothing() -> None:
    cluster = new()
    update(cluster, FeatureUpdate(TRANSACTIONS, 1, SAFE), validate_only=True)
    assert cluster.last == []
    with pytest.raises(InvalidUpdateVersion):
        update(cluster, FeatureUpdate(TRANSACTIONS, 1), validate_only=True)
