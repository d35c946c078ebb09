"""Groups with members of both protocols, by hypothesis: legal after every step, settled when the faults are over."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from mixed_groups import MixedGroups


def test_groups_of_both_protocols_stay_legal_and_settle() -> None:
    run_state_machine_as_test(MixedGroups, settings=settings(max_examples=25, stateful_step_count=30))


@pytest.mark.chaos
def test_groups_of_both_protocols_stay_legal_and_settle_for_long() -> None:
    run_state_machine_as_test(MixedGroups, settings=settings(max_examples=1_000, stateful_step_count=60))
