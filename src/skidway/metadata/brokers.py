"""Decisions about brokers: registration, heartbeats, fencing, controlled shutdown.

A broker is a number; a run of it has an epoch, and what it asks with an older one is refused. It begins fenced, is
unfenced when it has followed the metadata to its own registration, and is fenced again when it is not heard of for a
session timeout. Fenced, or shutting down, it is in no in-sync set and leads nothing.

When a broker was heard of is known to the controller of the moment only: notes, not records.
"""

from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from skidway.errors import BrokerIdNotRegistered, DuplicateBrokerRegistration, InvalidRegistration, InvalidRequest
from skidway.limits import INT64_MAX
from skidway.metadata.cluster_view import ClusterView, take_out
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.image import Broker, Image
from skidway.metadata.leadership import lead_leaderless
from skidway.metadata.operations import (
    BrokerHeartbeat,
    BrokerRegistered,
    Heartbeat,
    RegisterBroker,
    SuspectBroker,
    UnregisterBroker,
)
from skidway.metadata.partition_index import PartitionIndex, PartitionKey
from skidway.runtime.replicated import Decision
from skidway.wire.message import ZERO_UUID, Message
from skidway.wire.schema.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

CHANGES_MAX = 10_000
"""Partitions one decision fences a broker in; what is left is due at once."""
BROKERS_MAX = 4_096
"""Registered at a time: each is kept by every node and looked at with every registration."""
GRACE = 4
"""The part of a session timeout by which a controller may look late before it distrusts itself, and that it then waits.
"""
SUSPICION = 4
"""The part of a session timeout that a suspected broker has to be heard of again, one whose connection was closed for
example. One that lives connects again within a few hundredths of a second."""


# --- who was heard of ---


class Contact(Struct):
    heard_ms: int
    metadata_offset: int = -1
    stop_offset: int | None = None
    """When all others know the metadata up to here, it may stop."""
    last_chance: bool = False
    """Silent or suspected, and given a little time already."""


class Heard(Struct):
    broker_id: int
    now_ms: int
    metadata_offset: int = -1
    anew: bool = False
    """A new run: what was known of the last one is forgotten."""


class LastChance(Struct):
    """To be heard of until then, whatever its session says."""

    broker_id: int
    until_ms: int


class Stopping(Struct):
    broker_id: int
    stop_offset: int


class Forgotten(Struct):
    broker_id: int


Note = Heard | LastChance | Stopping | Forgotten


class Liveness(Struct):
    session_timeout_ms: int
    contacts: dict[int, Contact] = field(default_factory=dict)

    def note(self, note: Note) -> None:
        match note:
            case Heard(broker_id, now_ms, metadata_offset, anew):
                contact = self.contacts.get(broker_id)
                if contact is None or anew:
                    contact = self.contacts[broker_id] = Contact(now_ms)
                contact.heard_ms, contact.metadata_offset, contact.last_chance = now_ms, metadata_offset, False
            case LastChance(broker_id, until_ms):
                contact = self.contacts[broker_id]
                contact.heard_ms, contact.last_chance = until_ms - self.session_timeout_ms, True
            case Stopping(broker_id, stop_offset):
                self.contacts[broker_id].stop_offset = stop_offset
            case Forgotten(broker_id):
                self.contacts.pop(broker_id, None)

    @property
    def grace_ms(self) -> int:
        return self.session_timeout_ms // GRACE

    @property
    def suspicion_ms(self) -> int:
        return self.session_timeout_ms // SUSPICION

    def has_session(self, broker: Broker, now_ms: int) -> bool:
        contact = self.contacts.get(broker.id)
        return not broker.fenced and contact is not None and now_ms < contact.heard_ms + self.session_timeout_ms

    def silent(self, image: Image, now_ms: int) -> list[int]:
        """Brokers nobody watches are never silent."""
        return [
            broker.id
            for broker in image.brokers.values()
            if not broker.fenced and broker.id in self.contacts and not self.has_session(broker, now_ms)
        ]

    def deadline_ms(self, image: Image) -> int:
        """When the next broker falls silent."""
        heard = [
            contact.heard_ms
            for broker_id, contact in self.contacts.items()
            if broker_id in image.brokers and not image.brokers[broker_id].fenced
        ]
        return min(heard) + self.session_timeout_ms if heard else INT64_MAX

    def lowest_offset(self, image: Image, broker_id: int) -> int:
        """Of the metadata that all active brokers but this one follow."""
        offsets = [
            self.contacts[broker.id].metadata_offset
            for broker in image.brokers.values()
            if broker.active and broker.id != broker_id and broker.id in self.contacts
        ]
        return min(offsets, default=INT64_MAX)


# --- registration ---


