"""The controller: a decide/apply machine over the cluster's metadata.

`decide` reads the image and answers with records and a reply; only `apply` changes it. Randomness (topic ids, where
placement begins) goes into the records, so that a log replays to the same image everywhere.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from skidway.errors import UnknownServerError
from skidway.limits import DEFAULT_LIMITS, INT64_MAX, Limits
from skidway.metadata import brokers, configs, copies, features, leadership, reassignment, topics
from skidway.metadata.cluster_view import ClusterView
from skidway.metadata.image import Image
from skidway.metadata.operations import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    AssignDirectories,
    BalanceLeaders,
    Bootstrap,
    BrokerHeartbeat,
    BrokerRegistered,
    ConfigsAltered,
    ControllerStarted,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    FenceSilentBrokers,
    IncrementalAlterConfigs,
    ListReassignments,
    ProducerIdBlock,
    RegisterBroker,
    SuspectBroker,
    UnregisterBroker,
    UpdateFeatures,
)
from skidway.metadata.partition_index import PartitionIndex
from skidway.ports import Random
from skidway.runtime.replicated import Decision, Now, Operation, TimedMachine
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import ProducerIdsRecord

PRODUCER_IDS_PER_BLOCK = 1000
ELECTIONS_MAX = 1_000
"""Leaders one decision moves for balance alone."""


class ControllerSettings(Struct):
    """What the node that runs the controller was configured with."""

    node_id: int = 0
    partitions: int = 1
    replication_factor: int = 1
    static: Mapping[str, str] = field(default_factory=dict)
    """Broker settings by their Kafka names: the defaults of topics. Checked by broker_configs.validate_static."""
    brokers_expected: int = 1
    """In the cluster when all are there: the broker's own topics are not made with fewer replicas than these allow."""
    session_timeout_ms: int = 1_200
    """So long a broker may be silent: six heartbeats."""
    leader_imbalance_check_ms: int = 300_000
    """How often leaders go back to preferred replicas; 0 for never."""


class NextBalance(Struct):
    """A note."""

    at_ms: int


