"""Features that the whole cluster has at one level (KIP-584): what this version can do, and how a level changes.

A level is a record of the metadata. A new cluster begins with `FIRST_LEVELS`. A cluster of before there was a feature
gets its level as soon as all registered brokers can do it; that happens once. Everything else is up to operators
(UpdateFeatures). A feature whose level is 0 is not in use; the record of that stays, so that nobody raises it again.

A broker that cannot do a level that is in use is not registered, and no level is raised above what a registered broker
can do: those that are gone for good have to be unregistered first.
"""

from collections.abc import Iterable, Mapping

from skidway.errors import InvalidUpdateVersion, UnsupportedVersion
from skidway.metadata.image import Image
from skidway.metadata.operations import (
    METADATA_VERSION,
    Bootstrap,
    FeatureUpdate,
    RegisterBroker,
    UpdateFeatures,
    UpgradeType,
)
from skidway.runtime.replicated import Decision
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import FeatureLevelRecord

METADATA = "metadata.version"
TRANSACTIONS = "transaction.version"
"""0: the original. 1: the records of coordinators can be extended. 2: a producer's epoch grows at every end, and
brokers add partitions to transactions by themselves."""
TRANSACTIONS_NEWEST = 2
SHARES = "share.version"
"""0: no share groups. 1: share groups. 2: with dead letters."""
SHARE_LETTERS = SHARES_NEWEST = 2

Range = tuple[int, int]
"""The lowest and the highest level that somebody can do."""
SUPPORTED: Mapping[str, Range] = {
    METADATA: (7, METADATA_VERSION),
    SHARES: (0, SHARES_NEWEST),
    TRANSACTIONS: (0, TRANSACTIONS_NEWEST),
}
"""By this version."""
FIRST_LEVELS: Mapping[str, int] = {
    METADATA: METADATA_VERSION,
    SHARES: SHARES_NEWEST,
    TRANSACTIONS: TRANSACTIONS_NEWEST,
}
_NOT_IN_USE: Range = (0, 0)
"""Of who does not name a feature."""


def transaction_version(image: Image) -> int:
    return image.features.get(TRANSACTIONS, 0)


def share_version(image: Image) -> int:
    return image.features.get(SHARES, 0)


def decide_bootstrap(image: Image, operation: Bootstrap) -> Decision[Message, Mapping[str, int]]:
    wanted = {name: level for name, level in operation.features.items() if name not in image.features}
    if image.features:
        ranges = [broker.features for broker in image.brokers.values()]
        wanted = {name: level for name, level in wanted.items() if _all_can(ranges, name, level)}
    return Decision(_records(wanted), {**image.features, **wanted})


def levels_with(image: Image, operation: RegisterBroker) -> list[Message]:
    """What is in use for the first time now that this broker comes."""
    others = [broker.features for broker in image.brokers.values() if broker.id != operation.broker_id]
    ranges = [*others, operation.features]
    missing = {name: level for name, level in FIRST_LEVELS.items() if name not in image.features}
    if not image.features:
        return []  # that is not a cluster yet
    return _records({name: level for name, level in missing.items() if _all_can(ranges, name, level)})


def check_registration(image: Image, operation: RegisterBroker) -> None:
    for name, level in image.features.items():
        # Brokers of before there were features said nothing of the metadata, and can do it.
        default = SUPPORTED[METADATA] if name == METADATA else _NOT_IN_USE
        low, high = operation.features.get(name, default)
        if not low <= level <= high:
            raise UnsupportedVersion(
                f"The broker cannot be registered: level {level} of {name} is in use, and it supports {low} to {high}."
            )


def decide_update(image: Image, node_id: int, operation: UpdateFeatures) -> Decision[Message, None]:
    """All of them or none."""
    for update in operation.updates:
        _check_update(image, node_id, update)
    if operation.validate_only:
        return Decision([], None)
    return Decision(_records({update.feature: update.level for update in operation.updates}), None)


def _check_update(image: Image, node_id: int, update: FeatureUpdate) -> None:
    name, level, kind = update.feature, update.level, update.kind
    if kind is UpgradeType.UNKNOWN:
        raise _refusal(update, "the controller does not know this type of upgrade")
    if level < 0:
        raise _refusal(update, "a level cannot be less than 0")
    _check_range(update, f"controller {node_id}", SUPPORTED.get(name, _NOT_IN_USE))
    for broker in image.brokers.values():
        default = SUPPORTED[METADATA] if name == METADATA else _NOT_IN_USE
        _check_range(update, f"broker {broker.id}", broker.features.get(name, default))
    current = image.features.get(name, 0)
    if level < current:
        if kind is UpgradeType.UPGRADE:
            raise _refusal(update, f"the level is {current}, and an upgrade does not lower it")
        if name == METADATA:
            raise _refusal(update, f"the level is {current}, and a downgrade might delete metadata")
    elif level > current and kind is not UpgradeType.UPGRADE:
        raise _refusal(update, f"the level is {current}, and a downgrade does not raise it")


def _check_range(update: FeatureUpdate, who: str, supported: Range) -> None:
    low, high = supported
    if not low <= update.level <= high:
        what = "does not support this feature" if supported == _NOT_IN_USE else f"supports levels {low} to {high} only"
        raise _refusal(update, f"{who} {what}")


def _refusal(update: FeatureUpdate, why: str) -> InvalidUpdateVersion:
    return InvalidUpdateVersion(f"{update.feature} cannot be at level {update.level}: {why}")


def _all_can(ranges: Iterable[Mapping[str, Range]], name: str, level: int) -> bool:
    supported = [each.get(name, _NOT_IN_USE) for each in ranges]
    return bool(supported) and all(low <= level <= high for low, high in supported)


def _records(levels: Mapping[str, int]) -> list[Message]:
    return [FeatureLevelRecord(name, level) for name, level in sorted(levels.items())]