def decide_register(
    view: ClusterView, liveness: Liveness, operation: RegisterBroker, now_ms: int
) -> Decision[Message, BrokerRegistered]:
    image, broker_id = view.image, operation.broker_id
    known = image.brokers.get(broker_id)
    if known is not None and operation.fenced and known.incarnation_id == operation.incarnation_id:
        # The answer to the first request was lost; or its addresses changed.
        record = _registration(operation, known.epoch, known.fenced, known.in_controlled_shutdown)
        return Decision([record], BrokerRegistered(known.epoch), [Heard(broker_id, now_ms)])
    if known is not None and operation.fenced and liveness.has_session(known, now_ms):
        raise DuplicateBrokerRegistration(
            f"Another broker with the id {broker_id} is alive; it counts as gone when it is silent for "
            f"{liveness.session_timeout_ms} ms."
        )
    if known is None and len(image.brokers) >= BROKERS_MAX:
        raise InvalidRegistration(f"There are {BROKERS_MAX} brokers already: unregister those that are gone.")
    _refuse_odd_directories(image, operation)
    epoch = max(image.next_broker_epoch, operation.log_end_offset)
    records: list[Message] = [_registration(operation, epoch, operation.fenced)]
    if not operation.fenced:
        if operation.new_leader_epochs:
            records.extend(_lead_anew(view, broker_id))
        view.coming = {broker_id: operation.log_dirs}
        records.extend(lead_leaderless(view, broker_id))
        return Decision(records, BrokerRegistered(epoch), [Forgotten(broker_id)])
    view.going = (broker_id,)
    clean = (
        known is not None
        and known.epoch == operation.previous_broker_epoch
        and set(known.log_dirs) <= set(operation.log_dirs)
    )
    keys = view.index.in_sync(broker_id) if clean else _trusted(view.index, broker_id)
    records.extend(take_out(view, (broker_id,), keys, unclean=not clean))
    return Decision(records, BrokerRegistered(epoch), [Heard(broker_id, now_ms, anew=True)])


def _trusted(index: PartitionIndex, broker_id: int) -> Iterable[PartitionKey]:
    """Where a broker is known to have everything."""
    return {**index.in_sync(broker_id), **index.eligible(broker_id)}


def _registration(
    operation: RegisterBroker, epoch: int, fenced: bool, in_controlled_shutdown: bool = False
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=operation.broker_id,
        incarnation_id=operation.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            BrokerEndpoint(point.name, point.host, point.port, point.security_protocol) for point in operation.endpoints
        ],
        features=[BrokerFeature(name, *levels) for name, levels in sorted(operation.features.items())],
        rack=operation.rack,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=operation.log_dirs,
    )


def _refuse_odd_directories(image: Image, operation: RegisterBroker) -> None:
    """A directory that two brokers claim was copied: neither knows what the other did with it."""
    log_dirs = operation.log_dirs
    if ZERO_UUID in log_dirs or len(set(log_dirs)) != len(log_dirs):
        raise InvalidRegistration("Every log directory needs an id of its own.")
    for broker in image.brokers.values():
        if broker.id != operation.broker_id and not set(broker.log_dirs).isdisjoint(log_dirs):
            raise InvalidRegistration(f"Broker {broker.id} is registered with the same log directory.")


def _lead_anew(view: ClusterView, broker_id: int) -> list[PartitionChangeRecord]:
    return [
        PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=broker_id)
        for topic_id, index in view.index.led_by(broker_id)
    ]


def decide_unregister(view: ClusterView, operation: UnregisterBroker) -> Decision[Message, None]:
    broker = view.image.brokers.get(operation.broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"Broker ID {operation.broker_id} is not currently registered.")
    if not broker.fenced:
        # It would come back at once, trusted with nothing it has: what only it has would have no leader any more.
        raise InvalidRequest(f"Broker {broker.id} is up; stop it first.")
    view.going = (broker.id,)
    records = take_out(view, view.going, _trusted(view.index, broker.id), unclean=True)
    records.extend(_no_settings(view.image, broker.id))
    records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    return Decision(records, None, [Forgotten(broker.id)])


def _no_settings(image: Image, broker_id: int) -> list[Message]:
    """The next broker with that number is another one, and only settings of a registered one can be changed."""
    kind, resource = ResourceType.BROKER, str(broker_id)
    return [
        ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=None)
        for name in sorted(image.config(kind, resource))
    ]


# --- heartbeats ---


