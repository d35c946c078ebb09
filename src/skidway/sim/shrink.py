"""A shorter plan that breaks the same law: fewer faults, fewer clients, less time.

Parts are left out as long as the same checker still fires. Streams of randomness belong to purposes, so what stays
behaves much as before; where it does not, the smaller plan passes and the part is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace

from skidway.sim.plan import Plan
from skidway.sim.run import Verdict, run_plan

RUNS_MAX = 200


def shrink(plan: Plan, checker: str, on_try: Callable[[int, Plan], None] = lambda runs, best: None) -> tuple[Plan, int]:
    """The smallest plan found that still fails by `checker`, and how many runs that took."""
    best, runs = plan, 0
    progress = True
    while progress and runs < RUNS_MAX:
        progress = False
        for smaller in _smaller(best):
            runs += 1
            verdict = _try(smaller)
            if verdict.checker == checker:
                best, progress = smaller, True
            on_try(runs, best)
            if progress or runs >= RUNS_MAX:
                break
    return best, runs


def _try(plan: Plan) -> Verdict:
    return run_plan(deepcopy(plan))


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Large steps first: halves of the faults, then single ones, then whole clients, then time."""
    size = len(plan.faults) // 2
    while size >= 1:
        for start in range(0, len(plan.faults), size):
            yield replace(plan, faults=plan.faults[:start] + plan.faults[start + size :])
        size //= 2
    if plan.groups:
        yield replace(plan, groups=[])
    if plan.readers:
        yield replace(plan, readers=plan.readers - 1)
    if len(plan.producers) > 1:
        for number in range(len(plan.producers)):
            yield replace(plan, producers=plan.producers[:number] + plan.producers[number + 1 :])
    last_ms = max((fault.at_ms for fault in plan.faults), default=1_000)
    if plan.seconds > last_ms // 1_000 + 2:
        yield replace(plan, seconds=last_ms // 1_000 + 2)
