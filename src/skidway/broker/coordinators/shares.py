"""Share-partitions as a kind of coordinator: the third, in `__share_group_state`.

What a decision wants done elsewhere is that the log is cut: records that no state is made of any more go.
"""

from __future__ import annotations

from skidway.broker.coordinators.host import Coordinator, CoordinatorKind, Coordinators, Surroundings
from skidway.groups.placement import partition_of
from skidway.log import retention
from skidway.log.health import SOUND
from skidway.shares.coordinator import keys
from skidway.shares.coordinator.machine import ShareCoordinator, Topics
from skidway.shares.coordinator.operations import Prune, Tick, TopicsChanged
from skidway.shares.coordinator.records import FORMAT, ShareRecord
from skidway.shares.coordinator.settings import ShareCoordinatorSettings

SHARES_TOPIC = "__share_group_state"
KEY_TYPE = 2
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
"""A snapshot is one record, with 20 bytes for each batch (`ShareCoordinatorSettings.batches_max`)."""

ShareCoordinators = Coordinators[ShareCoordinator, ShareRecord]


def share_coordinators(surroundings: Surroundings, topics: Topics) -> ShareCoordinators:
    settings = surroundings.world.settings.shares
    kind = CoordinatorKind(
        key_type=KEY_TYPE,
        noun="share-partitions",
        topic=SHARES_TOPIC,
        topic_partitions=settings.state_partitions,
        topic_configs=topic_configs(settings),
        format=FORMAT,
        place=partition_of,
        new_machine=lambda: ShareCoordinator(settings, topics),
        tick=Tick,
        topics_changed=TopicsChanged,
        perform=_prune,
        check_key=keys.check,
    )
    coordinators: ShareCoordinators = Coordinators(surroundings, kind)
    return coordinators


def topic_configs(settings: ShareCoordinatorSettings) -> list[tuple[str, str | None]]:
    return [
        ("cleanup.policy", "delete"),
        ("compression.type", "uncompressed"),
        ("max.message.bytes", str(MESSAGE_BYTES_MAX)),
        ("min.insync.replicas", str(settings.state_in_sync_min)),
        ("retention.bytes", "-1"),
        ("retention.ms", "-1"),
        ("segment.bytes", str(settings.state_segment_bytes)),
    ]


def _prune(coordinator: Coordinator[ShareCoordinator, ShareRecord], effect: Prune) -> None:
    """Nobody has to hear of it, nor does it have to last: what comes back after a crash is read and replaced again."""
    log = coordinator.partition.log
    if log.health is SOUND and log.start_offset < effect.offset <= log.high_watermark:
        retention.delete_before(log, effect.offset)
