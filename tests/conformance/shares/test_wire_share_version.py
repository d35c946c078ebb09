"""The feature `share.version`: at level 0 share groups are off; on again, they go on with what is not settled."""

from collections.abc import Iterator

import pytest
from raw import Connection
from raw_batches import build
from share_calls import (
    ACCEPT,
    NONE,
    SHARE_SESSION_NOT_FOUND,
    Place,
    ShareMember,
    ShareReader,
    alter_starts,
    delete_starts,
    describe,
    starts,
)
from wire_calls import produce

from waiting import eventually

UNSUPPORTED_VERSION = 35
UPGRADE, SAFE_DOWNGRADE = 1, 2
SHARE_APIS = {76, 77, 78, 79, 90, 91, 92}


def level(wire: Connection) -> int:
    body = {"client_software_name": "tests", "client_software_version": "1"}
    said = wire.call("ApiVersions", 4, body)["finalized_features"]
    return next((int(one["max_version_level"]) for one in said if one["name"] == "share.version"), 0)


def turn(wire: Connection, wanted: int) -> None:
    """And wait until this broker knows."""
    kind = UPGRADE if wanted > level(wire) else SAFE_DOWNGRADE
    change = {"feature": "share.version", "max_version_level": wanted, "upgrade_type": kind}
    answer = wire.call("UpdateFeatures", 2, {"feature_updates": [change], "timeout_ms": 10_000})
    assert answer["error_code"] == NONE, answer
    eventually(lambda: level(wire) == wanted)


@pytest.fixture
def back(wire: Connection) -> Iterator[int]:
    """The level that other tests count on; a level of 0 does not outlive the test."""
    newest = level(wire)
    assert newest > 0
    yield newest
    if level(wire) != newest:
        turn(wire, newest)


def test_share_groups_are_turned_off_and_on(
    wire: Connection, topic: str, at: Place, reader: ShareReader, back: int
) -> None:
    produce(wire, topic, build([b"a", b"b", b"c"]))
    reader.until(lambda got: got.offsets == [0, 1, 2])
    assert reader.ack((0, 0, [ACCEPT])) == NONE
    turn(wire, 0)
    listed = {one["api_key"] for one in wire.call("ApiVersions", 0, {})["api_keys"]}
    assert listed >= SHARE_APIS, "they are listed whatever the level is"
    assert reader.try_fetch()["error_code"] == UNSUPPORTED_VERSION
    assert reader.acknowledge({at: [(1, 1, [ACCEPT])]})["error_code"] == UNSUPPORTED_VERSION
    assert ShareMember(wire, reader.group, [topic]).join()["error_code"] == UNSUPPORTED_VERSION
    assert describe(wire, reader.group)["error_code"] == UNSUPPORTED_VERSION
    assert starts(wire, reader.group, None)["error_code"] == UNSUPPORTED_VERSION
    assert alter_starts(wire, reader.group, topic, {0: 0})["error_code"] == UNSUPPORTED_VERSION
    assert delete_starts(wire, reader.group, topic)["error_code"] == UNSUPPORTED_VERSION
    turn(wire, back)
    assert reader.try_fetch(epoch=2)["error_code"] == SHARE_SESSION_NOT_FOUND
    again = ShareReader(wire, reader.group, at)
    assert again.until(lambda got: got.offsets).offsets == [1, 2]
