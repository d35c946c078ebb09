"""A coordinator of schedules against a naive account of it, by hypothesis."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from schedules_against_model import SchedulesAgainstModel


def test_whatever_is_scheduled_comes_once_and_in_time() -> None:
    run_state_machine_as_test(SchedulesAgainstModel, settings=settings(max_examples=60, stateful_step_count=40))


@pytest.mark.chaos
def test_whatever_is_scheduled_comes_once_and_in_time_for_long() -> None:
    run_state_machine_as_test(SchedulesAgainstModel, settings=settings(max_examples=5_000, stateful_step_count=80))
