"""The map of keys: both shapes say the same, and the large one keeps to its memory."""

import random
import subprocess
import sys

import pytest

from skidway.log.offset_map import LargeMap, OffsetMap, SmallMap, keys_within, make_map


@pytest.mark.parametrize("make", [SmallMap, lambda: LargeMap(3000)])
def test_the_last_offset_of_each_key_is_known(make) -> None:
    draw = random.Random(1)
    keys = [draw.randbytes(draw.choice([0, 1, 5, 15, 16, 17, 300])) for _ in range(2000)]
    mapping: OffsetMap = make()
    told: dict[bytes, int] = {}
    for offset in range(5000):
        key = draw.choice(keys)
        mapping.put(key, offset)
        told[key] = offset
    assert len(mapping) == len(told)
    assert all(mapping.get(key) == told.get(key, -1) for key in keys)
    assert mapping.get(b"never put") == -1


def test_a_table_that_is_almost_full_still_finds_everything() -> None:
    mapping = LargeMap(100)
    for number in range(99):
        mapping.put(b"%d" % number, number)
    assert [mapping.get(b"%d" % number) for number in range(100)] == [*range(99), -1]
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
from skidway.log.offset_map import make_map
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
mapping = make_map(600_000)
for number in range(600_000):
    mapping.put(b"customer-%011d" % number, number)
assert mapping.get(b"customer-%011d" % 77) == 77
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 600_000)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(told.stdout) < 50, "bytes a key"
