"""The checks find what they are for: histories that are wrong, and replicas that differ."""

import re
from collections.abc import Callable

import pytest
from cluster_history import History, _disorder, _missing, _strange
from loaded import loaded
from replica_files import assert_replicas_equal

from skidway.testing import Cluster

PLACE = ("t", 0)
FINE = {0: b"w:1:", 1: b"w:2:", 2: b"w:3:"}


def problems(found: dict[int, bytes]) -> str:
    all_of_them = [*_strange(PLACE, found, set(FINE.values())), *_missing(PLACE, found, FINE, {1: b"w:2:"})]
    return "; ".join([*all_of_them, *_disorder(PLACE, found)])


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (FINE, "^$"),
        ({0: b"w:1:", 1: b"w:2:"}, "w:3:', acknowledged at 2, is lost; there is nothing$"),
        ({0: b"w:1:", 1: b"w:3:"}, "w:2:', acknowledged at 1, is lost.*w:2:' was read at 1, where b'w:3:' is now"),
        ({**FINE, 3: b"w:2:"}, "is there twice, at 1 and 3.*has 2 at 3, after 3"),
        ({0: b"w:2:", 1: b"w:1:", 2: b"w:3:"}, "w:1:', acknowledged at 0, is elsewhere.*has 1 at 1, after 2"),
        ({**FINE, 3: b"x:1:"}, "x:1:' at 3 was never sent"),
    ],
)
def test_what_can_be_wrong_with_a_history_is_named(found: dict[int, bytes], what: str) -> None:
    assert re.search(what, problems(found)), problems(found)


def test_two_messages_at_one_offset() -> None:
    history = History()
    history.acknowledge(PLACE, 1, b"one")
    history.acknowledge(PLACE, 1, b"other")
    assert history.wrong


def test_a_message_without_a_value_is_wrong_at_once() -> None:
    """Also if it is gone when everything is read once more."""
    history = History()
    history.see(PLACE, 1, b"one")
    assert not history.wrong
    history.see(PLACE, 2, None)
    assert history.wrong


def flip(data: bytearray) -> None:
    data[-3] ^= 1


def cut(data: bytearray) -> None:
    del data[-70:]


@pytest.mark.parametrize("damage", [flip, cut])
def test_a_replica_that_differs_is_found(cluster: Cluster, topic: str, damage: Callable[[bytearray], None]) -> None:
    """Behind the back of a follower, which looks at what it has written only when it is asked for it."""
    with loaded(cluster, topic, partitions=1) as load:
        follower = cluster.followers_of(topic)[0]
    segment = sorted((cluster[follower].data_dir / f"{topic}-0").glob("*.log"))[0]
    good = segment.read_bytes()
    bad = bytearray(good)
    damage(bad)
    segment.write_bytes(bad)
    with pytest.raises(AssertionError, match=f"{topic}-0"):
        assert_replicas_equal(cluster, load.places)
    segment.write_bytes(good)
    assert_replicas_equal(cluster, load.places)
