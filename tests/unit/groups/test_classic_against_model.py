"""The classic protocol against a naive model, by hypothesis."""

import pytest
from classic_against_model import ClassicAgainstModel
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test


def test_every_answer_and_every_state_is_the_models() -> None:
    run_state_machine_as_test(ClassicAgainstModel, settings=settings(max_examples=60, stateful_step_count=40))


@pytest.mark.chaos
def test_every_answer_and_every_state_is_the_models_for_long() -> None:
    run_state_machine_as_test(ClassicAgainstModel, settings=settings(max_examples=3_000, stateful_step_count=80))
