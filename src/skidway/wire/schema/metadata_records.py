"""The records of the cluster's metadata log, as KRaft writes them; `key` is the record's type."""

from skidway.ports import Buffer
from skidway.wire.message import Message, array, blob, boolean, float64, int8, int16, int32, int64, string, uint16, uuid


class AbortTransactionRecord(Message, key=25, versions="0", flexible="0+"):
    reason: str | None = string("0+", default=None, nullable="0+", tag=0)


class AccessControlEntryRecord(Message, key=18, versions="0", flexible="0+"):
    id: bytes = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class BeginTransactionRecord(Message, key=23, versions="0", flexible="0+"):
    name: str | None = string("0+", default=None, nullable="0+", tag=0)


class BrokerRegistrationChangeRecord(Message, key=17, versions="0-2", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[bytes] = array("uuid", "2+", tag=2)


class EntityData(Message):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ClientQuotaRecord(Message, key=14, versions="0", flexible="0+"):
    entity: list[EntityData] = array(EntityData, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class ConfigRecord(Message, key=4, versions="0", flexible="0+"):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class DelegationTokenRecord(Message, key=10, versions="0", flexible="0+"):
    owner: str = string("0+")
    requester: str = string("0+")
    renewers: list[str] = array("string", "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")


class EndTransactionRecord(Message, key=24, versions="0", flexible="0+"):
    pass


class FeatureLevelRecord(Message, key=12, versions="0", flexible="0+"):
    name: str = string("0+")
    feature_level: int = int16("0+")


class FenceBrokerRecord(Message, key=7, versions="0", flexible="0+"):
    id: int = int32("0+")
    epoch: int = int64("0+")


class NoOpRecord(Message, key=20, versions="0", flexible="0+"):
    pass


class PartitionChangeRecord(Message, key=5, versions="0-2", flexible="0+"):
    partition_id: int = int32("0+", default=-1)
    topic_id: bytes = uuid("0+")
    isr: list[int] | None = array("int32", "0+", default=None, nullable="0+", tag=0)
    leader: int = int32("0+", default=-2, tag=1)
    replicas: list[int] | None = array("int32", "0+", default=None, nullable="0+", tag=2)
    removing_replicas: list[int] | None = array("int32", "0+", default=None, nullable="0+", tag=3)
    adding_replicas: list[int] | None = array("int32", "0+", default=None, nullable="0+", tag=4)
    leader_recovery_state: int = int8("0+", default=-1, tag=5)
    directories: list[bytes] | None = array("uuid", "1+", default=None, nullable="1+", tag=8)
    eligible_leader_replicas: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=6)
    last_known_elr: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=7)


class PartitionRecord(Message, key=3, versions="0-2", flexible="0+"):
    partition_id: int = int32("0+", default=-1)
    topic_id: bytes = uuid("0+")
    replicas: list[int] = array("int32", "0+")
    isr: list[int] = array("int32", "0+")
    removing_replicas: list[int] = array("int32", "0+")
    adding_replicas: list[int] = array("int32", "0+")
    leader: int = int32("0+", default=-1)
    leader_recovery_state: int = int8("0+", tag=0)
    leader_epoch: int = int32("0+", default=-1)
    partition_epoch: int = int32("0+", default=-1)
    directories: list[bytes] = array("uuid", "1+")
    eligible_leader_replicas: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=1)
    last_known_elr: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=2)


class ProducerIdsRecord(Message, key=15, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")


class BrokerEndpoint(Message):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class BrokerFeature(Message):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterBrokerRecord(Message, key=0, versions="0-3", flexible="0+"):
    broker_id: int = int32("0+")
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint, "0+")
    features: list[BrokerFeature] = array(BrokerFeature, "0+")
    rack: str | None = string("0+", nullable="0+")
    fenced: bool = boolean("0+", default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array("uuid", "3+", tag=0)


class ControllerEndpoint(Message):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class ControllerFeature(Message):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterControllerRecord(Message, key=27, versions="0", flexible="0+"):
    controller_id: int = int32("0+")
    incarnation_id: bytes = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint, "0+")
    features: list[ControllerFeature] = array(ControllerFeature, "0+")


class RemoveAccessControlEntryRecord(Message, key=19, versions="0", flexible="0+"):
    id: bytes = uuid("0+")


class RemoveDelegationTokenRecord(Message, key=26, versions="0", flexible="0+"):
    token_id: str = string("0+")


class RemoveTopicRecord(Message, key=9, versions="0", flexible="0+"):
    topic_id: bytes = uuid("0+")


class RemoveUserScramCredentialRecord(Message, key=22, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")


class TopicRecord(Message, key=2, versions="0", flexible="0+"):
    name: str = string("0+")
    topic_id: bytes = uuid("0+")


class UnfenceBrokerRecord(Message, key=8, versions="0", flexible="0+"):
    id: int = int32("0+")
    epoch: int = int64("0+")


class UnregisterBrokerRecord(Message, key=1, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")


class UserScramCredentialRecord(Message, key=11, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: Buffer = blob("0+")
    stored_key: Buffer = blob("0+")
    server_key: Buffer = blob("0+")
    iterations: int = int32("0+")
