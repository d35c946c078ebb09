"""States, counts and delays of offsets in chunks, against dictionaries; counts far beyond a byte."""

from itertools import pairwise
from random import Random

import pytest

from skidway.shares import cells
from skidway.shares.acquiring import Offered, Span, Wanted
from skidway.shares.cells import Cells
from skidway.shares.delays import Delays
from skidway.shares.delivery import Delivery
from skidway.shares.records import StateBatch, Stored
from skidway.shares.states import ARCHIVED, COUNT_MAX, NO_LIMIT, DeliveryRules


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "CHUNK", 8)


@pytest.mark.parametrize("seed", range(20))
def test_cells_are_what_was_written(seed: int) -> None:
    random = Random(seed)
    kept, naive = Cells(), [(0, 0)] * 60
    for _ in range(200):
        first = random.randrange(60)
        end = random.randint(first + 1, 60)
        state, count = random.randrange(7), random.choice([0, 1, 254, 255, 256, 257, 512, 1_000, COUNT_MAX])
        if random.random() < 0.5:
            kept.set_state(first, end, state)
            naive[first:end] = [(state, each[1]) for each in naive[first:end]]
        else:
            kept.set_count(first, end, count)
            naive[first:end] = [(each[0], count) for each in naive[first:end]]
        spelt = [(run.state, run.count) for run in kept.runs(0, 60) for _ in range(run.first, run.end)]
        assert spelt == naive
        runs = list(kept.runs(0, 60))
        assert all((a.state, a.count) != (b.state, b.count) for a, b in pairwise(runs))
        assert [(kept.state_at(at), kept.count_at(at)) for at in range(60)] == naive


@pytest.mark.parametrize("seed", range(20))
def test_delays_end_when_they_are_due(seed: int) -> None:
    random = Random(seed)
    delays, naive, now_ms = Delays(), dict[int, int](), 0
    for _ in range(300):
        now_ms += random.choice([0, 1, 400, 1_000, 5_000])
        first = random.randrange(40)
        end = random.randint(first + 1, 40)
        if random.random() < 0.6:
            until_ms = now_ms + random.choice([1, 600, 1_000, 2_000, 90_000])
            delays.add(until_ms, first, end)
            naive |= dict.fromkeys(range(first, end), until_ms)
        elif random.random() < 0.3:
            delays.drop(first, end)
            naive = {at: due for at, due in naive.items() if not first <= at < end}
        due = {at for at, until_ms in naive.items() if until_ms <= now_ms}
        if due:
            assert delays.deadline_ms is not None
            assert delays.deadline_ms <= now_ms, "a timer wakes nobody"
        taken = [at for begin, stop in delays.take_due(now_ms) for at in range(begin, stop)]
        assert taken == sorted(due)
        naive = {at: until_ms for at, until_ms in naive.items() if at not in due}
        assert delays.offsets == len(naive)
        assert all(delays.due_at(at) == naive.get(at, 0) for at in range(40))


def test_a_record_may_be_delivered_a_thousand_times() -> None:
    delivery = Delivery(Stored(0, 0), DeliveryRules(10, 1_000, isolates=False))
    counts = []
    for now_ms in range(0, 20_000, 10):
        delivery.on_time(now_ms)
        counts += [each.count for each in delivery.acquire("ann", Offered(0, [Span(0, 1)]), Wanted(1), now_ms)]
    assert counts == list(range(1, 1_001))
    update = delivery.next_write(20_000, 20_000)
    assert update is not None
    assert (update.start_offset, update.batches) == (1, [])


def test_without_a_limit_the_number_of_a_delivery_stops_rising() -> None:
    stored = Stored(0, 0, [StateBatch(0, 1, 0, COUNT_MAX - 1)])
    delivery = Delivery(stored, DeliveryRules(10, NO_LIMIT))
    for now_ms in (0, 10, 20):
        delivery.on_time(now_ms)
        (taken,) = delivery.acquire("ann", Offered(0, [Span(0, 1)]), Wanted(1), now_ms)
        assert taken.count == COUNT_MAX
    assert delivery.live.state_at(0) != ARCHIVED
