"""Committed offsets against a naive model, by hypothesis."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from offsets_against_model import OffsetsAgainstModel
from transactions_of_offsets_against_model import TransactionsOfOffsetsAgainstModel


def test_every_offset_is_the_models_and_none_acknowledged_is_lost() -> None:
    run_state_machine_as_test(OffsetsAgainstModel, settings=settings(max_examples=60, stateful_step_count=40))


@pytest.mark.chaos
def test_every_offset_is_the_models_and_none_acknowledged_is_lost_for_long() -> None:
    run_state_machine_as_test(OffsetsAgainstModel, settings=settings(max_examples=3_000, stateful_step_count=80))


def test_offsets_of_transactions_count_when_the_model_says_so() -> None:
    run_state_machine_as_test(
        TransactionsOfOffsetsAgainstModel, settings=settings(max_examples=60, stateful_step_count=40)
    )


@pytest.mark.chaos
def test_offsets_of_transactions_count_when_the_model_says_so_for_long() -> None:
    run_state_machine_as_test(
        TransactionsOfOffsetsAgainstModel, settings=settings(max_examples=3_000, stateful_step_count=80)
    )
