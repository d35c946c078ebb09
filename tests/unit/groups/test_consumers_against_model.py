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
