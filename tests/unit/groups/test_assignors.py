"""What the assignors promise: everything assigned once, to subscribers only, evenly, and moved as little as needed."""

import random

import pytest

from skidway.groups.consumer.assignors import ASSIGNORS, Candidate, assign_range, assign_uniform
from skidway.groups.consumer.reconciliation import Partitions

T, U, V = (name.ljust(16).encode() for name in "tuv")


def shown(assigned: dict[str, Partitions]) -> dict[str, str]:
    return {
        member_id: " ".join(f"{topic.decode().strip()}{number}" for topic, number in sorted(partitions))
        for member_id, partitions in sorted(assigned.items())
    }


def test_range_gives_the_same_runs_of_each_topic() -> None:
    both = frozenset([T, U])
    candidates = {"b": Candidate(None, both), "a": Candidate(None, both), "c": Candidate("instance", both)}
    assert shown(assign_range(candidates, {T: 5, U: 2})) == {"a": "t2 t3 u1", "b": "t4", "c": "t0 t1 u0"}


def test_uniform_moves_only_what_the_newcomer_needs() -> None:
    topics = frozenset([T])
    first = assign_uniform({"a": Candidate(None, topics), "b": Candidate(None, topics)}, {T: 6})
    assert shown(first) == {"a": "t0 t1 t2", "b": "t3 t4 t5"}
    three = {name: Candidate(None, topics, first.get(name, frozenset())) for name in "abc"}
    assert shown(assign_uniform(three, {T: 6})) == {"a": "t0 t1", "b": "t3 t4", "c": "t2 t5"}


def test_uniform_serves_those_who_want_little_from_what_only_they_want() -> None:
    candidates = {
        "a": Candidate(None, frozenset([T])),
        "b": Candidate(None, frozenset([T, U])),
        "c": Candidate(None, frozenset()),
    }
    assert shown(assign_uniform(candidates, {T: 2, U: 2})) == {"a": "t0 t1", "b": "u0 u1", "c": ""}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@pytest.mark.parametrize("seed", range(30))
def test_every_partition_has_one_owner_who_wants_it(name: str, seed: int) -> None:
    choose = random.Random(seed)
    counts: dict[bytes, int] = {}
    current: dict[str, Partitions] = {}
    for _ in range(8):
        counts |= {topic: counts.get(topic, 0) + choose.randrange(4) for topic in (T, U, V)}
        alike = choose.random() < 0.5
        wanted = [topic for topic in counts if choose.random() < 0.7]
        candidates = {
            f"m{number}": Candidate(
                None,
                frozenset(wanted if alike else [topic for topic in counts if choose.random() < 0.6]),
                current.get(f"m{number}", frozenset()),
            )
            for number in range(9)
            if choose.random() < 0.7
        }
        assigned = ASSIGNORS[name](candidates, counts)
        assert set(assigned) == set(candidates)
        given = [partition for partitions in assigned.values() for partition in partitions]
        subscribed = {topic for candidate in candidates.values() for topic in candidate.topics}
        assert sorted(given) == sorted((topic, number) for topic in subscribed for number in range(counts[topic]))
        for member_id, partitions in assigned.items():
            assert {topic for topic, _ in partitions} <= candidates[member_id].topics
        if name == "uniform":
            check_even(candidates, assigned)
        current = assigned


def check_even(candidates: dict[str, Candidate], assigned: dict[str, Partitions]) -> None:
    """Nobody has two more than another that could take one of them."""
    for rich, partitions in assigned.items():
        for poor in assigned:
            if any(topic in candidates[poor].topics for topic, _ in partitions):
                assert len(assigned[rich]) - len(assigned[poor]) <= 1