def decide_heartbeat(
    view: ClusterView, liveness: Liveness, operation: BrokerHeartbeat, now_ms: int
) -> Decision[Message, Heartbeat]:
    view.check_epoch(operation.broker_id, operation.broker_epoch)
    broker = view.image.brokers[operation.broker_id]
    heard = Heard(broker.id, now_ms, operation.metadata_offset)
    caught_up = operation.metadata_offset >= broker.epoch
    as_it_is = Heartbeat(caught_up, broker.fenced, False)
    if broker.fenced:
        if operation.want_shut_down:
            return Decision([], replace(as_it_is, should_shut_down=True), [heard])
        if operation.want_fence or not caught_up or broker.in_controlled_shutdown:
            return Decision([], as_it_is, [heard])
        return Decision(_unfence(view, broker), replace(as_it_is, is_fenced=False), [heard])
    if operation.want_fence:
        return Decision(_fence(view, [broker.id]), Heartbeat(caught_up, True, operation.want_shut_down), [heard])
    if not operation.want_shut_down and not broker.in_controlled_shutdown:
        return Decision([], as_it_is, [heard])
    return _shut_down(view, liveness, broker, operation, as_it_is, heard)


def _unfence(view: ClusterView, broker: Broker) -> list[Message]:
    view.coming = {broker.id: broker.log_dirs}
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=-1)
    return [change, *lead_leaderless(view, broker.id)]


def _shut_down(
    view: ClusterView, liveness: Liveness, broker: Broker, operation: BrokerHeartbeat, as_it_is: Heartbeat, heard: Heard
) -> Decision[Message, Heartbeat]:
    """Give up all it leads, wait until everybody knows, stop."""
    view.going = (broker.id,)
    records = take_out(view, view.going, _first_led(view.index, view.going))
    if not broker.in_controlled_shutdown and records:
        epoch = broker.epoch
        records.insert(
            0, BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=epoch, in_controlled_shutdown=1)
        )
    stop_offset = liveness.contacts[broker.id].stop_offset if broker.id in liveness.contacts else None
    if records or (broker.in_controlled_shutdown and stop_offset is None):
        last_offset = operation.log_end_offset + len(records) - 1
        return Decision(records, as_it_is, [heard, Stopping(broker.id, last_offset)])
    if stop_offset is not None and liveness.lowest_offset(view.image, broker.id) < stop_offset:
        return Decision([], as_it_is, [heard])
    return Decision(_fence(view, [broker.id]), replace(as_it_is, is_fenced=True, should_shut_down=True), [heard])


# --- fencing ---


def decide_fence_silent(view: ClusterView, liveness: Liveness, now_ms: int) -> Decision[Message, None]:
    """A controller that looks late was held up itself, and heartbeats may lie unread: it gives them a little time."""
    grace_ms = liveness.grace_ms
    silent: list[int] = []
    chances: list[Any] = []
    for broker_id in liveness.silent(view.image, now_ms):
        contact = liveness.contacts[broker_id]
        if not contact.last_chance and now_ms > contact.heard_ms + liveness.session_timeout_ms + grace_ms:
            chances.append(LastChance(broker_id, now_ms + grace_ms))
        else:
            silent.append(broker_id)
    return Decision(_fence(view, silent), None, chances)


def decide_suspect(
    view: ClusterView, liveness: Liveness, operation: SuspectBroker, now_ms: int
) -> Decision[Message, None]:
    view.check_epoch(operation.broker_id, operation.broker_epoch)
    contact, until_ms = liveness.contacts.get(operation.broker_id), now_ms + liveness.suspicion_ms
    if contact is None or contact.heard_ms + liveness.session_timeout_ms <= until_ms:
        return Decision([], None)
    return Decision([], None, [LastChance(operation.broker_id, until_ms)])


def has_unfinished(image: Image, index: PartitionIndex) -> bool:
    """Whether a broker that may not lead or be in sync still does or is."""
    return bool(_unfinished(image, index))


def _unfinished(image: Image, index: PartitionIndex) -> list[int]:
    return [
        broker.id
        for broker in image.brokers.values()
        if not broker.active and (index.in_sync(broker.id) or index.led_by(broker.id))
    ]


def _fence(view: ClusterView, broker_ids: list[int]) -> list[Message]:
    """All at once: that they left together is why each of them is as good a leader as the others."""
    brokers = view.image.brokers
    records: list[Message] = [
        BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=brokers[broker_id].epoch, fenced=1)
        for broker_id in broker_ids
    ]
    view.going = dict.fromkeys([*broker_ids, *_unfinished(view.image, view.index)])
    return records + take_out(view, view.going, _first_led(view.index, view.going))


def _first_led(index: PartitionIndex, broker_ids: Collection[int]) -> list[PartitionKey]:
    """Partitions these brokers are in sync in, at most so many; first those that wait for a leader."""
    keys: dict[PartitionKey, None] = {}
    for broker_id in broker_ids:
        keys.update(index.led_by(broker_id))
    for broker_id in broker_ids:
        keys.update(index.in_sync(broker_id))
    return list(keys)[:CHANGES_MAX]
