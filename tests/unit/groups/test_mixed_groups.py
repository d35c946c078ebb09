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


def test_a_group_that_goes_back_and_forth_remembers_who_still_has_what() -> None:
    """Down to the classic protocol and up again, before a member has given up what it was asked for."""
    story = MixedGroups()
    story.begin("bidirectional", True)
    story.everyone_goes_on("old", 4)
    story.everyone_goes_on("old", 4)
    story.modern_beats(0)
    story.modern_beats(1)
    for _ in range(2):
        # It hears of the rebalance and joins again, with all it has.
        story.old_goes_on(0)
    assert story.old[0].has == {0, 2}
    story.modern_leaves(0, False)
    story.modern_leaves(1, False)
    assert story.kind() == "classic"
    story.modern_beats(0)
    assert story.kind() == "consumer"
    story.all_is_legal()
    story.teardown()


def test_a_coordinator_lost_on_the_way_back_still_gives_everything_to_somebody() -> None:
    """What the last consumer of the new protocol had is not forgotten with the rebalance that was to give it away."""
    story = MixedGroups()
    story.begin("bidirectional", True)
    story.everyone_goes_on("old", 4)
    story.settles("consumer", [story.modern[0], *story.old[:2]])
    story.modern_leaves(0, False)
    story.restart()
    story.settles("classic", story.old[:2])
