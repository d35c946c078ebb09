"""Features that a whole cluster has at one level: which there are, and changing a level."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from skidway import __version__
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import check
from skidway.wire.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from skidway.wire.schema.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    level: int
    """In use; 0: not at all."""
    low: int
    """What the broker that was asked supports, from here …"""
    high: int
    """… to here."""


class Change(IntEnum):
    """Kafka's types of upgrade, but for the one that it refuses."""

    UPGRADE = 1
    DOWNGRADE = 2


def describe_features(cluster: Cluster) -> list[Feature]:
    reply = cluster.any_broker().call(ApiVersionsRequest("skidway", __version__), ApiVersionsResponse)
    check(reply.error_code, "describing the features")
    levels = {each.name: each.max_version_level for each in reply.finalized_features}
    supported = sorted(reply.supported_features, key=lambda each: each.name)
    return [Feature(each.name, levels.get(each.name, 0), each.min_version, each.max_version) for each in supported]


def change_features(cluster: Cluster, levels: Mapping[str, int], change: Change, *, dry_run: bool = False) -> None:
    """All of them or none. With `dry_run` it is only checked."""
    updates = [FeatureUpdateKey(name, level, upgrade_type=change) for name, level in levels.items()]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=dry_run)
    reply = cluster.ask_controller(request, UpdateFeaturesResponse)
    named = ", ".join(f"{name} to {level}" for name, level in levels.items())
    check(reply.error_code, f"cannot {change.name.lower()} {named}", reply.error_message)
