"""Transactions as a kind of coordinator: the second, in `__transaction_state`.

What a decision wants done elsewhere are markers (`WriteMarkers`).
"""

from __future__ import annotations

from itertools import count

from skidway.broker.coordinators.host import Coordinator, CoordinatorKind, Coordinators, Surroundings
from skidway.broker.coordinators.id_reserve import ProducerIdReserve, Take
from skidway.groups.placement import partition_of
from skidway.transactions.coordinator import TransactionCoordinator
from skidway.transactions.operations import Tick, TopicsDeleted, WriteMarkers
from skidway.transactions.records import FORMAT, TransactionRecord

TRANSACTIONS_TOPIC = "__transaction_state"
KEY_TYPE = 1
TRANSACTIONS_CONFIGS: list[tuple[str, str | None]] = [
    ("cleanup.policy", "compact"),
    ("compression.type", "uncompressed"),
    ("min.insync.replicas", "2"),
    ("segment.bytes", str(100 * 1024 * 1024)),
    ("unclean.leader.election.enable", "false"),
]

OneCoordinator = Coordinator[TransactionCoordinator, TransactionRecord]


class TransactionCoordinators(Coordinators[TransactionCoordinator, TransactionRecord]):
    def __init__(self, surroundings: Surroundings, take_producer_id: Take) -> None:
        world = surroundings.world
        settings = world.settings.transactions
        self.settings = settings
        self.ids = ProducerIdReserve(take_producer_id, world.clock)
        numbers = count(1)
        kind = CoordinatorKind(
            key_type=KEY_TYPE,
            noun="transactions",
            topic=TRANSACTIONS_TOPIC,
            topic_partitions=settings.state_partitions,
            topic_configs=TRANSACTIONS_CONFIGS,
            format=FORMAT,
            place=partition_of,
            new_machine=lambda: TransactionCoordinator(settings, self.ids.draw, numbers),
            tick=lambda: Tick(world.age_clock.wall_ms()),
            topics_changed=TopicsDeleted,
            perform=self._perform_effect,
        )
        super().__init__(surroundings, kind)

    def _perform_effect(self, coordinator: OneCoordinator, effect: WriteMarkers) -> None:
        """Nobody sends markers yet."""
