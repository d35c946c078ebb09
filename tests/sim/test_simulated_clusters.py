"""Whole clusters in the simulator: many seeds, seeds that failed once, and the same trace every time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skidway.sim.run import run_seed

SEEDS = Path(__file__).parent / "seeds.txt"
CHUNK = 3
CHUNKS = 20
"""Seeds cost seconds of CPU time each, and always do the same here; `make chaos` draws others every time."""
REPLAY = "from skidway.sim.run import run_seed; v = run_seed({seed}); print(v.trace_hash, v.events, v.checker)"


def remembered() -> list[tuple[int, int | None, int, str]]:
    """Seed, nodes, with how many of the kinds of faults that came later, and why."""
    lines = [line for line in SEEDS.read_text().splitlines() if line.strip() and not line.startswith("#")]
    parts = [line.split(None, 2) for line in lines]
    nodes_of = {nodes: None if nodes.startswith("-") else int(nodes.rstrip("+")) for _, nodes, _ in parts}
    return [(int(seed), nodes_of[nodes], nodes.count("+"), why) for seed, nodes, why in parts]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_seed_breaks_a_law(chunk: int) -> None:
    verdicts = [run_seed(seed) for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK)]
    assert [f"seed {verdict.seed}: {verdict.checker}: {verdict.text}" for verdict in verdicts if not verdict.ok] == []
    assert sum(verdict.acknowledged for verdict in verdicts) > 300


@pytest.mark.parametrize(("seed", "nodes", "later", "why"), remembered())
def test_a_seed_that_failed_once_passes(seed: int, nodes: int | None, later: int, why: str) -> None:
    verdict = run_seed(seed, nodes=nodes, later=later)
    assert verdict.ok, f"seed {seed} ({why}): {verdict.checker}: {verdict.text}"


@pytest.mark.parametrize("seed", [1, 41])
def test_a_seed_is_the_same_under_any_hash_seed(seed: int) -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", REPLAY.format(seed=seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "999")
    ]
    assert told[0] == told[1]
