"""A log on a disk that forgets: whatever is done to it and wherever power is lost, what was promised is there.

Hypothesis draws and shrinks the list of steps (see `log_world.World`).
"""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_world import TOPIC, World

from skidway.log.durability import checkpointing
from skidway.sim.world.disk import Crashed

STEPS = st.lists(st.tuples(st.integers(0, len(World.STEPS) - 1), st.integers(0, 2**16)), min_size=1, max_size=60)


@settings(max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 50), steps=STEPS)
def test_nothing_promised_is_lost(seed: int, steps: list[tuple[int, int]]) -> None:
    World(seed).play(steps)


@pytest.mark.parametrize("seed", range(120))
def test_long_histories(seed: int) -> None:
    draw = random.Random(seed)
    steps = [(draw.randrange(len(World.STEPS)), draw.randrange(2**32)) for _ in range(150)]
    World(seed).play(steps)


def test_recovery_may_be_interrupted_anywhere() -> None:
    """A torn batch right behind the proven part: however recovery is cut short, the log ends there."""
    for stop in range(1, 14):
        for seed in range(12):
            world = World(0)
            world.settings.segment_bytes = 700
            draw = random.Random(seed)
            world.append(draw)
            world.roll(draw)
            ticket = checkpointing.begin(world.log)
            assert ticket is not None
            ticket.run()
            world.log.finish_sync(ticket)
            while len(world.log.segments) < 3:
                world.append(draw)
            end_offset, dropped = (segment.base_offset for segment in world.log.segments[1:])
            ticket = world.log.begin_sync()
            assert ticket is not None
            ticket.run()
            world.disk.corrupt(f"{TOPIC}-0/{end_offset:020d}.log", 70)
            world.disk.crash_at = world.disk.operations + stop
            try:
                world.reopen()
            except Crashed:
                world.disk.crash(draw)
                world.reopen()
            world.disk.crash_at = None
            assert world.log.end_offset == end_offset
            world.check()
            # New batches up to where a dropped segment began: it must not come back as their continuation.
            while world.log.end_offset < dropped:
                world.append(draw, 1)
            world.crash(draw)


def test_a_sync_that_follows_a_failed_one_proves_nothing() -> None:
    """The kernel takes the pages of a failed sync for clean. A checkpoint that was begun beside it must not vouch."""
    world = World(0)
    draw = random.Random(0)
    world.append(draw)
    first, second = world.log.begin_sync(), checkpointing.begin(world.log)
    assert first is not None
    assert second is not None
    world.disk.failing_syncs = {world.disk.syncs}
    with pytest.raises(OSError, match="Input/output"):
        first.run()
    world.disk.failing_syncs = None
    with pytest.raises(OSError, match="has failed"):
        second.run()
    assert not second.synced
    world.disk.crash(draw)
    world.reopen()
    assert not world.log.quarantined
