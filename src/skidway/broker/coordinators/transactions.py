"""Transactions as a kind of coordinator: the second, in `__transaction_state`.

What a decision wants done elsewhere are markers: `MarkerSender` sends them, and tells the coordinator of each that is
written. `markers` writes those that other nodes send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count

from skidway.broker.cluster.peers import Peers
from skidway.broker.coordinators.host import CoordinatorKind, Coordinators, Surroundings
from skidway.broker.coordinators.id_reserve import ProducerIdReserve, Take
from skidway.broker.coordinators.marker_sender import Answer, MarkerSender, OneCoordinator
from skidway.broker.coordinators.markers import MarkerWriter
from skidway.broker.coordinators.next_transactions import NextTransactions
from skidway.broker.partitions.waiting import Waiting
from skidway.errors import ProtocolError, StorageError
from skidway.groups.placement import partition_of
from skidway.metadata.features import transaction_version
from skidway.transactions.coordinator import TransactionCoordinator
from skidway.transactions.operations import MarkersWritten, Tick, TopicsDeleted
from skidway.transactions.records import TransactionRecord, format_at
from skidway.transactions.transaction import Ending

TRANSACTIONS_TOPIC = "__transaction_state"
KEY_TYPE = 1
TRANSACTIONS_CONFIGS: list[tuple[str, str | None]] = [
    ("cleanup.policy", "compact"),
    ("compression.type", "uncompressed"),
    ("min.insync.replicas", "2"),
    ("segment.bytes", str(100 * 1024 * 1024)),
    ("unclean.leader.election.enable", "false"),
]


class TransactionUsage:
    """What the transactions of all coordinators of this node take together."""

    __slots__ = ("_coordinators",)

    def __init__(self, coordinators: Callable[[], Iterable[OneCoordinator]]) -> None:
        self._coordinators = coordinators

    @property
    def id_bytes(self) -> int:
        return sum([each.host.machine.footprint.id_bytes for each in self._coordinators()])

    @property
    def place_count(self) -> int:
        return sum([each.host.machine.footprint.place_count for each in self._coordinators()])


class TransactionCoordinators(Coordinators[TransactionCoordinator, TransactionRecord]):
    def __init__(
        self,
        surroundings: Surroundings,
        take_producer_id: Take,
        peers: Peers,
        waiting: Waiting,
        broker_epoch: Callable[[], int],
    ) -> None:
        world = surroundings.world
        settings = world.settings.transactions
        self.settings = settings
        self.ids = ProducerIdReserve(take_producer_id, world.clock)
        self.markers = MarkerWriter(surroundings.partitions, waiting.acknowledgements, world.clock)
        self.sender = MarkerSender(
            world,
            surroundings.image,
            peers,
            self.markers,
            surroundings.later,
            self._on_written,
            broker_epoch,
        )
        numbers = count(1)
        version = partial(transaction_version, surroundings.image)
        usage = TransactionUsage(lambda: self._loaded.values())
        kind = CoordinatorKind(
            key_type=KEY_TYPE,
            noun="transactions",
            topic=TRANSACTIONS_TOPIC,
            topic_partitions=settings.state_partitions,
            topic_configs=TRANSACTIONS_CONFIGS,
            format=format_at(version),
            place=partition_of,
            new_machine=lambda: TransactionCoordinator(settings, self.ids.draw, numbers, version, usage),
            tick=lambda: Tick(world.age_clock.wall_ms()),
            topics_changed=TopicsDeleted,
            perform=self.sender.send,
        )
        super().__init__(surroundings, kind)
        self.next = NextTransactions(world.clock, world.timers, self.submit)

    def _on_written(self, coordinator: OneCoordinator, written: MarkersWritten, respond: Answer) -> None:
        def answer(reply: ProtocolError | None) -> None:
            respond(reply)
            if isinstance(reply, StorageError):
                self.surroundings.room.on_refused(coordinator.partition, reply)

        self._submit(coordinator, written, self.surroundings.world.clock.monotonic_ms(), answer)
        known = coordinator.host.machine.transactions.get(written.transactional_id)
        if known is None or not isinstance(known.state, Ending):
            self.next.on_ended(written.transactional_id)
