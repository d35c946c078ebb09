"""A transaction coordinator against a naive model, by hypothesis."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from transactions_against_model import TransactionsAgainstModel


def test_every_answer_every_effect_and_every_state_is_the_models() -> None:
    run_state_machine_as_test(TransactionsAgainstModel, settings=settings(max_examples=100, stateful_step_count=40))


@pytest.mark.chaos
def test_every_answer_every_effect_and_every_state_is_the_models_for_long() -> None:
    run_state_machine_as_test(TransactionsAgainstModel, settings=settings(max_examples=3_000, stateful_step_count=80))
