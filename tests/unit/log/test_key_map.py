"""The map of keys: both shapes say the same, and the large one keeps to its memory."""

import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from skidway.log.compaction.key_map import KeyMap, LargeMap, SmallMap, keys_within, make_map


@pytest.mark.parametrize("make", [SmallMap, lambda: LargeMap(3000)])
def test_the_last_number_of_each_key_is_known(make: Callable[[], SmallMap | LargeMap]) -> None:
    draw = random.Random(1)
    keys = [draw.randbytes(draw.choice([0, 1, 5, 15, 16, 17, 47, 48, 49, 300])) for _ in range(2000)]
    mapping: KeyMap = make()
    told: dict[bytes, int] = {}
    for number in range(5000):
        key = draw.choice(keys)
        assert mapping.put(key, number) == told.get(key, -1)
        told[key] = number
    assert len(mapping) == len(told)
    assert all((key in mapping) == (key in told) for key in keys)
    assert b"never put" not in mapping


def test_a_table_that_is_almost_full_still_finds_everything() -> None:
    mapping = LargeMap(100)
    for number in range(99):
        mapping.put(b"%d" % number, number)
    assert [b"%d" % number in mapping for number in range(100)] == [True] * 99 + [False]
    assert [mapping.put(b"%d" % number, 7) for number in range(99)] == [*range(99)]
    with pytest.raises(AssertionError):
        mapping.put(b"one too many", 1)


def test_the_shape_follows_the_size() -> None:
    assert isinstance(make_map(1000), SmallMap)
    assert isinstance(make_map(600_000), LargeMap)
    assert keys_within(512 << 20) > 16_000_000


def test_memory_stays_within_its_bound() -> None:
    """600,000 keys of 20 bytes, in a process of its own; 10 million are for `bench.compaction`."""
    script = """
import resource
from skidway.log.compaction.key_map import make_map
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
mapping = make_map(600_000)
for number in range(600_000):
    mapping.put(b"customer-%011d" % number, number)
assert mapping.put(b"customer-%011d" % 77, 78) == 77
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 600_000)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(told.stdout) < 50, "bytes a key"