class Controller(TimedMachine[Message]):
    def __init__(
        self,
        random: Random,
        limits: Limits = DEFAULT_LIMITS,
        settings: ControllerSettings | None = None,
        image: Image | None = None,
    ) -> None:
        """`image`: where the log begins, when it does not begin with nothing. It belongs to the controller then."""
        self.image = image or Image()
        self.index = PartitionIndex(self.image)
        self._random = random
        self._limits = limits
        self._settings = settings or ControllerSettings()
        self._liveness = brokers.Liveness(self._settings.session_timeout_ms)
        self._balance_ms = INT64_MAX

    def apply(self, record: Message) -> None:
        self.index.before(record)
        self.image.apply(record)
        self.index.after(record)

    def note(self, note: brokers.Note | NextBalance) -> None:
        if isinstance(note, NextBalance):
            self._balance_ms = note.at_ms
        else:
            self._liveness.note(note)

    @property
    def deadline_ms(self) -> int:
        """When `due` has something, unless something else happens before; INT64_MAX for never."""
        if brokers.has_unfinished(self.image, self.index):
            return 0
        balance_ms = self._balance_ms if self.index.imbalanced else INT64_MAX
        return min(self._liveness.deadline_ms(self.image), balance_ms)

    def due(self, now_ms: int) -> list[Operation[None]]:
        """What is to be decided by now though nobody asks."""
        operations: list[Operation[None]] = []
        silent = self._liveness.deadline_ms(self.image) <= now_ms
        if silent or brokers.has_unfinished(self.image, self.index):
            operations.append(FenceSilentBrokers())
        if self._balance_ms <= now_ms and self.index.imbalanced:
            operations.append(BalanceLeaders())
        return operations

    def decide(self, operation: Operation[Any], now: Now) -> Decision[Message, Any]:
        now_ms = now.monotonic_ms
        match operation:
            case BrokerHeartbeat():
                return brokers.decide_heartbeat(self._view(), self._liveness, operation, now_ms)
            case AlterPartition():
                return leadership.decide_alter(self._view(), operation)
            case AssignDirectories():
                return copies.decide_assign(self._view(), operation)
            case FenceSilentBrokers():
                return brokers.decide_fence_silent(self._view(), self._liveness, now_ms)
            case SuspectBroker():
                return brokers.decide_suspect(self._view(), self._liveness, operation, now_ms)
            case BalanceLeaders():
                return self._balance(now_ms)
            case CreateTopics():
                return topics.decide_create(self._draft(), operation, self._topic_defaults())
            case DeleteTopics():
                return topics.decide_delete(self._draft(), operation)
            case CreatePartitions():
                return topics.decide_more_partitions(self._draft(), operation)
            case AlterConfigs():
                return self._configured(configs.decide_alter(self.image, self._settings.static, operation))
            case IncrementalAlterConfigs():
                return self._configured(configs.decide_incremental(self.image, self._settings.static, operation))
            case AllocateProducerIds():
                return self._allocate_producer_ids(operation)
            case RegisterBroker():
                return self._register(operation, now_ms)
            case UnregisterBroker():
                return brokers.decide_unregister(self._view(), operation)
            case ElectLeaders():
                return leadership.decide_elect(self._view(), operation)
            case AlterReassignments():
                return reassignment.decide_reassign(self._view(), self._limits, operation)
            case ListReassignments():
                return reassignment.decide_list(self._view(), operation)
            case ControllerStarted():
                return self._start(operation, now_ms)
            case Bootstrap():
                return features.decide_bootstrap(self.image, operation)
            case UpdateFeatures():
                return features.decide_update(self.image, self._settings.node_id, operation)
        raise AssertionError(f"not an operation of the controller: {operation!r}")

    def _draft(self) -> topics.Draft:
        return topics.Draft(self.image, self._limits, self._random)

    def _topic_defaults(self) -> topics.TopicDefaults:
        settings = self._settings
        return topics.TopicDefaults(
            settings.partitions,
            settings.replication_factor,
            self.image.defaults_for(settings.node_id, settings.static),
            settings.brokers_expected,
        )

    def _register(self, operation: RegisterBroker, now_ms: int) -> Decision[Message, BrokerRegistered]:
        features.check_registration(self.image, operation)
        decision = brokers.decide_register(self._view(), self._liveness, operation, now_ms)
        decision.records += features.levels_with(self.image, operation)
        return decision

    def _start(self, operation: ControllerStarted, now_ms: int) -> Decision[Message, None]:
        notes: list[Any] = [brokers.Heard(broker_id, now_ms) for broker_id in self.image.brokers]
        if operation.suspect in self.image.brokers:
            notes.append(brokers.LastChance(operation.suspect, now_ms + self._liveness.suspicion_ms))
        interval_ms = self._settings.leader_imbalance_check_ms
        return Decision([], None, [*notes, NextBalance(now_ms + interval_ms if interval_ms else INT64_MAX)])

    def _balance(self, now_ms: int) -> Decision[Message, None]:
        records = leadership.balance(self._view(), ELECTIONS_MAX)
        more = len(records) >= ELECTIONS_MAX
        return Decision(
            records, None, [NextBalance(now_ms + (0 if more else self._settings.leader_imbalance_check_ms))]
        )

    def _configured(self, decision: Decision[Message, list[ConfigsAltered]]) -> Decision[Message, list[ConfigsAltered]]:
        """Leaders follow settings at once: replicas eligible only under the old setting must not be elected."""
        if decision.records:
            view = self._view()
            view.configs = self.image.configs_after(decision.records)
            decision.records.extend(leadership.follow_settings(view, decision.records))
        return decision

    def _view(self) -> ClusterView:
        return ClusterView(self.image, self.index, self._settings.static)

    def _allocate_producer_ids(self, operation: AllocateProducerIds) -> Decision[Message, ProducerIdBlock]:
        if operation.broker_epoch != -1:
            self._view().check_epoch(operation.broker_id, operation.broker_epoch)
        first = self.image.next_producer_id
        if first > INT64_MAX - PRODUCER_IDS_PER_BLOCK:
            raise UnknownServerError("There are no producer ids left.")
        record = ProducerIdsRecord(operation.broker_id, operation.broker_epoch, first + PRODUCER_IDS_PER_BLOCK)
        return Decision([record], ProducerIdBlock(first, PRODUCER_IDS_PER_BLOCK))
