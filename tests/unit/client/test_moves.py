"""Where replicas go: little moves, racks and leads stay even, and what is impossible is said."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skidway.client.moves import NotEnoughBrokers, PartitionKey, Place, spread


def places(*ids: int) -> list[Place]:
    return [Place(each) for each in ids]


def even(count: int, brokers: int, replication: int) -> dict[PartitionKey, list[int]]:
    """Partitions of one topic, striped over brokers 1 to `brokers`."""
    return {("t", index): [(index + step) % brokers + 1 for step in range(replication)] for index in range(count)}


def load(assignment: dict[PartitionKey, list[int]]) -> Counter[int]:
    return Counter(broker for replicas in assignment.values() for broker in replicas)


def leads(assignment: dict[PartitionKey, list[int]]) -> Counter[int]:
    return Counter(replicas[0] for replicas in assignment.values())


def test_what_lies_well_stays() -> None:
    assert spread(even(6, 3, 2), places(1, 2, 3)) == {}


def test_a_broker_is_drained() -> None:
    before = even(12, 4, 2)
    changes = spread(before, places(1, 2, 4))
    assert set(changes) == {key for key, replicas in before.items() if 3 in replicas}
    after = {**before, **changes}
    assert 3 not in load(after)
    assert max(load(after).values()) - min(load(after).values()) <= 1
    assert max(leads(after).values()) - min(leads(after).values()) <= 1
    for key, replicas in changes.items():
        assert len(set(replicas) & set(before[key])) == 1  # the other replica did not move
        if before[key][0] != 3:
            assert replicas[0] == before[key][0]  # nor did a lead that could stay


def test_more_replicas_go_where_there_are_fewest() -> None:
    before = {("t", index): [1] for index in range(6)}
    after = spread(before, places(1, 2, 3, 4), replication=2)
    assert load(after) == {1: 6, 2: 2, 3: 2, 4: 2}
    assert leads(after) == {1: 6}


def test_fewer_replicas_drop_the_last_ones() -> None:
    assert spread({("t", 0): [3, 1, 2]}, places(1, 2, 3), replication=1) == {("t", 0): [3]}


def test_racks_come_before_load() -> None:
    racks = [Place(1, "a"), Place(2, "a"), Place(3, "b"), Place(4, "b")]
    elsewhere = {("other", index): [3, 4] for index in range(5)}
    changes = spread({("t", 0): [1]}, racks, replication=2, elsewhere=elsewhere)
    assert changes == {("t", 0): [1, 3]}


def test_too_few_brokers_are_named() -> None:
    with pytest.raises(NotEnoughBrokers, match="t partition 0 needs 3 brokers for its replicas, and there are 2"):
        spread({("t", 0): [1, 2, 3]}, places(1, 2))


@given(
    st.lists(st.permutations([1, 2, 3, 4, 5]).map(lambda order: order[:3]), min_size=1, max_size=30),
    st.sets(st.integers(1, 7), min_size=3, max_size=7),
    st.integers(1, 3),
)
def test_every_plan_is_one_that_can_be_carried_out(
    assignment: list[list[int]], allowed: set[int], replication: int
) -> None:
    before = {("t", index): replicas for index, replicas in enumerate(assignment)}
    changes = spread(before, places(*sorted(allowed)), replication)
    assert spread({**before, **changes}, places(*sorted(allowed)), replication) == {}
    for key, replicas in {**before, **changes}.items():
        assert len(replicas) == len(set(replicas)) == replication
        assert set(replicas) <= allowed
        kept = [broker for broker in before[key] if broker in allowed][:replication]
        assert set(kept) <= set(replicas)
