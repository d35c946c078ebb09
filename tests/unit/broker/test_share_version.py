"""The feature `share.version`: share groups are turned off and on while members are at work."""

from typing import Any

import pytest
from broker_world import World, part
from share_consumers import Member, acquired, initialise, made_world, only, produce

from skidway.broker.api.table import SERVED
from skidway.errors import ErrorCode
from skidway.groups.settings import GroupSettings

ACCEPT = 1
DESCRIBE_SHARE_DELIVERY = 30010
"""Named to our own clients only."""
UPGRADE, DOWNGRADE = 1, 2
UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


@pytest.fixture
def world() -> World:
    world = made_world()
    initialise(world)
    return world


def turn(world: World, level: int, name: str = "share.version") -> None:
    kind = UPGRADE if level else DOWNGRADE
    asked = part("UpdateFeatures", "FeatureUpdateKey", name, level, upgrade_type=kind)
    assert world.peer().call("UpdateFeatures", feature_updates=[asked], version=2).error_code == 0
    world.settle()
    assert world.node.image.features[name] == level


def codes(response: Any) -> list[int]:
    found = [response] if hasattr(response, "error_code") else response.groups
    return [each.error_code for each in found]


def test_every_api_of_share_groups_is_refused_and_listed_all_the_same(world: World) -> None:
    offsets = part("DescribeShareGroupOffsets", "DescribeShareGroupOffsetsRequestGroup", "g")
    requests: dict[str, dict[str, Any]] = {
        "ShareGroupHeartbeat": {"group_id": "g", "member_id": "m"},
        "ShareGroupDescribe": {"group_ids": ["g", "h"]},
        "ShareFetch": {"group_id": "g", "member_id": "m"},
        "ShareAcknowledge": {"group_id": "g", "member_id": "m"},
        "DescribeShareGroupOffsets": {"groups": [offsets, offsets]},
        "AlterShareGroupOffsets": {"group_id": "g"},
        "DeleteShareGroupOffsets": {"group_id": "g"},
        "DescribeShareDelivery": {"group_id": "g"},
    }
    keys = {key for key, row in SERVED.items() if row.of_shares}
    assert len(keys) == len(requests)
    turn(world, 0)
    peer = world.peer()
    for name, fields in requests.items():
        response = peer.call(name, **fields)
        assert set(codes(response)) == {UNSUPPORTED}, name
    described = peer.call("ShareGroupDescribe", group_ids=["g", "h"]).groups
    assert [each.group_id for each in described] == ["g", "h"]
    listed = {each.api_key for each in peer.call("ApiVersions", version=0).api_keys}
    assert keys - listed == {DESCRIBE_SHARE_DELIVERY}, (
        "as in Kafka: nobody has to connect again when the level is raised"
    )
    turn(world, 1)
    for name in ("ShareGroupDescribe", "ShareFetch", "ShareAcknowledge"):
        assert UNSUPPORTED not in codes(peer.call(name, **requests[name])), name


def test_who_waits_is_answered_and_what_was_held_is_delivered_again(world: World) -> None:
    produce(world, 3)
    ann, bob = Member(world, "ann"), Member(world, "bob")
    assert acquired(ann.fetch(0)) == [(0, 2, 1)]
    assert only(ann.acknowledge(0, [(0, 0, [ACCEPT])])).error_code == 0
    bob.fetch_later(0, max_wait_ms=60_000)
    world.settle()
    assert bob.peer.replies() == []
    turn(world, 0)
    assert only(bob.peer.reply()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ann.acknowledge(0, [(1, 1, [ACCEPT])]).error_code == UNSUPPORTED
    fetches = world.node.rooms.services.share_fetches
    assert (fetches.sessions.open, fetches.partitions.count) == ({}, 0)
    turn(world, 1)
    assert ann.acknowledge(0, [(1, 1, [ACCEPT])], epoch=2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    again = bob.fetch(0, epoch=0)
    assert [each[:2] for each in acquired(again)] == [(1, 2)], "all but what was accepted"


def test_another_feature_disturbs_nobody(world: World) -> None:
    produce(world, 2)
    ann = Member(world)
    assert acquired(ann.fetch(0)) == [(0, 1, 1)]
    turn(world, 0, "transaction.version")
    assert only(ann.acknowledge(0, [(0, 1, [ACCEPT])])).error_code == 0


def test_the_number_of_sessions_is_what_the_operator_says() -> None:
    world = made_world(groups=GroupSettings(share_sessions_max=1))
    initialise(world)
    assert Member(world, "ann").fetch(0).error_code == 0
    assert Member(world, "bob").fetch(0).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
