"""Whole clusters in the simulator: many seeds, seeds that failed once, and the same trace every time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skidway.sim.run import run_plan, run_seed
from skidway.sim.share_plan import draw_share_plan
from skidway.sim.transactional_plan import draw_transactional_plan

SEEDS = Path(__file__).parent / "seeds.txt"
COUNT = 18
"""Seeds cost seconds of CPU time each, and always do the same here; `make chaos` draws others every time."""
REPLAY = "from skidway.sim.run import run_seed; v = run_seed({seed}); print(v.trace_hash, v.events, v.checker)"


def kept() -> list[list[str]]:
    """Of each line the seed, what is drawn for it, and why it is kept."""
    lines = [line for line in SEEDS.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [line.split(None, 2) for line in lines]


def remembered() -> list[tuple[int, int | None, int, str]]:
    """Seed, nodes, with how many of the kinds of faults that came later, and why."""
    parts = [part for part in kept() if part[1][0] not in "ts"]
    nodes_of = {nodes: None if nodes.startswith("-") else int(nodes.rstrip("+")) for _, nodes, _ in parts}
    return [(int(seed), nodes_of[nodes], nodes.count("+"), why) for seed, nodes, why in parts]


@pytest.mark.parametrize("seed", range(COUNT))
def test_no_seed_breaks_a_law(seed: int) -> None:
    verdict = run_seed(seed)
    assert verdict.ok, f"seed {seed}: {verdict.checker}: {verdict.text}"
    assert verdict.acknowledged > 0


@pytest.mark.parametrize(("seed", "nodes", "later", "why"), remembered())
def test_a_seed_that_failed_once_passes(seed: int, nodes: int | None, later: int, why: str) -> None:
    verdict = run_seed(seed, nodes=nodes, later=later)
    assert verdict.ok, f"seed {seed} ({why}): {verdict.checker}: {verdict.text}"


@pytest.mark.parametrize(("seed", "drawn", "why"), [part for part in kept() if part[1].startswith("t")])
def test_a_seed_with_transactions_that_failed_once_passes(seed: str, drawn: str, why: str) -> None:
    verdict = run_plan(draw_transactional_plan(int(seed), later=drawn.count("+")))
    assert verdict.ok, f"seed {seed} ({why}): {verdict.checker}: {verdict.text}"


@pytest.mark.parametrize(("seed", "why"), [(part[0], part[2]) for part in kept() if part[1].startswith("s")])
def test_a_seed_with_share_groups_that_failed_once_passes(seed: str, why: str) -> None:
    verdict = run_plan(draw_share_plan(int(seed)))
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
