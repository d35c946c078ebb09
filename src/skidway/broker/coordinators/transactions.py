"""Transactions as a kind of coordinator: the second, in `__transaction_state`.

What a decision wants done elsewhere are markers: `MarkerSender` sends them, and tells the coordinator of each that is
written. `markers` writes those that other nodes send.
"""

from __future__ import annotations

from itertools import count

from skidway.broker.cluster.peers import Peers
from skidway.broker.coordinators.host import CoordinatorKind, Coordinators, Surroundings
from skidway.broker.coordinators.id_reserve import ProducerIdReserve, Take
from skidway.broker.coordinators.marker_sender import Answer, MarkerSender, OneCoordinator
from skidway.broker.coordinators.markers import MarkerWriter
from skidway.broker.partitions.waiting import Waiting
from skidway.errors import ProtocolError, StorageError
from skidway.groups.placement import partition_of
from skidway.transactions.coordinator import TransactionCoordinator
from skidway.transactions.operations import MarkersWritten, Tick, TopicsDeleted
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


class TransactionCoordinators(Coordinators[TransactionCoordinator, TransactionRecord]):
    def __init__(self, surroundings: Surroundings, take_producer_id: Take, peers: Peers, waiting: Waiting) -> None:
        world = surroundings.world
        settings = world.settings.transactions
        self.settings = settings
        self.ids = ProducerIdReserve(take_producer_id, world.clock)
        self.markers = MarkerWriter(surroundings.partitions, waiting.acknowledgements, world.clock)
        self.sender = MarkerSender(
            world, surroundings.image, peers, self.markers, surroundings.later, self._is_current, self._on_written
        )
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
            perform=self.sender.send,
        )
        super().__init__(surroundings, kind)

    def _is_current(self, coordinator: OneCoordinator) -> bool:
        return self.loaded.get(coordinator.partition) is coordinator and not coordinator.host.is_unusable

    def _on_written(self, coordinator: OneCoordinator, written: MarkersWritten, respond: Answer) -> None:
        def answer(reply: ProtocolError | None) -> None:
            respond(reply)
            if isinstance(reply, StorageError):
                self.surroundings.room.on_refused(coordinator.partition, reply)

        self._submit(coordinator, written, self.surroundings.world.clock.monotonic_ms(), answer)
