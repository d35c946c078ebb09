"""Bodies as Confluent's REST Proxy has them. Members that it knows and that mean nothing here are skipped."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from skidway.gateways.http.topics.shapes import Index, Timestamp


class RecordV2(Struct):
    key: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    partition: Index | UnsetType | None = UNSET
    timestamp: Timestamp | UnsetType | None = UNSET


class BodyV2(Struct):
    records: list[RecordV2]


class RawBodyV2(Struct):
    records: Raw


class OffsetV2(Struct):
    partition: int | None
    offset: int | None
    error_code: int | None = None
    """1: not to be sent again, 2: may be sent again."""
    error: str | None = None


class ProducedV2(Struct):
    offsets: list[OffsetV2]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


class ReplicaV2(Struct):
    broker: int
    leader: bool
    in_sync: bool


class PartitionV2(Struct):
    partition: int
    leader: int
    replicas: list[ReplicaV2]


class TopicV2(Struct):
    name: str
    configs: dict[str, str]
    partitions: list[PartitionV2]


class Failure(Struct):
    """Every answer that is not a success."""

    error_code: int
    message: str


class DataV3(Struct):
    type: Literal["BINARY", "JSON", "STRING"]
    data: Raw | UnsetType = UNSET


class HeaderV3(Struct):
    name: str
    value: str | None = None
    """In base64."""


class RecordV3(Struct):
    partition_id: Index | UnsetType | None = UNSET
    headers: list[HeaderV3] | UnsetType = UNSET
    key: DataV3 | UnsetType | None = UNSET
    value: DataV3 | UnsetType | None = UNSET
    timestamp: str | UnsetType | None = UNSET


class SizeV3(Struct):
    type: str
    size: int


class ReportV3(Struct):
    """Of one record."""

    error_code: int
    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int
    timestamp: str
    key: SizeV3 | UnsetType = UNSET
    value: SizeV3 | UnsetType = UNSET


class Related(Struct):
    related: str


class ResourceV3(Struct, omit_defaults=True):
    self: str
    resource_name: str | UnsetType = UNSET


class ListV3(Struct):
    self: str
    next: str | None = None


class ClusterV3(Struct):
    kind: str
    metadata: ResourceV3
    cluster_id: str
    controller: Related
    acls: Related
    brokers: Related
    broker_configs: Related
    consumer_groups: Related
    topics: Related
    partition_reassignments: Related


class ClustersV3(Struct):
    kind: str
    metadata: ListV3
    data: list[ClusterV3]
