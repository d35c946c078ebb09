"""What is committed of transactions, followed in all logs by an all-knowing observer.

Records of `__transaction_state` and batches of partitions are looked at in the order in which leaders call them
committed.

| law | meaning |
|---|---|
| transaction-states | a transactional id changes as it may: its epoch never goes back, what is decided stays decided |
| early-end | a marker ends a transaction whose coordinator has not decided so, or for which that is not committed |
| unfinished-end | a transaction is called ended, and a partition of it has no marker |
| unknown-writes | a partition has records of a transaction that is over, or of which its coordinator did not know |
| sequences | a producer's batches in a partition leave out a sequence, or have one twice |
| producer-epochs | a producer's batch stands behind a marker or a batch of a later epoch |
| transaction-index | the last stable offset or the aborted transactions of a log are not what its batches say |
| stuck-transaction | after the faults a transaction stays open, or the last stable offset stays behind |

Offsets that are committed within transactions have a module of their own (`transactional_offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from itertools import chain, repeat

from skidway.broker.coordinators.groups import OFFSETS_TOPIC
from skidway.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from skidway.broker.node import Node
from skidway.broker.partitions.partition import Partition
from skidway.log import lookup
from skidway.log.bounds import Bound
from skidway.log.log import Log
from skidway.records.batch import BatchHeader, iter_headers
from skidway.records.control import read_marker
from skidway.records.record import read_records
from skidway.sim.laws.log_checks import batches_of
from skidway.sim.laws.transactional_offsets import OffsetReplay
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import Violation, World
from skidway.sim.world.host import Host
from skidway.transactions.records import decode
from skidway.transactions.transaction import NO_PRODUCER, Empty, Ended, Ending, Ongoing, Place, State, Transaction

READ_BYTES = 1 << 20
RECORD_BYTES_MAX = 1 << 20
EXPIRY_SLACK_MS = 100


@dataclass(slots=True)
class Known:
    """A transactional id as its last record tells."""

    transaction: Transaction
    leader_epoch: int
    """Of who has written it."""


@dataclass(slots=True)
class Replay:
    """One partition, as far as it is committed."""

    end_offset: int = 0
    open: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By producer id: first offset and epoch."""
    aborted: dict[tuple[int, int], int] = field(default_factory=dict)
    """By first offset and producer id: where its marker is."""
    epochs: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    """By producer id: how many of its transactions were decided when its last marker came."""
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By producer id: epoch and the sequence that comes next."""
    offsets: OffsetReplay = field(default_factory=OffsetReplay)

    @property
    def last_stable_offset(self) -> int:
        return min([self.end_offset, *(first for first, _ in self.open.values())])


class TransactionLogLaws:
    def __init__(
        self, world: World, cluster: Cluster, topics: list[str], deleted: Container[str], expiration_ms: int
    ) -> None:
        """`deleted`: topics that are deleted and made again while transactions are open in them. Ids that are not used
        are forgotten after `expiration_ms`."""
        self.world = world
        self.cluster = cluster
        self._topics = {TRANSACTIONS_TOPIC, OFFSETS_TOPIC, *topics}
        self._deleted = deleted
        self._expiration_ms = expiration_ms
        self.on_decided: Callable[[Transaction], None] = lambda transaction: None
        """Called when it is committed how a transaction ends."""
        self.ids: dict[str, Transaction] = {}
        self._by_producer: dict[int, Transaction] = {}
        self._endings: dict[int, Transaction] = {}
        """The last one of each producer whose end was decided."""
        self._order: dict[int, int] = {}
        """Of producer ids, as coordinators gave them."""
        self.committed_us: dict[str, int] = {}
        """By id: when its last commit was decided."""
        self._last: dict[str, Known] = {}
        self._decided: dict[int, int] = {}
        """How many transactions of a producer were decided."""
        self._unmarked: dict[int, set[Place]] = {}
        """Of the last of them: which places lack the marker."""
        self._known: dict[tuple[int, int, Place], int] = {}
        """Producer id, epoch and place of everything that coordinators were told; and how many of the producer's
        transactions were decided by then."""
        self._copies: dict[Node, list[Partition]] = {}
        """Of each node, when it was looked at last: looked up anew when they are more or fewer, and in every sweep."""
        self._seen: dict[Node, list[int]] = {}
        """How far each of these was committed then."""
        self._replays: dict[tuple[bytes, int], Replay] = {}

    def given(self, producer_id: int) -> int:
        """When a producer id was given, compared with others."""
        return -1 if producer_id == NO_PRODUCER else self._order.get(producer_id, len(self._order))

    # --- when to look ---

    def on_step(self, node: Node) -> None:
        """After everything that happens to a node, so it has to be quick."""
        copies = self._copies.get(node)
        if copies is None or len(copies) != len(node.partitions):
            copies, self._seen[node] = list(node.partitions), []
            self._copies[node] = copies
        before = self._seen[node]
        watermarks = [each.log.high_watermark for each in copies]
        if watermarks != before:
            self._seen[node] = watermarks
            known = chain(before, repeat(-1))
            self._follow_all([each for each, now, then in zip(copies, watermarks, known, strict=False) if now != then])

    def sweep(self) -> None:
        self._copies, self._seen = {}, {}
        for _, node in self.cluster.running:
            copies = self._copies[node] = list(node.partitions)
            self._seen[node] = [each.log.high_watermark for each in copies]
            self._follow_all(copies)
            for partition in node.partitions.of_topic(OFFSETS_TOPIC):
                if partition.leads:
                    self._check_offsets(node, partition)

    def _follow_all(self, partitions: Iterable[Partition]) -> None:
        """States before data: what a decision causes comes after it."""
        for partition in sorted(partitions, key=lambda each: each.topic != TRANSACTIONS_TOPIC):
            log = partition.log
            if partition.topic in self._topics and partition.leads and log.failure is None and not log.quarantined:
                self._follow(partition, log)

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

    def _check_offsets(self, node: Node, partition: Partition) -> None:
        """Where the coordinator has applied nothing that is not committed."""
        replay = self._replays.get((partition.topic_id, partition.index))
        loaded = node.rooms.services.groups.loaded.get(partition)
        log = partition.log
        if replay is not None and loaded is not None and replay.end_offset == log.high_watermark == log.end_offset:
            replay.offsets.check(f"the coordinator in {partition}", loaded.host.machine.offsets)

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
            if partition.topic == OFFSETS_TOPIC:
                replay.offsets.take(header, batch)
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
                self._check_forgotten(self._last.pop(changed.id, None), header)
                self.ids.pop(changed.id, None)
                self.world.mark("transactional id forgotten")
                continue
            self._check_change(self.ids.get(changed.id), changed.transaction)
            self._last[changed.id] = Known(changed.transaction, header.partition_leader_epoch)
            self._change(changed.transaction)

    def _change(self, transaction: Transaction) -> None:
        producer_id = transaction.producer_id
        self.ids[transaction.id] = self._by_producer[producer_id] = transaction
        self.world.say("=", f"{transaction.id} {producer_id}:{transaction.epoch} {transaction.state}")
        for given in (producer_id, transaction.next_producer_id):
            if given != NO_PRODUCER:
                self._order.setdefault(given, len(self._order))
        decided = self._decided.get(producer_id, 0)
        if isinstance(transaction.state, Ongoing):
            self._known.update({(producer_id, transaction.epoch, place): decided for place in transaction.places})
        if isinstance(transaction.state, Ending):
            self._decided[producer_id] = decided + 1
            self._unmarked[producer_id] = set(transaction.places)
            self._endings[producer_id] = transaction
            if transaction.state.commit:
                self.committed_us[transaction.id] = self.world.now_us
            self.on_decided(transaction)

    def _check_forgotten(self, known: Known | None, header: BatchHeader) -> None:
        if known is None:
            return
        age_ms = header.max_timestamp - known.transaction.updated_ms
        # Clocks differ: who forgets it may not be the one who wrote it.
        too_early = (
            known.leader_epoch == header.partition_leader_epoch and age_ms < self._expiration_ms - EXPIRY_SLACK_MS
        )
        if too_early or not isinstance(known.transaction.state, Empty | Ended):
            raise Violation("transaction-states", f"{known.transaction} is forgotten after {age_ms} ms")

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
        if before is not None and isinstance(after.state, Ended):
            unmarked = self._unmarked.get(before.producer_id, set()) if isinstance(before.state, Ending) else set()
            left = [place for place in sorted(unmarked) if self._lacks_marker(place, before)]
            if left:
                raise Violation("unfinished-end", f"{before} has ended; {left} have no marker of it")

    def _lacks_marker(self, place: Place, ending: Transaction) -> bool:
        """Where somebody leads: after a start, states may be looked at before the data that they are about."""
        for _, node in self.cluster.running:
            for partition in node.partitions.of_topic(place[0]):
                if partition.index == place[1] and partition.leads and place[0] not in self._deleted:
                    replay = self._replays.get((partition.topic_id, partition.index), Replay())
                    found = partition.log.read(replay.end_offset, READ_BYTES, Bound.HIGH_WATERMARK)
                    headers = [] if found is None else [header for _, header in iter_headers(bytes(found.read()))]
                    wanted = (ending.producer_id, ending.epoch, True)
                    return all((each.producer_id, each.producer_epoch, each.is_control) != wanted for each in headers)
        return False

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
            self._check_sequence(partition, replay, header)
            if opened is None:
                self._check_known(partition, replay, header)
                replay.open[producer_id] = (header.base_offset, epoch)
            return
        self._note_marker(partition, replay, header)
        if opened is not None:
            self._check_marker(partition, header, opened[1], committed=marker.committed)
            del replay.open[producer_id]
            if not marker.committed:
                replay.aborted[opened[0], producer_id] = header.base_offset

    def _note_marker(self, partition: Partition, replay: Replay, header: BatchHeader) -> None:
        producer_id = header.producer_id
        replay.ended[producer_id] = self._decided.get(producer_id, 0)
        ending = self._endings.get(producer_id)
        if ending is not None and ending.epoch == header.producer_epoch:
            self._unmarked[producer_id].discard((partition.topic, partition.index))

    def _check_sequence(self, partition: Partition, replay: Replay, header: BatchHeader) -> None:
        if partition.topic == OFFSETS_TOPIC:
            return
        epoch, following = replay.sequences.get(header.producer_id, (-1, 0))
        expected = following if epoch == header.producer_epoch else 0
        if header.base_sequence != expected:
            raise Violation(
                "sequences",
                f"{partition} at {header.base_offset}: producer {header.producer_id} in epoch {header.producer_epoch} "
                f"has sequence {header.base_sequence} where {expected} comes next",
            )
        replay.sequences[header.producer_id] = (header.producer_epoch, header.last_sequence + 1)

    def _check_known(self, partition: Partition, replay: Replay, header: BatchHeader) -> None:
        place = (partition.topic, partition.index)
        producer_id, epoch = header.producer_id, header.producer_epoch
        if self._known.get((producer_id, epoch, place), -1) < replay.ended.get(producer_id, 0):
            raise Violation(
                "unknown-writes",
                f"{partition} at {header.base_offset}: producer {producer_id} in epoch {epoch}; "
                f"its coordinator has {self._by_producer.get(producer_id)}",
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
        found = [(first, pid) for pid, first in lookup.aborted(log, log.start_offset, log.high_watermark)]
        fine = _fits(log, found, replay) if log.settings.compact else found == sorted(replay.aborted)
        if not fine:
            raise Violation("transaction-index", f"{who}: aborted are {found}, the log says {sorted(replay.aborted)}")


def _fits(log: Log, found: list[tuple[int, int]], replay: Replay) -> bool:
    """Of what compaction has left, everything that was aborted is known to be, and nothing else. In a copy that was
    made of it a transaction may begin later."""
    known = {key: [each for each in found if each[1] == key[1] and key[0] <= each[0] < marker]
             for key, marker in replay.aborted.items()}  # fmt: skip
    if sorted(each for some in known.values() for each in some) != found:
        return False
    for (first, producer_id), marker in replay.aborted.items():
        data = [
            header.base_offset
            for header, _ in batches_of(log, first, marker)
            if header.producer_id == producer_id and header.record_count and not header.is_control
        ]
        if data and not any(at <= data[0] for at, _ in known[first, producer_id]):
            return False
    return True


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
