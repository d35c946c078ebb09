"""Transactions that each come after the other (Adya's G1c).

| law | meaning |
|---|---|
| cycle | what transactions have read of each other, and the order in which they ran, contradict each other |

One comes before another if the other read what it wrote, if one client ran both in this order, or if the other began
after it had ended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True, eq=False)
class Step:
    """One transaction, as far as it matters here."""

    name: str
    client: str
    began_us: int
    ended_us: int | None
    """When its client heard that it was committed; None if it did not."""
    read: list[Step] = field(default_factory=list)
    """Whose values it read."""


def find_cycle(steps: Sequence[Step]) -> list[str]:
    """Names of transactions that no order fits, or of those that depend on them; empty if there is an order.

    Moments in which one has ended are steps, too: a chain through time, so that there are few edges.
    """
    after: dict[object, list[object]] = {}
    moments = sorted({step.ended_us for step in steps if step.ended_us is not None})
    for early, late in pairwise(moments):
        after.setdefault(early, []).append(late)
    last: dict[str, Step] = {}
    for step in sorted(steps, key=lambda each: each.began_us):
        if step.client in last:
            after.setdefault(last[step.client], []).append(step)
        last[step.client] = step
        if step.ended_us is not None:
            after.setdefault(step, []).append(step.ended_us)
        before = _last_below(moments, step.began_us)
        if before is not None:
            after.setdefault(before, []).append(step)
        for other in step.read:
            if other is not step:
                after.setdefault(other, []).append(step)
    return [node.name for node in _left([*steps, *moments], after) if isinstance(node, Step)]


def _last_below(moments: Sequence[int], limit: int) -> int | None:
    number = bisect_left(moments, limit)
    return moments[number - 1] if number else None


def _left(nodes: Iterable[object], after: dict[object, list[object]]) -> list[object]:
    """What is left when everything is taken away that nothing comes before, again and again."""
    counts = dict.fromkeys(nodes, 0)
    for each in after.values():
        for node in each:
            counts[node] += 1
    free = deque(node for node, count in counts.items() if not count)
    while free:
        node = free.popleft()
        del counts[node]
        for other in after.get(node, ()):
            counts[other] -= 1
            if not counts[other]:
                free.append(other)
    return list(counts)
