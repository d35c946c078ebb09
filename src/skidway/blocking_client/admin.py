"""Topics, their configs and their offsets. Every method raises `BrokerError` with the broker's own words."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from skidway.blocking_client.cluster import RETRY_PAUSE_MS, Cluster, NoSuchTopic, Topic
from skidway.blocking_client.errors import BrokerError, check
from skidway.errors import ErrorCode
from skidway.wire.schema.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from skidway.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from skidway.wire.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from skidway.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from skidway.wire.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from skidway.wire.schema.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from skidway.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3

SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "broker settings",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}


@dataclass(slots=True)
class Config:
    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    documentation: str | None = None

    @property
    def is_set(self) -> bool:
        """Set on the resource itself and not inherited."""
        return self.source in ("topic", "broker")


@dataclass(slots=True)
class ConfigChange:
    name: str
    operation: int
    value: str | None = None


class Admin:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def topics(self) -> list[Topic]:
        return sorted(self.cluster.refresh().topics.values(), key=lambda topic: topic.name)

    def topic(self, name: str) -> Topic:
        return self.cluster.look_up(name)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
        about: str = "",
    ) -> None:
        """Returns when the topic's partitions have leaders: it can be written to at once. -1: the broker's default.
        `about`: how an error begins."""
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=self.cluster.timeout_ms, validate_only=validate_only)

        def ask() -> None:
            for result in self.cluster.ask_controller(request, CreateTopicsResponse).topics:
                check(result.error_code, about or f"cannot create topic {name}", result.error_message)

        self.cluster.retrying(ask)
        if not validate_only:
            self._await_leaders(name)

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=self.cluster.timeout_ms
        )
        reply = self.cluster.ask_controller(request, DeleteTopicsResponse)
        for result in reply.responses:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise NoSuchTopic(name)
            check(result.error_code, f"cannot delete topic {name}", result.error_message)
        self.cluster.forget(name)

    def grow_topic(self, name: str, partitions: int, *, validate_only: bool = False) -> None:
        """More partitions; fewer are not possible."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=partitions, assignments=None)],
            timeout_ms=self.cluster.timeout_ms,
            validate_only=validate_only,
        )
        for result in self.cluster.ask_controller(request, CreatePartitionsResponse).results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise NoSuchTopic(name)
            check(result.error_code, f"cannot grow topic {name}", result.error_message)
        if not validate_only:
            self._await_leaders(name, partitions)

    def topic_configs(self, name: str, *, documentation: bool = False) -> list[Config]:
        return self._configs(TOPIC_RESOURCE, name, f"topic {name}", documentation)

    def broker_configs(self, node_id: int, *, documentation: bool = False) -> list[Config]:
        return self._configs(BROKER_RESOURCE, str(node_id), f"broker {node_id}", documentation)

    def _configs(self, kind: int, name: str, about: str, documentation: bool) -> list[Config]:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_documentation=documentation)
        connection = self.cluster.any_broker()
        if kind == BROKER_RESOURCE:
            address = self.cluster.refresh([]).brokers.get(int(name))
            if address is None:
                raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, about, "there is no such broker")
            connection = self.cluster.connect(address)
        configs: list[Config] = []
        for result in connection.call(request, DescribeConfigsResponse).results:
            if kind == TOPIC_RESOURCE and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise NoSuchTopic(name)
            check(result.error_code, about, result.error_message)
            configs += [_config(entry) for entry in result.configs]
        return sorted(configs, key=lambda config: config.name)

    def alter_topic(
        self, name: str, changes: Iterable[ConfigChange], *, validate_only: bool = False, about: str = ""
    ) -> None:
        """`about`: how an error begins."""
        self._alter(TOPIC_RESOURCE, name, about or f"cannot alter topic {name}", changes, validate_only)

    def group_configs(self, name: str, *, documentation: bool = False) -> list[Config]:
        return self._configs(GROUP_RESOURCE, name, f"group {name}", documentation)

    def alter_group(self, name: str, changes: Iterable[ConfigChange], *, validate_only: bool = False) -> None:
        """The group need not exist."""
        self._alter(GROUP_RESOURCE, name, f"cannot alter group {name}", changes, validate_only)

    def alter_broker(
        self, node_id: int | None, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """None: the defaults of all brokers."""
        name, about = ("", "all brokers") if node_id is None else (str(node_id), f"broker {node_id}")
        self._alter(BROKER_RESOURCE, name, f"cannot alter {about}", changes, validate_only)

    def _alter(self, kind: int, name: str, about: str, changes: Iterable[ConfigChange], validate_only: bool) -> None:
        alterations = [
            AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
            for change in changes
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=alterations)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        for result in self.cluster.ask_controller(request, IncrementalAlterConfigsResponse).responses:
            if kind == TOPIC_RESOURCE and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise NoSuchTopic(name)
            check(result.error_code, about, result.error_message)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Drop what lies before an offset (-1: everything so far); answers the new start offsets by partition."""
        starts: dict[int, int] = {}
        for partition, offset in before.items():
            wanted = DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
            )
            request = DeleteRecordsRequest(topics=[wanted], timeout_ms=self.cluster.timeout_ms)
            reply = self.cluster.leader(topic, partition).call(request, DeleteRecordsResponse)
            for result in (result for answered in reply.topics for result in answered.partitions):
                check(result.error_code, f"{topic} partition {result.partition_index}")
                starts[result.partition_index] = result.low_watermark
        return starts

    def partition_bytes(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Bytes on the disks of the partitions' leaders, where there is one."""
        described = self.cluster.topic(topic).partitions
        by_leader: dict[int, list[int]] = {}
        for index in partitions:
            by_leader.setdefault(described[index].leader, []).append(index)
        sizes: dict[int, int] = {}
        for led in (led for leader, led in by_leader.items() if leader >= 0):
            request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=led)])
            reply = self.cluster.leader(topic, led[0]).call(request, DescribeLogDirsResponse)
            check(reply.error_code, f"asking for the size of {topic}")
            for entry in (
                entry for directory in reply.results for found in directory.topics for entry in found.partitions
            ):
                if not entry.is_future_key:
                    sizes[entry.partition_index] = entry.partition_size
        return sizes

    def _await_leaders(self, name: str, partitions: int = 1) -> None:
        """Brokers other than the controller learn of a new topic a moment later."""
        deadline = time.monotonic() + self.cluster.timeout_ms / 1000
        while time.monotonic() < deadline:
            try:
                described = self.cluster.look_up(name).partitions.values()
            except NoSuchTopic:
                described = {}.values()
            if len(described) >= partitions and all(partition.leader >= 0 for partition in described):
                return
            time.sleep(RETRY_PAUSE_MS / 1000)


def _config(entry: DescribeConfigsResourceResult) -> Config:
    return Config(
        name=entry.name,
        value=entry.value,
        source=SOURCES.get(entry.config_source, "unknown"),
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        documentation=entry.documentation,
    )
