"""Mistakes that controllers have been known to make, each as a change of ours that the storms must find."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from skidway.metadata import brokers, cluster_view, copies, leadership, reassignment, snapshot, topics
from skidway.metadata.brokers import Liveness
from skidway.metadata.cluster_view import ClusterView
from skidway.metadata.controller import Controller
from skidway.metadata.image import LOST_DIRECTORY, NO_CHANGE, Image, Partition
from skidway.metadata.operations import PartitionAlteration, RegisterBroker
from skidway.metadata.partition_change import Election, PartitionChange
from skidway.metadata.partition_index import PartitionIndex
from skidway.metadata.placement import Site
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord, PartitionRecord
from values import replace

Mutant = Callable[[], AbstractContextManager[None]]


# --- eligible leader replicas ---


@contextmanager
def eligible_outlive_enough() -> Iterator[None]:
    """Replicas stay eligible while others acknowledge without them."""

    def follow(self: PartitionChange) -> None:
        had_all = {*self.before.isr, *self._eligible} - set(self.isr) - set(self.unclean)
        self._eligible = [each for each in self.replicas if each in had_all]

    with patch.object(PartitionChange, "_follow_eligible", follow):
        yield


@contextmanager
def eligible_outlive_an_election() -> Iterator[None]:
    """One of them leads and acknowledges alone; the others stay eligible until something else happens."""
    original = PartitionChange._follow_eligible

    def follow(self: PartitionChange) -> None:
        if self.isr and not self.before.isr:
            self._eligible = [each for each in self._eligible if each not in self.isr]
        else:
            original(self)

    with patch.object(PartitionChange, "_follow_eligible", follow):
        yield


@contextmanager
def eligible_though_removed() -> Iterator[None]:
    """A broker that is no replica any more stays eligible."""
    original = PartitionChange._follow_eligible

    def follow(self: PartitionChange) -> None:
        original(self)
        if self._eligible:
            gone = [each for each in self.before.isr if each not in self.replicas]
            self._eligible = [*self._eligible, *gone]

    with patch.object(PartitionChange, "_follow_eligible", follow):
        yield


@contextmanager
def settings_not_followed() -> Iterator[None]:
    """min.insync.replicas is lowered and nobody looks at who is eligible."""
    with patch.object(leadership, "follow_settings", lambda view, records: []):
        yield


# --- unclean stops ---


@contextmanager
def unclean_stop_stays_eligible() -> Iterator[None]:
    """Only the in-sync sets are left."""
    with patch.object(brokers, "_trusted", lambda index, broker_id: index.in_sync(broker_id)):
        yield


@contextmanager
def every_stop_counts_as_clean() -> Iterator[None]:
    original = brokers.decide_register

    def register(view: ClusterView, liveness: Liveness, operation: RegisterBroker, now_ms: int) -> Any:
        known = view.image.brokers.get(operation.broker_id)
        epoch = known.epoch if known is not None else -1
        return original(view, liveness, replace(operation, previous_broker_epoch=epoch), now_ms)

    with patch.object(brokers, "decide_register", register):
        yield


@contextmanager
def replaced_disk_leads() -> Iterator[None]:
    """The last known leader comes back empty and leads."""
    with patch.object(ClusterView, "_holds", lambda self, partition, broker_id: True):
        yield


# --- elections ---


@contextmanager
def any_live_replica_leads() -> Iterator[None]:
    """Unclean elections everywhere."""
    original = ClusterView.rules_of

    def rules_of(self: ClusterView, topic_name: str) -> tuple[int, bool]:
        return original(self, topic_name)[0], True

    with patch.object(ClusterView, "rules_of", rules_of):
        yield


@contextmanager
def last_leader_before_eligible() -> Iterator[None]:
    """The last known leader is taken though others are known to have everything."""
    original = PartitionChange._complete_leader

    def leader(self: PartitionChange) -> int:
        if not self.isr and self.before.last_known_elr and self._may_lead(self.before.last_known_elr[0]):
            return self.before.last_known_elr[0]
        return original(self)

    with patch.object(PartitionChange, "_complete_leader", leader):
        yield


@contextmanager
def leader_changes_within_its_epoch() -> Iterator[None]:
    original = Image._change_partition

    def change(self: Image, record: PartitionChangeRecord) -> None:
        partition = self.topics_by_id[record.topic_id].partitions[record.partition_id]
        epoch = partition.leader_epoch
        original(self, record)
        if record.leader not in (NO_CHANGE, -1):
            partition.leader_epoch = epoch

    with patch.object(Image, "_change_partition", change):
        yield


@contextmanager
def comes_back_and_does_not_lead() -> Iterator[None]:
    """What nobody leads stays so."""
    with patch.object(brokers, "lead_leaderless", lambda view, broker_id: []):
        yield


@contextmanager
def last_leader_is_forgotten() -> Iterator[None]:
    with patch.object(PartitionChange, "_remember_leader", lambda self: None):
        yield


# --- orders of leaders ---


@contextmanager
def partition_epoch_unchecked() -> Iterator[None]:
    original = leadership._refuse_stale

    def refuse(partition: Partition, broker_id: int, alteration: PartitionAlteration) -> None:
        original(partition, broker_id, replace(alteration, partition_epoch=partition.partition_epoch))

    with patch.object(leadership, "_refuse_stale", refuse):
        yield


@contextmanager
def leader_epoch_unchecked() -> Iterator[None]:
    original = leadership._refuse_stale

    def refuse(partition: Partition, broker_id: int, alteration: PartitionAlteration) -> None:
        if alteration.partition_epoch != partition.partition_epoch or broker_id != partition.leader:
            alteration = replace(alteration, partition_epoch=partition.partition_epoch)
        original(partition, partition.leader, replace(alteration, leader_epoch=partition.leader_epoch))

    with patch.object(leadership, "_refuse_stale", refuse):
        yield


@contextmanager
def old_runs_get_in_sync() -> Iterator[None]:
    """The broker epochs of the in-sync set are not looked at."""
    original = leadership._refuse_ineligible

    def refuse(view: ClusterView, alteration: PartitionAlteration) -> None:
        original(view, replace(alteration, new_isr=[(member, -1) for member, _ in alteration.new_isr]))

    with patch.object(leadership, "_refuse_ineligible", refuse):
        yield


@contextmanager
def fenced_get_in_sync() -> Iterator[None]:
    with patch.object(leadership, "_refuse_ineligible", lambda view, alteration: None):
        yield


@contextmanager
def refused_orders_are_obeyed_late() -> Iterator[None]:
    """A refusal leaves the partition epoch as it was."""
    original = leadership.decide_alter

    def alter(view: ClusterView, operation: Any) -> Any:
        decision = original(view, operation)
        decision.records = [record for record in decision.records if _changes_something(record)]
        return decision

    with patch.object(leadership, "decide_alter", alter):
        yield


def _changes_something(record: Message) -> bool:
    assert isinstance(record, PartitionChangeRecord)
    return record != PartitionChangeRecord(partition_id=record.partition_id, topic_id=record.topic_id)


# --- fencing and stopping ---


@contextmanager
def fenced_stay_in_sync() -> Iterator[None]:
    """Only leaderships move."""

    def first_led(index: PartitionIndex, broker_ids: Sequence[int]) -> list[Any]:
        return [key for broker_id in broker_ids for key in index.led_by(broker_id)]

    with patch.object(brokers, "_first_led", first_led):
        yield


@contextmanager
def old_runs_are_heard() -> Iterator[None]:
    with patch.object(ClusterView, "check_epoch", lambda self, broker_id, broker_epoch: None):
        yield


@contextmanager
def stops_before_everybody_knows() -> Iterator[None]:
    with patch.object(Liveness, "lowest_offset", lambda self, image, broker_id: 10**9):
        yield


@contextmanager
def two_with_one_id() -> Iterator[None]:
    """A second broker pushes the first aside, and nobody takes it out of the in-sync sets."""
    original = brokers.decide_register

    def register(view: ClusterView, liveness: Liveness, operation: RegisterBroker, now_ms: int) -> Any:
        decision = original(view, Liveness(liveness.session_timeout_ms), operation, now_ms)
        decision.records = decision.records[:1]
        return decision

    with patch.object(brokers, "decide_register", register):
        yield


@contextmanager
def unfenced_without_saying() -> Iterator[None]:
    """The answer says unfenced, the record is missing."""
    original = brokers._unfence

    def unfence(view: ClusterView, broker: Any) -> list[Message]:
        records = original(view, broker)
        return [record for record in records if not isinstance(record, BrokerRegistrationChangeRecord)]

    with patch.object(brokers, "_unfence", unfence):
        yield


# --- reassignment ---


@contextmanager
def reassignment_ends_early() -> Iterator[None]:
    """As soon as one of the targets is in sync (KAFKA-15665)."""

    def complete(self: PartitionChange) -> None:
        staying = [each for each in self.replicas if each not in self.removing]
        if (self.adding or self.removing) and set(staying) & set(self.isr):
            self.isr = [each for each in self.isr if each in staying]
            self.replicas, self.adding, self.removing = staying, [], []

    with patch.object(PartitionChange, "_complete_reassignment", complete):
        yield


@contextmanager
def cancelled_at_any_price() -> Iterator[None]:
    with patch.object(reassignment, "_refuse_loss", lambda *_: None):
        yield


# --- keeping books ---


@contextmanager
def index_forgets_who_left() -> Iterator[None]:
    original = PartitionIndex.before

    def before(self: PartitionIndex, record: Message) -> None:
        if not isinstance(record, PartitionChangeRecord) or record.isr is None:
            original(self, record)

    with patch.object(PartitionIndex, "before", before):
        yield


@contextmanager
def deciding_changes_the_image() -> Iterator[None]:
    """A list of the image is changed in place."""
    original = cluster_view.take_out

    def take_out(view: ClusterView, broker_ids: Any, keys: Any, **options: Any) -> list[Message]:
        keys = list(keys)
        records = original(view, broker_ids, keys, **options)
        for key in keys:
            _, partition = view.find(key)
            partition.isr[:] = [each for each in partition.isr if each not in broker_ids]
        return records

    with patch.object(brokers, "take_out", take_out):
        yield


@contextmanager
def snapshot_without_the_eligible() -> Iterator[None]:
    original = snapshot._partition_record

    def record(topic_id: bytes, partition: Partition) -> PartitionRecord:
        return original(topic_id, replace(partition, eligible_leader_replicas=[]))

    with patch.object(snapshot, "_partition_record", record):
        yield


@contextmanager
def nothing_is_ever_due() -> Iterator[None]:
    with patch.object(Controller, "due", lambda self, now_ms: []):
        yield


# --- damaged copies ---


@contextmanager
def damaged_stays_eligible() -> Iterator[None]:
    """It is not in sync any more, and may be elected all the same."""
    with _giving_up(lambda change: setattr(change, "unclean", ())):
        yield


@contextmanager
def damaged_and_nobody_else() -> Iterator[None]:
    """The last copy that had everything is given up for whoever is there."""
    with _giving_up(lambda change: setattr(change, "election", Election.UNCLEAN)):
        yield


@contextmanager
def damaged_is_taken_in() -> Iterator[None]:
    """What was said of a copy before it was given up still counts."""
    original = copies.give_up

    def give_up(*arguments: Any) -> PartitionChangeRecord | None:
        record = original(*arguments)
        partition: Partition = arguments[3]
        if record is None or record.leader != partition.leader:
            return record
        record.leader = NO_CHANGE
        return None if record.isr is None and record.eligible_leader_replicas is None else record

    with patch.object(copies, "give_up", give_up):
        yield


@contextmanager
def lost_is_forgotten() -> Iterator[None]:
    """A copy that nobody can read leads where unclean elections are allowed."""
    original = ClusterView._holds

    def holds(self: ClusterView, partition: Partition, broker_id: int) -> bool:
        is_lost = dict(zip(partition.replicas, partition.directories, strict=True)).get(broker_id) == LOST_DIRECTORY
        return is_lost or original(self, partition, broker_id)

    with patch.object(ClusterView, "_holds", holds):
        yield


@contextmanager
def lost_and_forgotten_who_had_it() -> Iterator[None]:
    """The only copy that had everything is not eligible any more: any other replica may lead without an operator."""
    original = PartitionChange.record

    def record(self: PartitionChange) -> PartitionChangeRecord | None:
        lost = [each for each, directory in self.assigned.items() if directory == LOST_DIRECTORY]
        self.unclean = (*self.unclean, *lost)
        return original(self)

    with patch.object(PartitionChange, "record", record):
        yield


@contextmanager
def _giving_up(spoil: Callable[[PartitionChange], None]) -> Iterator[None]:
    original, record = copies.give_up, PartitionChange.record

    def spoiled(self: PartitionChange) -> PartitionChangeRecord | None:
        spoil(self)
        return record(self)

    def give_up(*arguments: Any) -> PartitionChangeRecord | None:
        with patch.object(PartitionChange, "record", spoiled):
            return original(*arguments)

    with patch.object(copies, "give_up", give_up):
        yield


# --- drained brokers ---


@contextmanager
def drained_only_by_name() -> Iterator[None]:
    """The mark is kept and shown, and nobody looks at it."""
    with patch.object(topics, "is_drained", lambda settings: False):
        yield


@contextmanager
def drained_if_up() -> Iterator[None]:
    """A drained broker that is down is the last resort, like any other that is."""
    original = topics.Draft.sites

    def sites(self: topics.Draft) -> list[Site]:
        return [replace(site, drained=site.drained and not site.fenced) for site in original(self)]

    with patch.object(topics.Draft, "sites", sites):
        yield


@contextmanager
def settings_outlive_their_broker() -> Iterator[None]:
    """The next broker with that number is drained before it has begun."""
    with patch.object(brokers, "_no_settings", lambda image, broker_id: []):
        yield


FOUND_BY_DRAINS: dict[Mutant, tuple[int, str]] = {
    drained_only_by_name: (1, "got something new although drained"),
    drained_if_up: (2, "got something new although drained"),
    settings_outlive_their_broker: (1, "settings of nobody"),
}
"""The same, where brokers are drained."""

FOUND_BY_DAMAGE: dict[Mutant, tuple[int, str]] = {
    damaged_stays_eligible: (0, "leads with a damaged copy"),
    damaged_and_nobody_else: (3, "an unclean election that nobody allowed"),
    damaged_is_taken_in: (22, "is trusted and lacks records"),
}
"""The same, where copies are found damaged."""

FOUND_BY_LOSSES: dict[Mutant, tuple[int, str]] = {
    lost_is_forgotten: (1, "a copy that nobody can read leads"),
    lost_and_forgotten_who_had_it: (1, "forgotten who had everything"),
}
"""The same, where copies cannot be read at all."""

FOUND_BY: dict[Mutant, tuple[int, str]] = {
    eligible_outlive_enough: (0, "eligible although enough are in sync"),
    eligible_outlive_an_election: (10, "eligible although enough are in sync"),
    eligible_though_removed: (173, "are not all among the replicas"),
    settings_not_followed: (7, "eligible although enough are in sync"),
    unclean_stop_stays_eligible: (0, "is trusted and lacks records"),
    every_stop_counts_as_clean: (1, "is trusted and lacks records"),
    replaced_disk_leads: (0, "a broker with a new disk leads"),
    any_live_replica_leads: (0, "an unclean election that nobody allowed"),
    last_leader_before_eligible: (18, "an unclean election without need"),
    leader_changes_within_its_epoch: (0, "another leader in the same epoch"),
    comes_back_and_does_not_lead: (0, "could lead, and does not"),
    last_leader_is_forgotten: (0, "lost for ever"),
    partition_epoch_unchecked: (1, "a stale order is obeyed"),
    leader_epoch_unchecked: (0, "a stale order is obeyed"),
    old_runs_get_in_sync: (77, "is trusted and lacks records"),
    fenced_get_in_sync: (20, "is trusted and lacks records"),
    refused_orders_are_obeyed_late: (28, "is trusted and lacks records"),
    fenced_stay_in_sync: (0, "there is always something due"),
    old_runs_are_heard: (3, "an old run is heard"),
    stops_before_everybody_knows: (0, "believes that it leads"),
    two_with_one_id: (0, "is trusted and lacks records"),
    unfenced_without_saying: (0, "the answer and the image differ"),
    reassignment_ends_early: (3, "a reassignment ended before it was done"),
    cancelled_at_any_price: (3, "lost for ever"),
    index_forgets_who_left: (0, "the index differs from one made of the image"),
    deciding_changes_the_image: (0, "deciding changed the image"),
    snapshot_without_the_eligible: (0, "the snapshot tells another story"),
    nothing_is_ever_due: (0, "the deadline and what is due differ"),
}
"""The first seed whose storm finds it, and the law that it breaks: another one does not count."""
