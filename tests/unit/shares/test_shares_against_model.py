"""A share-partition against a naive model and the laws, over histories that hypothesis chooses."""

from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from shares_against_model import AgainstModel

from skidway.shares import cells, tenants

SEEDS = st.integers(0, 2**32)


@pytest.fixture(autouse=True, scope="module")
def _small_chunks() -> Iterator[None]:
    """So that most ranges lie in more than one; and few records are many."""
    patch = pytest.MonkeyPatch()
    patch.setattr(cells, "CHUNK", 8)
    for name, number in {"LEAST": 2, "SHARE": 3, "RECENT": 12, "TURNS": 3, "WINDOW": 20}.items():
        patch.setattr(tenants, name, number)
    yield
    patch.undo()


@given(SEEDS)
@settings(max_examples=300)
def test_every_answer_every_write_and_every_state_is_the_models(seed: int) -> None:
    _play(AgainstModel(seed), 60)


@given(SEEDS)
@settings(max_examples=300)
def test_the_same_with_consumers_that_have_receipts(seed: int) -> None:
    _play(AgainstModel(seed, by_receipt=True), 60)


@given(SEEDS)
@settings(max_examples=200)
def test_the_same_with_records_that_say_when_and_in_which_order(seed: int) -> None:
    _play(AgainstModel(seed, by_receipt=seed % 2 == 0, contents=True), 60)


@given(SEEDS)
@settings(max_examples=200)
def test_the_same_with_records_that_say_whose_they_are(seed: int) -> None:
    _play(AgainstModel(seed, by_receipt=seed % 2 == 0, fair=True), 60)


@pytest.mark.chaos
@given(SEEDS)
@settings(max_examples=50_000)
def test_every_answer_every_write_and_every_state_is_the_models_for_long(seed: int) -> None:
    _play(AgainstModel(seed, by_receipt=seed % 2 == 0, contents=seed % 3 == 0, fair=seed % 3 == 1), 120)


def _play(history: AgainstModel, steps: int) -> None:
    try:
        history.run(steps)
    except AssertionError as error:
        error.add_note("\n".join(history.trace))
        raise
