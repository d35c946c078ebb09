"""The consumer protocol (KIP-848) against a naive model, by hypothesis."""

import pytest
from consumers_against_model import ConsumersAgainstModel
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test


def test_every_heartbeat_is_answered_as_the_model_answers_it() -> None:
    run_state_machine_as_test(ConsumersAgainstModel, settings=settings(max_examples=60, stateful_step_count=40))


@pytest.mark.chaos
def test_every_heartbeat_is_answered_as_the_model_answers_it_for_long() -> None:
    run_state_machine_as_test(ConsumersAgainstModel, settings=settings(max_examples=3_000, stateful_step_count=80))


def test_who_is_away_for_a_while_keeps_its_place_over_a_restart() -> None:
    """Even if it was to give partitions up when it went: nobody waits for that any more."""
    story = ConsumersAgainstModel()
    story.begin(100, ("uniform", "range"))
    static, dynamic = 3, 0
    for client in (static, static, dynamic, static):
        story.beat(client, False)
    story.leave(static, True)
    story.restart()
    story.wait(20_000)
    assert len(story.model.members) == 2
    story.teardown()
