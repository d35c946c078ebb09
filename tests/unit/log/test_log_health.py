"""A log gets worse by steps, keeps the first reason, and becomes well again in one way only."""

import pytest

from skidway.log.health import SOUND, Health, Quarantined, ReadOnly, begun_anew, failed, quarantined


@pytest.mark.parametrize(
    ("before", "after_failure", "after_damage"),
    [
        (SOUND, ReadOnly("later"), Quarantined("later")),
        (ReadOnly("first"), ReadOnly("first"), Quarantined("first")),
        (Quarantined("first"), Quarantined("first"), Quarantined("first")),
    ],
)
def test_it_never_gets_better_by_a_failure(before: Health, after_failure: Health, after_damage: Health) -> None:
    assert failed(before, "later") == after_failure
    assert quarantined(before, "later") == after_damage


def test_beginning_anew_ends_a_quarantine() -> None:
    assert begun_anew(SOUND) is SOUND
    assert begun_anew(Quarantined("its file is gone")) is SOUND


def test_a_failed_disk_is_not_forgiven() -> None:
    with pytest.raises(AssertionError, match="cannot be replaced"):
        begun_anew(ReadOnly("fsync failed"))
