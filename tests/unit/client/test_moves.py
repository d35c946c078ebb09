"""Where replicas go: little moves, racks and leads stay even, and what is impossible is said."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skidway.blocking_client.moves import NotEnoughBrokers, PartitionKey, Place, spread


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
    assert sorted(leads(after).values()) == [1, 1, 2, 2]  # by the order of replicas alone


def test_fewer_replicas_drop_the_last_ones() -> None:
    assert spread({("t", 0): [3, 1, 2]}, places(1, 2, 3), replication=1) == {("t", 0): [3]}


def test_racks_come_before_load() -> None:
    racks = [Place(1, "a"), Place(2, "a"), Place(3, "b"), Place(4, "b")]
    elsewhere = {("other", index): [3, 4] for index in range(5)}
    changes = spread({("t", 0): [1]}, racks, replication=2, elsewhere=elsewhere)
    assert changes == {("t", 0): [1, 3]}


def test_too_few_brokers_are_named() -> None:
    with pytest.raises(
        NotEnoughBrokers, match="t partition 0 needs a broker for each of its 3 replicas, and there are 2"
    ):
        spread({("t", 0): [1, 2, 3]}, places(1, 2))


def difference(counts: Counter[int], brokers: set[int]) -> int:
    """Between the broker that has most and the one that has least."""
    found = [counts[broker] for broker in brokers]
    return max(found) - min(found)


def moved(before: dict[PartitionKey, list[int]], after: dict[PartitionKey, list[int]]) -> int:
    return sum(len(set(after[key]) - set(before[key])) for key in before)


def test_a_new_broker_gets_its_share() -> None:
    before = even(6, 3, 3)
    after = {**before, **spread(before, places(1, 2, 3, 4), even=True)}
    assert sorted(load(after).values()) == [4, 4, 5, 5]
    assert moved(before, after) == 4
    assert sorted(leads(after).values()) == [1, 1, 2, 2]
    assert spread(after, places(1, 2, 3, 4), even=True) == {}


def test_leads_are_even_after_a_drain() -> None:
    before = even(6, 4, 3)
    here = {key: replicas for key, replicas in before.items() if 4 in replicas}
    elsewhere = {key: replicas for key, replicas in before.items() if key not in here}
    after = {**before, **spread(here, places(1, 2, 3), elsewhere=elsewhere)}
    assert load(after) == {1: 6, 2: 6, 3: 6}
    assert leads(after) == {1: 2, 2: 2, 3: 2}


def test_who_leads_is_evened_out_where_nothing_moves() -> None:
    before = {("t", index): replicas for index, replicas in enumerate([[1, 2, 3]] * 6)}
    after = {**before, **spread(before, places(1, 2, 3))}
    assert leads(after) == {1: 2, 2: 2, 3: 2}
    assert moved(before, after) == 0


def test_leads_go_the_long_way_where_there_is_no_short_one() -> None:
    before = {("t", 0): [1, 2], ("t", 1): [1, 2], ("t", 2): [2, 3]}
    assert spread(before, places(1, 2, 3)) == {("t", 0): [2, 1], ("t", 2): [3, 2]}


def test_other_topics_are_left_alone() -> None:
    elsewhere = {("other", index): [1, 2] for index in range(8)}
    assert {topic for topic, _ in spread(even(6, 3, 2), places(1, 2, 3, 4), elsewhere=elsewhere, even=True)} == {"t"}


def test_a_replaced_replica_leaves_its_position_to_the_new_one() -> None:
    assert spread({("t", 0): [1, 4, 2]}, places(1, 2, 3)) == {("t", 0): [1, 3, 2]}


def test_evening_out_keeps_racks_apart() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    before = {("t", index): [1, 3] for index in range(8)}
    after = {**before, **spread(before, [Place(each, rack) for each, rack in racks.items()], even=True)}
    assert load(after) == {1: 4, 2: 4, 3: 4, 4: 4}
    assert all(len({racks[broker] for broker in replicas}) == 2 for replicas in after.values())
    assert moved(before, after) == 8
    assert leads(after) == {1: 2, 2: 2, 3: 2, 4: 2}


def test_a_lonely_rack_has_more_than_its_share() -> None:
    lonely = [Place(1, "a"), Place(2, "b"), Place(3, "b")]
    before = {("t", index): [1, 2] for index in range(6)}
    after = {**before, **spread(before, lonely, even=True)}
    assert load(after) == {1: 6, 2: 3, 3: 3}


@given(
    st.lists(st.permutations([1, 2, 3, 4, 5]).map(lambda order: order[:3]), min_size=1, max_size=30),
    st.sets(st.integers(1, 7), min_size=3, max_size=7),
)
def test_without_racks_all_is_even_and_little_moves(assignment: list[list[int]], allowed: set[int]) -> None:
    before = {("t", index): replicas for index, replicas in enumerate(assignment)}
    after = {**before, **spread(before, places(*sorted(allowed)), even=True)}
    assert difference(load(after), allowed) <= 1
    assert spread(after, places(*sorted(allowed)), even=True) == {}
    for replicas in after.values():
        assert len(replicas) == len(set(replicas)) == 3
        assert set(replicas) <= allowed
    # A broker must lose what is more than its share; the largest have the larger shares.
    share, larger = divmod(3 * len(before), len(allowed))
    held = sorted((load(before)[broker] for broker in allowed), reverse=True)
    lost = sum(max(0, count - share - (rank < larger)) for rank, count in enumerate(held))
    away = sum(broker not in allowed for replicas in before.values() for broker in replicas)
    # A replica that must leave its broker may push out another one.
    assert lost + away <= moved(before, after) <= lost + 2 * away
    assert difference(leads(after), allowed) <= 1


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
