"""A draft's dict behaves as a copy of the dict would, and leaves the dict alone until it is settled."""

import random
from typing import Any

import pytest

from skidway.groups.overlay import Overlay

KEYS = "abcdefgh"


def change(table: Any, chance: random.Random) -> None:
    key, roll = chance.choice(KEYS), chance.random()
    if roll < 0.45:
        table[key] = chance.random()
    elif roll < 0.65:
        table.pop(key, None)
    elif roll < 0.85:
        if key in table:
            del table[key]
    elif roll < 0.98:
        table.setdefault(key, chance.random())
    else:
        table.clear()


@pytest.mark.parametrize("seed", range(100))
def test_an_overlay_is_a_copy_that_costs_only_its_changes(seed: int) -> None:
    chance = random.Random(seed)
    below = {key: chance.random() for key in chance.sample(KEYS, chance.randrange(len(KEYS)))}
    before = list(below.items())
    copy, overlay = below.copy(), Overlay(below)
    for step in range(30):
        change(copy, random.Random(step * 1000 + seed))
        change(overlay, random.Random(step * 1000 + seed))
        assert list(overlay.items()) == list(copy.items())
        assert list(overlay) == list(copy)
        assert list(overlay.values()) == list(copy.values())
        assert len(overlay) == len(copy)
        assert [overlay.get(key) for key in KEYS] == [copy.get(key) for key in KEYS]
        assert [key in overlay for key in KEYS] == [key in copy for key in KEYS]
        assert [overlay[key] for key in copy] == [copy[key] for key in copy]
        assert list(below.items()) == before
    for key in KEYS:
        if key not in copy:
            with pytest.raises(KeyError):
                overlay[key]
    settled = overlay.settle()
    assert settled is below
    assert settled == copy


def test_what_was_deleted_and_set_again_is_last() -> None:
    overlay = Overlay({"a": 1, "b": 2})
    del overlay["a"]
    overlay["a"] = 3
    assert list(overlay) == ["b", "a"]
    assert list(overlay.settle()) == ["b", "a"]


def test_settling_twice_over_the_same_changes_changes_nothing() -> None:
    """The records of a decision are applied to the group below before its draft settles."""
    below = {"a": 1, "b": 2}
    overlay = Overlay(below)
    del overlay["a"]
    overlay["c"] = 3
    del below["a"]
    below["c"] = 3
    assert overlay.settle() == {"b": 2, "c": 3}
