"""No request holds the event loop for long: the worst legal request of every API, beside a client that asks little."""

import pytest
from bench.worst_requests import worst_requests
from counted_turns import SCALE, TURN_CALLS_MAX, Turns

from skidway.broker.api.table import SERVED
from skidway.limits import DEFAULT_LIMITS

PARTITIONS = 50


@pytest.fixture(scope="module")
def turns() -> Turns:
    return Turns(PARTITIONS)


@pytest.mark.parametrize("key", SERVED)
def test_no_turn_is_long_whatever_is_asked(turns: Turns, key: int) -> None:
    good = turns.world.peer()
    elements = (SERVED[key].elements_max or DEFAULT_LIMITS.request_elements_max) // SCALE
    for worst in worst_requests(turns.what, elements, key):
        turns.longest = 0
        turns.serve(worst, good)
        assert turns.longest < TURN_CALLS_MAX, worst.name
