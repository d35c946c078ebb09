"""Transcripts about replicas, and mistakes of the controller that each of them must not survive."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import controller_mutants as mutants
import pytest
from controller_mutants import Mutant
from replica_transcript import Transcript
from transcripts import replay, scenarios

from skidway.metadata import leadership


@contextmanager
def nobody_balances() -> Iterator[None]:
    """Leaders stay where they are, whoever is preferred."""
    with patch.object(leadership, "balance", lambda view, elections_max: []):
        yield


FOUND: dict[str, list[Mutant]] = {
    "controlled_shutdown": [
        mutants.stops_before_everybody_knows,
        mutants.fenced_get_in_sync,
        mutants.comes_back_and_does_not_lead,
    ],
    "damaged_copies": [
        mutants.damaged_stays_eligible,
        mutants.damaged_and_nobody_else,
        mutants.damaged_is_taken_in,
        mutants.lost_is_forgotten,
        mutants.lost_and_forgotten_who_had_it,
    ],
    "elections": [mutants.leader_changes_within_its_epoch, nobody_balances],
    "eligible_replicas": [
        mutants.eligible_outlive_enough,
        mutants.unclean_stop_stays_eligible,
        mutants.last_leader_before_eligible,
        mutants.settings_not_followed,
    ],
    "fencing": [mutants.two_with_one_id, mutants.fenced_get_in_sync, mutants.refused_orders_are_obeyed_late],
    "in_sync_sets": [
        mutants.partition_epoch_unchecked,
        mutants.leader_epoch_unchecked,
        mutants.old_runs_get_in_sync,
    ],
    "reassignment": [mutants.reassignment_ends_early],
    "reassignment_keeps_the_last_copy": [mutants.cancelled_at_any_price],
    "unclean_elections": [mutants.any_live_replica_leads, mutants.settings_not_followed],
}


@pytest.mark.parametrize("path", scenarios("replicas"), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    replay(path, lambda settings: Transcript())


@pytest.mark.skipif("REWRITE" in os.environ, reason="a mistake must not be written down")
@pytest.mark.parametrize(
    ("name", "mutant"),
    [pytest.param(name, each, id=f"{name}-{each.__name__}") for name, found in FOUND.items() for each in found],
)
def test_a_planted_mistake_is_found(name: str, mutant: Mutant) -> None:
    [path] = [path for path in scenarios("replicas") if path.stem == name]
    with mutant(), pytest.raises(AssertionError):
        replay(path, lambda settings: Transcript())


def test_each_transcript_has_failed() -> None:
    assert FOUND.keys() == {path.stem for path in scenarios("replicas")}
