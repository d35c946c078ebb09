"""UpdateFeatures (key 57), v0–v2: operators change the levels of features, all that a request names or none.

Served by the controller. `validate_only` checks and changes nothing. A refusal is INVALID_UPDATE_VERSION, with what is
wrong about the first feature that is. v0 has no types of upgrade: `allow_downgrade` counts as a safe downgrade where
the level is lower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, ProtocolError
from skidway.metadata.operations import FeatureUpdate, UpdateFeatures, UpgradeType, sentence
from skidway.wire.schema.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

UPDATES_MAX = 100
"""Far more than there are features."""
TYPES_SINCE = 1
RESULTS_LAST = 1


def handle(node: Services, call: Call, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse | None:
    if len(request.feature_updates) > UPDATES_MAX:
        message = f"{len(request.feature_updates)} features in one request: there must be {UPDATES_MAX} at most"
        return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
    # Who names a feature twice means the last of them.
    updates = {asked.feature: _update(node, asked, call.version) for asked in request.feature_updates}

    def answer(reply: ProtocolError | None) -> None:
        if isinstance(reply, ProtocolError):
            message = f"{sentence(reply)}; no level was changed"
            call.reply(UpdateFeaturesResponse(error_code=reply.code, error_message=message))
        else:
            names = updates if call.version <= RESULTS_LAST else ()
            call.reply(UpdateFeaturesResponse(results=[UpdatableFeatureResult(name) for name in names]))

    node.controller.carry_out(UpdateFeatures([*updates.values()], request.validate_only), call.now_ms, answer)
    return None


def _update(node: Services, asked: FeatureUpdateKey, version: int) -> FeatureUpdate:
    name, level = asked.feature, asked.max_version_level
    if version < TYPES_SINCE:
        lowers = asked.allow_downgrade and level < node.image.features.get(name, 0)
        return FeatureUpdate(name, level, UpgradeType.SAFE_DOWNGRADE if lowers else UpgradeType.UPGRADE)
    try:
        return FeatureUpdate(name, level, UpgradeType(asked.upgrade_type))
    except ValueError:
        return FeatureUpdate(name, level, UpgradeType.UNKNOWN)
