"""All mutants by name, where to look for each, and the seed that finds it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import log_mutants
import quorum_mutants_in_clusters
import replica_mutants

from skidway.sim.plan import draw_plan
from skidway.sim.run import Verdict, run_plan

SECONDS = 6
"""Of faults in a run: mistakes show early or not at all, and many short runs see more than few long ones."""
CRASHES = ["power", "power", "kill", "stop", "op", "bad sync", "full"]
KINDS = {
    True: [*CRASHES, "cut", "reset", "pause"],
    False: [
        *CRASHES,
        "power",
        "kill",
        "two",
        "all",
        "pause",
        "cut",
        "cut",
        "cut one way",
        "cut pair",
        "elect",
        "reassign",
    ],
}
"""Faults, by whether one machine is all there is."""
Mutant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Finding:
    seed: int
    nodes: int | None
    checker: str


def mutants() -> dict[str, Mutant]:
    found: dict[str, Mutant] = {}
    for module in (log_mutants, replica_mutants, quorum_mutants_in_clusters):
        for name, value in vars(module).items():
            if getattr(value, "__wrapped__", None) is not None and value.__module__ == module.__name__:
                assert name not in found, f"two mutants are called {name}"
                found[name] = value
    return found


def run_with(mutant: Mutant, seed: int, nodes: int | None) -> Verdict:
    with mutant():
        return run_plan(draw_plan(seed, nodes=nodes, seconds=SECONDS, kinds=KINDS[nodes == 1]))


def search(mutant: Mutant, seeds: range, nodes: int | None) -> Finding | None:
    for seed in seeds:
        verdict = run_with(mutant, seed, nodes)
        if not verdict.ok:
            return Finding(seed, nodes, verdict.checker)
    return None
