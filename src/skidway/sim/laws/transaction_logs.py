"""What is committed of transactions, followed in all logs by an all-knowing observer.

Records of `__transaction_state` and batches of partitions are looked at in the order in which leaders call them
committed.

| law | meaning |
|---|---|
| transaction-states | a transactional id changes as it may: its epoch never goes back, what is decided stays decided |
| early-end | a marker ends a transaction whose coordinator has not decided so, or for which that is not committed |
| unknown-writes | a partition has records of a transaction whose coordinator did not know that it takes part |
| producer-epochs | a producer's batch stands behind a marker or a batch of a later epoch |
| transaction-index | the last stable offset or the aborted transactions of a log are not what its batches say |
| stuck-transaction | after the faults a transaction stays open, or the last stable offset stays behind |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from skidway.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from skidway.broker.node import Node
from skidway.broker.partitions.partition import Partition
from skidway.log.bounds import Bound
from skidway.log.log import Log
from skidway.records.batch import BatchHeader, iter_headers
from skidway.records.control import read_marker
from skidway.records.record import read_records
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import Violation, World
from skidway.sim.world.host import Host
from skidway.transactions.records import decode
from skidway.transactions.transaction import Empty, Ended, Ending, Ongoing, Place, State, Transaction

READ_BYTES = 1 << 20
RECORD_BYTES_MAX = 1 << 20
OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(slots=True)
class Replay:
    """One partition, as far as it is committed."""

    end_offset: int = 0
    open: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By producer id: first offset and epoch."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """First offset and producer id."""
    epochs: dict[int, int] = field(default_factory=dict)

    @property
    def last_stable_offset(self) -> int:
        return min([self.end_offset, *(first for first, _ in self.open.values())])


class TransactionLogLaws:
    def __init__(self, world: World, cluster: Cluster, topics: list[str]) -> None:
        self.world = world
        self.cluster = cluster
        self._topics = {TRANSACTIONS_TOPIC, OFFSETS_TOPIC, *topics}
        self.on_decided: Callable[[Transaction], None] = lambda transaction: None
        """Called when it is committed how a transaction ends."""
        self.ids: dict[str, Transaction] = {}
        self._by_producer: dict[int, Transaction] = {}
        self._endings: dict[int, Transaction] = {}
        """The last one of each producer whose end was decided."""
        self._known: set[tuple[int, int, Place]] = set()
        """Producer id, epoch and place of everything that coordinators were told."""
        self._replays: dict[tuple[bytes, int], Replay] = {}

    # --- when to look ---

    def on_step(self, node: Node) -> None:
        """States before data: what a decision causes comes after it."""
        for partition in sorted(
            (each for each in node.partitions if each.topic in self._topics and each.leads),
            key=lambda each: each.topic != TRANSACTIONS_TOPIC,
        ):
            log = partition.log
            if log.failure is None and not log.quarantined:
                self._follow(partition, log)

    def sweep(self) -> None:
        for _, node in self.cluster.running:
            self.on_step(node)

    def _follow(self, partition: Partition, log: Log) -> None:
        replay = self._replays.setdefault((partition.topic_id, partition.index), Replay())
        end_offset = log.high_watermark
        while replay.end_offset < end_offset:
            found = log.read(replay.end_offset, READ_BYTES, Bound.HIGH_WATERMARK)
            stored = b"" if found is None else bytes(found.read())
            before = replay.end_offset
            for at, header in iter_headers(stored):
                if header.base_offset >= replay.end_offset and header.last_offset < end_offset:
                    replay.end_offset = header.last_offset + 1
                    self._take(partition, replay, header, stored[at : at + header.size])
            if replay.end_offset == before:
                return
        if partition.topic != TRANSACTIONS_TOPIC and replay.end_offset == end_offset:
            self._check_stable(f"the leader of {partition}", log, replay)

    def _check_stable(self, who: str, log: Log, replay: Replay) -> None:
        if log.last_stable_offset != max(replay.last_stable_offset, log.start_offset):
            raise Violation(
                "transaction-index",
                f"{who}: the last stable offset is {log.last_stable_offset}, the log says {replay.last_stable_offset} "
                f"(committed {replay.end_offset}, open {replay.open})",
            )

    # --- states ---

    def _take(self, partition: Partition, replay: Replay, header: BatchHeader, batch: bytes) -> None:
        if partition.topic != TRANSACTIONS_TOPIC:
            if header.is_transactional:
                self._take_batch(partition, replay, header, batch)
            return
        if header.is_control:
            return
        for record in read_records(batch, decompressed_bytes_max=RECORD_BYTES_MAX):
            assert record.key is not None
            changed = decode(record.key, record.value)
            if changed is None:
                continue
            if changed.transaction is None:
                self.ids.pop(changed.id, None)
                continue
            self._check_change(self.ids.get(changed.id), changed.transaction)
            self._change(changed.transaction)

    def _change(self, transaction: Transaction) -> None:
        self.ids[transaction.id] = self._by_producer[transaction.producer_id] = transaction
        self.world.say("=", f"{transaction.id} {transaction.producer_id}:{transaction.epoch} {transaction.state}")
        if isinstance(transaction.state, Ongoing):
            self._known.update((transaction.producer_id, transaction.epoch, place) for place in transaction.places)
        if isinstance(transaction.state, Ending):
            self._endings[transaction.producer_id] = transaction
            self.on_decided(transaction)

    def _check_change(self, before: Transaction | None, after: Transaction) -> None:
        if before is None:
            fine = isinstance(after.state, Empty)
        elif after.producer_id == before.producer_id:
            grown = after.epoch - before.epoch
            fine = grown in (0, 1) and _may_follow(before.state, after.state, grown)
        else:
            fine = after.epoch == 0 and isinstance(after.state, Empty | Ended)
        if not fine:
            raise Violation("transaction-states", f"{before} became {after}")

    # --- partitions ---

    def _take_batch(self, partition: Partition, replay: Replay, header: BatchHeader, batch: bytes) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        known_epoch = replay.epochs.get(producer_id, -1)
        marker = read_marker(batch) if header.is_control else None
        opened = replay.open.get(producer_id)
        if epoch < known_epoch:
            raise Violation(
                "producer-epochs",
                f"{partition} at {header.base_offset}: epoch {epoch} of producer {producer_id} behind {known_epoch}",
            )
        replay.epochs[producer_id] = epoch
        if marker is None:
            if opened is None:
                self._check_known(partition, header)
                replay.open[producer_id] = (header.base_offset, epoch)
        elif opened is not None:
            self._check_marker(partition, header, opened[1], committed=marker.committed)
            del replay.open[producer_id]
            if not marker.committed:
                replay.aborted.append((opened[0], producer_id))

    def _check_known(self, partition: Partition, header: BatchHeader) -> None:
        place = (partition.topic, partition.index)
        if (header.producer_id, header.producer_epoch, place) not in self._known:
            raise Violation(
                "unknown-writes",
                f"{partition} at {header.base_offset}: producer {header.producer_id} in epoch {header.producer_epoch}; "
                f"its coordinator has {self._by_producer.get(header.producer_id)}",
            )

    def _check_marker(self, partition: Partition, header: BatchHeader, epoch: int, *, committed: bool) -> None:
        """`epoch`: of the transaction that it ends."""
        decided = self._by_producer.get(header.producer_id)
        if decided is not None and isinstance(decided.state, Ended):
            # The marker and what came of it may have been committed in one go.
            decided = self._endings.get(header.producer_id, decided)
        place = (partition.topic, partition.index)
        state = None if decided is None else decided.state
        is_ending = decided is not None and isinstance(state, Ending) and place in state.places
        fine = is_ending and isinstance(state, Ending) and state.commit == committed
        if decided is not None and not fine and not committed and epoch < decided.epoch:
            # A leftover that nobody would end: its partition's leader aborts it when it meets a later epoch.
            fine = not (isinstance(state, Ending) and is_ending and state.commit and epoch == decided.epoch - 1)
        if not fine:
            kind = "commit" if committed else "abort"
            raise Violation(
                "early-end",
                f"{partition} at {header.base_offset}: {kind} of producer {header.producer_id} in epoch "
                f"{header.producer_epoch}, which had written in {epoch}; committed is {decided}",
            )

    # --- the end ---

    def what_is_stuck(self) -> str:
        """Empty when nothing is open any more."""
        for transaction in self.ids.values():
            if isinstance(transaction.state, Ongoing | Ending):
                return f"{transaction}"
        for host, partition in self._led():
            log = partition.log
            if log.last_stable_offset < log.high_watermark:
                return f"{host.name} {partition}: stable {log.last_stable_offset}, committed {log.high_watermark}"
        return ""

    def _led(self) -> list[tuple[Host, Partition]]:
        return [
            (host, partition)
            for host, node in self.cluster.running
            for partition in node.partitions
            if partition.topic in self._topics and partition.leads
        ]

    def check_end(self) -> None:
        self.sweep()
        for host, node in self.cluster.running:
            for partition in node.partitions:
                replay = self._replays.get((partition.topic_id, partition.index))
                log = partition.log
                if replay is None or partition.topic == TRANSACTIONS_TOPIC or log.quarantined or log.failure:
                    continue
                if log.high_watermark == replay.end_offset:
                    self._check_stable(f"{host.name} {partition}", log, replay)
                    self._check_aborted(f"{host.name} {partition}", log, replay)

    def _check_aborted(self, who: str, log: Log, replay: Replay) -> None:
        found = [(first, pid) for pid, first in log.aborted_transactions(log.start_offset, log.high_watermark)]
        if found != sorted(replay.aborted):
            raise Violation("transaction-index", f"{who}: aborted are {found}, the log says {sorted(replay.aborted)}")


def _may_follow(before: State, after: State, grown: int) -> bool:
    """`grown`: by how much the epoch did."""
    match before, after:
        case Ongoing(), Ongoing():
            return not grown and before.places <= after.places
        case Ongoing(), Ending():
            return before.places == after.places
        case Ending(), Ended():
            return not grown and before.commit == after.commit
        case ((Empty() | Ended()), Ending()):
            return bool(grown) and not after.commit and not after.places
        case ((Empty() | Ended()), Ongoing()):
            return not grown
        case ((Empty() | Ended()), Empty()):
            return True
        case _:
            return False
