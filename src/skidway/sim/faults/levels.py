"""An administrator who sets the cluster's `transaction.version`: before clients begin, and while they are at work."""

from __future__ import annotations

from random import Random

from skidway.metadata.features import TRANSACTIONS, TRANSACTIONS_NEWEST
from skidway.sim.workload import Admin
from skidway.wire.schema.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

RETRY_MS = 100
UPGRADE, SAFE_DOWNGRADE = 1, 2
LOWER = [0, 1]


class Levels:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.level = TRANSACTIONS_NEWEST
        """The last that was set and acknowledged."""

    def raise_level(self, random: Random) -> None:
        self.ask_for(TRANSACTIONS_NEWEST)

    def lower_level(self, random: Random) -> None:
        self.ask_for(random.choice(LOWER))

    def ask_for(self, level: int) -> None:
        """Until it is so."""
        kind = UPGRADE if level >= self.level else SAFE_DOWNGRADE
        update = FeatureUpdateKey(TRANSACTIONS, level, upgrade_type=kind)

        def answered(reply: UpdateFeaturesResponse | None) -> None:
            if reply is None or reply.error_code:
                self._admin.after(RETRY_MS, lambda: self.ask_for(level))
            else:
                self.level = level
                self._admin.say(f"{TRANSACTIONS} is {level}")

        self._admin.ask(-1, UpdateFeaturesRequest(timeout_ms=3_000, feature_updates=[update]), answered)
