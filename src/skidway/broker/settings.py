"""What a node is told about itself when it starts."""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256

import msgspec

from skidway.broker.listeners import Listeners
from skidway.groups.settings import MINUTE_MS, GroupSettings
from skidway.limits import DEFAULT_SEND_BUFFER_BYTES, Limits
from skidway.metadata import topic_configs
from skidway.quorum.settings import QuorumSettings
from skidway.shares.coordinator.settings import ShareCoordinatorSettings
from skidway.transactions.settings import TransactionSettings


class UpkeepSettings(msgspec.Struct, kw_only=True):
    """What is done in the background, and how often."""

    retention_check_ms: int = 300_000
    checkpoint_ms: int = 60_000
    compaction_check_ms: int = 15_000
    scrub_interval_ms: int = 604_800_000
    """Everything stored is read and checked once in this time; 0: never."""
    scrub_bytes_per_second: int = 8 << 20
    heartbeat_ms: int = 200


class NodeSettings(UpkeepSettings, kw_only=True):
    node_id: int
    listeners: Listeners
    data_dir: str
    """For display only: the disk knows where it is."""
    cluster_id: str | None = None
    """None: whatever the data directory says, or a new one."""
    auto_create_topics: bool = True
    default_partitions: int = 1
    default_replication_factor: int = 1
    topic_defaults: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Topic settings (`retention.ms`, `flush`, …) for topics that have none of their own."""
    groups: GroupSettings = msgspec.field(default_factory=GroupSettings)
    transactions: TransactionSettings = msgspec.field(default_factory=TransactionSettings)
    shares: ShareCoordinatorSettings = msgspec.field(default_factory=ShareCoordinatorSettings)
    voters: list[tuple[int, str, int]] = msgspec.field(default_factory=list)
    """(node id, host, port) of those who keep the metadata, for the first start. Empty: this node, alone."""
    roles: frozenset[str] = frozenset({"broker", "controller"})
    rack: str | None = None
    session_timeout_ms: int = 1_200
    replica_lag_ms: int = 10_000
    quorum: QuorumSettings = msgspec.field(default_factory=QuorumSettings)
    peer_addresses: Mapping[int, tuple[str, int]] = msgspec.field(default_factory=dict)
    """For tests: where a node is reached, whatever it says of itself."""
    authenticates: bool = False
    """Whether callers prove who they are. Only tests set it: there is no authentication yet."""
    send_buffer_bytes: int = DEFAULT_SEND_BUFFER_BYTES
    """Obeyed by the shell; known here to be shown."""

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def initial_cluster_id(self) -> str | None:
        """What a new data directory is for. Nodes with the same first voters form one cluster."""
        if self.cluster_id is not None or not self.voters:
            return self.cluster_id
        text = ",".join(f"{node_id}@{host}:{port}" for node_id, host, port in sorted(self.voters))
        return urlsafe_b64encode(sha256(text.encode()).digest()[:16]).decode().rstrip("=")

    def validate(self) -> None:
        """Raises InvalidConfig for a topic default that is unknown or not obeyed."""
        topic_configs.validate(self.topic_defaults)

    def _group_configs(self) -> dict[str, str]:
        groups = self.groups
        return {
            "group.consumer.heartbeat.interval.ms": str(groups.consumer_heartbeat_interval_ms),
            "group.consumer.max.heartbeat.interval.ms": str(groups.consumer_heartbeat_interval_ms_max),
            "group.consumer.max.session.timeout.ms": str(groups.consumer_session_timeout_ms_max),
            "group.consumer.max.size": str(groups.consumer_size_max),
            "group.consumer.min.heartbeat.interval.ms": str(groups.consumer_heartbeat_interval_ms_min),
            "group.consumer.min.session.timeout.ms": str(groups.consumer_session_timeout_ms_min),
            "group.consumer.session.timeout.ms": str(groups.consumer_session_timeout_ms),
            "group.initial.rebalance.delay.ms": str(groups.initial_rebalance_delay_ms),
            "group.max.session.timeout.ms": str(groups.session_timeout_ms_max),
            "group.max.size": str(groups.size_max),
            "group.min.session.timeout.ms": str(groups.session_timeout_ms_min),
            "offset.metadata.max.bytes": str(groups.offset_metadata_bytes_max),
            "offsets.retention.check.interval.ms": str(groups.retention_check_ms),
            "offsets.retention.minutes": str(groups.retention_ms // MINUTE_MS),
            "offsets.topic.num.partitions": str(groups.offsets_partitions),
        }

    def _share_configs(self) -> dict[str, str]:
        groups, shares = self.groups, self.shares
        return {
            "group.share.delivery.count.limit": str(groups.share_deliveries),
            "group.share.heartbeat.interval.ms": str(groups.share_heartbeat_interval_ms),
            "group.share.max.delivery.count.limit": str(groups.share_deliveries_max),
            "group.share.max.heartbeat.interval.ms": str(groups.share_heartbeat_interval_ms_max),
            "group.share.max.partition.max.record.locks": str(groups.share_locks_max),
            "group.share.max.record.lock.duration.ms": str(groups.share_lock_ms_max),
            "group.share.max.session.timeout.ms": str(groups.share_session_timeout_ms_max),
            "group.share.max.share.sessions": str(groups.share_sessions_max),
            "group.share.max.size": str(groups.share_size_max),
            "group.share.min.delivery.count.limit": str(groups.share_deliveries_min),
            "group.share.min.heartbeat.interval.ms": str(groups.share_heartbeat_interval_ms_min),
            "group.share.min.partition.max.record.locks": str(groups.share_locks_min),
            "group.share.min.record.lock.duration.ms": str(groups.share_lock_ms_min),
            "group.share.min.session.timeout.ms": str(groups.share_session_timeout_ms_min),
            "group.share.partition.max.record.locks": str(groups.share_locks),
            "group.share.record.lock.duration.ms": str(groups.share_lock_ms),
            "group.share.session.timeout.ms": str(groups.share_session_timeout_ms),
            "share.coordinator.snapshot.update.records.per.snapshot": str(shares.updates_per_snapshot),
            "share.coordinator.state.topic.min.isr": str(shares.state_in_sync_min),
            "share.coordinator.state.topic.num.partitions": str(shares.state_partitions),
            "share.coordinator.state.topic.segment.bytes": str(shares.state_segment_bytes),
            "share.coordinator.write.timeout.ms": str(shares.write_timeout_ms),
        }

    def _transaction_configs(self) -> dict[str, str]:
        transactions = self.transactions
        return {
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(transactions.timeout_check_ms),
            "transaction.max.timeout.ms": str(transactions.timeout_ms_max),
            "transaction.remove.expired.transaction.cleanup.interval.ms": str(transactions.id_expiration_check_ms),
            "transaction.state.log.num.partitions": str(transactions.state_partitions),
            "transactional.id.expiration.ms": str(transactions.id_expiration_ms),
        }

    def static_configs(self, limits: Limits) -> dict[str, str]:
        """The same under the names Kafka's tools know them by."""
        addresses = ",".join(f"{spec.name}://{spec.advertised.host}:{spec.advertised.port}" for spec in self.listeners)
        broker_names = {
            topic_configs.TOPIC_KEYS[name].broker_names[0].name: value
            for name, value in self.topic_defaults.items()
            if topic_configs.TOPIC_KEYS[name].broker_names
        }
        return {
            "advertised.listeners": addresses,
            "auto.create.topics.enable": str(self.auto_create_topics).lower(),
            "broker.heartbeat.interval.ms": str(self.heartbeat_ms),
            "broker.id": str(self.node_id),
            "broker.rack": self.rack or "",
            "broker.session.timeout.ms": str(self.session_timeout_ms),
            "connections.max.idle.ms": str(limits.connection_idle_ms),
            "controller.quorum.voters": ",".join(f"{node_id}@{host}:{port}" for node_id, host, port in self.voters),
            "default.replication.factor": str(self.default_replication_factor),
            "fetch.max.bytes": str(limits.fetch_bytes_max),
            "inter.broker.listener.name": self.listeners.inter_broker.name,
            "listeners": addresses,
            **self._group_configs(),
            **self._share_configs(),
            **self._transaction_configs(),
            "log.cleaner.backoff.ms": str(self.compaction_check_ms),
            "log.cleaner.dedupe.buffer.size": str(limits.compaction_bytes_max),
            "log.dir": self.data_dir,
            "log.retention.check.interval.ms": str(self.retention_check_ms),
            "max.connections": str(limits.connections_max),
            "max.connections.per.ip": str(limits.connections_per_ip_max),
            "node.id": str(self.node_id),
            "num.partitions": str(self.default_partitions),
            "process.roles": ",".join(sorted(self.roles)),
            "producer.id.expiration.ms": str(limits.producer_expiry_ms),
            "replica.lag.time.max.ms": str(self.replica_lag_ms),
            "socket.send.buffer.bytes": str(self.send_buffer_bytes),
            "socket.request.max.bytes": str(limits.frame_bytes_max),
            **broker_names,
        }
