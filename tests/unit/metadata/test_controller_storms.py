"""Random histories of a cluster, with everything that must hold checked after every decision."""

import pytest
from controller_storm import storm

from skidway.metadata import brokers

SEEDS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_entrusted_to_the_wrong_broker(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 3 == 0:
        # As if there were thousands of partitions: fencing takes more than one decision.
        monkeypatch.setattr(brokers, "CHANGES_MAX", 2)
    storm(seed)
