"""The features of a cluster as clients and brokers see them: ApiVersions, UpdateFeatures, registrations."""

from typing import Any

import pytest
from broker_world import Peer, World, part
from nodes_together import made
from transactions_world import ID, Transactions

from skidway.broker.handlers import update_features
from skidway.errors import ErrorCode as E
from skidway.metadata import features
from skidway.metadata.features import METADATA, TRANSACTIONS

UPGRADE, SAFE = 1, 2


def said(peer: Peer, version: int = 4) -> Any:
    return peer.call("ApiVersions", version=version, client_software_name="a", client_software_version="1")


def level(peer: Peer) -> int | None:
    return {each.name: each.max_version_level for each in said(peer).finalized_features}.get(TRANSACTIONS)


def update(peer: Peer, wanted: int, kind: int = UPGRADE, *, name: str = TRANSACTIONS, **fields: Any) -> Any:
    asked = part("UpdateFeatures", "FeatureUpdateKey", name, wanted, upgrade_type=kind)
    return peer.call("UpdateFeatures", feature_updates=[asked], **{"version": 2, **fields})


def test_a_level_outlives_a_restart() -> None:
    world = World()
    peer = world.peer()
    assert level(peer) == 2
    assert update(peer, 1, SAFE).error_code == E.NONE
    epoch = said(peer).finalized_features_epoch
    again = World(world.disk).peer()
    assert level(again) == 1
    assert said(again).finalized_features_epoch >= epoch
    assert update(again, 0, SAFE).error_code == E.NONE
    assert level(World(world.disk).peer()) is None, "nobody raises it"


def test_a_data_directory_of_before_there_was_the_feature_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(features, "SUPPORTED", {})
        before.setattr("skidway.broker.start.SUPPORTED", {})
        before.setattr("skidway.broker.cluster.controller_host.FIRST_LEVELS", {METADATA: 25})
        before.setattr(features, "FIRST_LEVELS", {METADATA: 25})
        before.setattr("skidway.metadata.features.check_registration", lambda image, operation: None)
        world = World()
        assert world.node.image.features == {METADATA: 25}
        assert world.node.image.brokers[1].features == {}
    again = World(world.disk)
    assert again.node.image.features == dict(features.FIRST_LEVELS)
    assert level(again.peer()) == 2


def test_every_node_of_a_cluster_says_what_it_supports_and_hears_of_a_change() -> None:
    cluster = made()
    image = cluster.nodes[1].image
    assert [broker.features for broker in image.brokers.values()] == [dict(features.SUPPORTED)] * 3
    for number in (1, 2, 3):
        wanted, kind = (1, SAFE) if number % 2 else (2, UPGRADE)
        client = cluster.client(number)
        asked = part("UpdateFeatures", "FeatureUpdateKey", TRANSACTIONS, wanted, upgrade_type=kind)
        client.send("UpdateFeatures", feature_updates=[asked], version=2)
        ((_, reply),) = cluster.until(client.replies)
        assert reply.error_code == E.NONE
        cluster.pass_time(1_000)
        levels = {node.image.features[TRANSACTIONS] for node in cluster.nodes.values()}
        assert levels == {wanted}


def test_in_version_0_a_downgrade_is_allowed_or_not() -> None:
    peer = World().peer()

    def ask(wanted: int, *, allow: bool) -> Any:
        asked = part("UpdateFeatures", "FeatureUpdateKey", TRANSACTIONS, wanted, allow_downgrade=allow)
        return peer.call("UpdateFeatures", feature_updates=[asked], version=0)

    assert ask(1, allow=False).error_code == E.INVALID_UPDATE_VERSION
    assert ask(1, allow=True).error_code == E.NONE
    assert level(peer) == 1
    assert ask(2, allow=True).error_code == E.NONE
    assert level(peer) == 2


def test_a_request_with_very_many_features_is_refused() -> None:
    peer = World().peer()
    asked = [part("UpdateFeatures", "FeatureUpdateKey", TRANSACTIONS, 1, upgrade_type=SAFE)]
    refused = peer.call("UpdateFeatures", feature_updates=asked * (update_features.UPDATES_MAX + 1), version=2)
    assert refused.error_code == E.INVALID_REQUEST
    assert refused.error_message == "101 features in one request: there must be 100 at most"
    assert level(peer) == 2
    assert peer.call("UpdateFeatures", feature_updates=asked * update_features.UPDATES_MAX, version=2).error_code == 0
    assert level(peer) == 1, "twice the same is once"


def test_a_long_name_is_not_sent_back_as_a_whole() -> None:
    refused = update(World().peer(), 1, name="x" * 20_000)
    assert refused.error_code == E.INVALID_UPDATE_VERSION
    assert len(refused.error_message) < 1_200


@pytest.mark.parametrize(("at", "version"), [(2, 1), (1, 1), (0, 0)])
def test_the_coordinator_writes_records_as_the_level_says(at: int, version: int) -> None:
    story = Transactions()
    assert update(story.peer, at, SAFE).error_code == E.NONE
    assert story.init().error_code == E.NONE
    (state,) = [each for each in story.world.node.partitions.of_topic("__transaction_state") if each.log.end_offset]
    segment = state.log.segments[-1]
    data = bytes(segment.file.read_at(0, segment.size))
    key = b"\0\0" + len(ID).to_bytes(2, "big") + ID.encode()
    position = data.index(key) + len(key)
    assert data[position + 1 : position + 3] == version.to_bytes(2, "big")
