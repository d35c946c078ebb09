"""A share coordinator against a naive model, by hypothesis; and the merging of batches by itself."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import run_state_machine_as_test
from share_states_against_model import BATCHES, ShareStatesAgainstModel, cells_of

from skidway.shares.coordinator.batches import StateBatch, merged


def test_every_answer_and_every_state_is_the_models() -> None:
    run_state_machine_as_test(ShareStatesAgainstModel, settings=settings(max_examples=100, stateful_step_count=40))


@pytest.mark.chaos
def test_every_answer_and_every_state_is_the_models_for_long() -> None:
    run_state_machine_as_test(ShareStatesAgainstModel, settings=settings(max_examples=5_000, stateful_step_count=80))


@settings(max_examples=300)
@given(st.lists(BATCHES, max_size=4), st.integers(-1, 16))
def test_merging_is_the_same_as_offset_by_offset(written: list[list[StateBatch]], start_offset: int) -> None:
    stored: list[StateBatch] = []
    cells: dict[int, tuple[int, int]] = {}
    for batches in written:
        before = list(stored)
        stored, untouched = merged(stored, batches, start_offset), stored
        assert untouched == before, "what is stored is not changed"
        for batch in batches:
            for offset in range(max(batch.first, start_offset), batch.last + 1):
                cells[offset] = max(cells.get(offset, (0, 0)), (batch.delivery_count, batch.state))
    assert cells_of(stored) == cells
