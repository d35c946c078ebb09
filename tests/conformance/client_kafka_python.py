"""kafka-python behind the face of `clients`."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from clients import (
    ANSWER_TIMEOUT_S,
    BEGINNING,
    END,
    Admin,
    Client,
    Cluster,
    Config,
    Consumer,
    ConsumerOptions,
    Message,
    Node,
    NotInThisClient,
    OffsetSpec,
    Operation,
    Partition,
    Placement,
    Producer,
    ProducerOptions,
    Received,
    Refused,
    Synonym,
)
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.admin._configs import ConfigSourceType
from kafka.errors import BrokerResponseError, KafkaError, for_code
from kafka.protocol.consumer import OffsetSpec as KafkaOffsetSpec

import kafka
from kafka import codec as kafka_codec


def refusal(error: KafkaError) -> Refused:
    if isinstance(error, BrokerResponseError) and error.errno is not None:
        return Refused(error.errno, str(error))
    raise error


def asking(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return call(*arguments, **options)
    except KafkaError as error:
        raise refusal(error) from error


class KafkaPythonProducer(Producer):
    def __init__(self, producer: kafka.KafkaProducer) -> None:
        self.producer = producer

    def send(self, topic: str, messages: Sequence[Message]) -> list[Placement]:
        if any(value is None for message in messages for _, value in message.headers):
            raise NotInThisClient("kafka-python takes no null header values")
        futures = [
            asking(
                self.producer.send,
                topic,
                message.value,
                message.key,
                headers=list(message.headers) or None,
                partition=message.partition,
                timestamp_ms=message.timestamp_ms,
            )
            for message in messages
        ]
        answers = [asking(future.get, timeout=ANSWER_TIMEOUT_S) for future in futures]
        return [Placement(answer.partition, answer.offset) for answer in answers]


class KafkaPythonConsumer(Consumer):
    def __init__(self, consumer: kafka.KafkaConsumer) -> None:
        self.consumer = consumer

    def assign(self, topic: str, positions: Mapping[int, int]) -> None:
        self.consumer.assign([kafka.TopicPartition(topic, p) for p in positions])
        for partition, offset in positions.items():
            self.seek(topic, partition, offset)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        where = kafka.TopicPartition(topic, partition)
        if offset == BEGINNING:
            self.consumer.seek_to_beginning(where)
        elif offset == END:
            self.consumer.seek_to_end(where)
            self.consumer.position(where)
        else:
            self.consumer.seek(where, offset)

    def take(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Received]:
        deadline = time.monotonic() + timeout_s
        found: list[Received] = []
        while len(found) < count and (left := deadline - time.monotonic()) > 0:
            polled = asking(self.consumer.poll, timeout_ms=int(min(left, 0.5) * 1000), max_records=count - len(found))
            found += [received(record) for records in polled.values() for record in records]
        return found

    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int]:
        asked = {kafka.TopicPartition(topic, p): at for p, at in times.items()}
        found = self.consumer.offsets_for_times(asked)
        return {tp.partition: END if where is None else where.offset for tp, where in found.items()}

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        where = kafka.TopicPartition(topic, partition)
        low = asking(self.consumer.beginning_offsets, [where])[where]
        return low, asking(self.consumer.end_offsets, [where])[where]


def received(record: Any) -> Received:
    headers = tuple((name, value) for name, value in record.headers)
    return Received(
        record.partition, record.offset, record.key, record.value, headers, record.timestamp, record.timestamp_type
    )


class KafkaPythonAdmin(Admin):
    def __init__(self, admin: kafka.KafkaAdminClient) -> None:
        self.admin = admin

    def create(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        spec = {"num_partitions": partitions, "replication_factor": replication, "configs": dict(configs or {})}
        asking(self.admin.create_topics, {name: spec}, validate_only=validate_only)

    def delete(self, name: str) -> None:
        asking(self.admin.delete_topics, [name])

    def grow(self, name: str, partitions: int, validate_only: bool = False) -> None:
        asking(self.admin.create_partitions, {name: partitions}, validate_only=validate_only)

    def topics(self) -> set[str]:
        return set(self.admin.list_topics())

    def describe(self, name: str) -> dict[int, Partition]:
        (described,) = self.admin.describe_topics([name])
        if described["error_code"]:
            raise Refused(described["error_code"])
        return {
            p["partition_index"]: Partition(p["leader_id"], tuple(p["replica_nodes"]), tuple(p["isr_nodes"]))
            for p in described["partitions"]
        }

    def cluster(self) -> Cluster:
        described = self.admin.describe_cluster()
        nodes = tuple(Node(n.get("broker_id", n.get("node_id")), n["host"], n["port"]) for n in described["brokers"])
        return Cluster(described["cluster_id"], described["controller_id"], nodes)

    def configs(self, name: str) -> dict[str, Config]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        described = self.admin.describe_configs([resource], include_synonyms=True, config_filter="all")
        return {
            key: Config(
                entry["value"],
                ConfigSourceType[entry["config_source"]].value,
                entry["read_only"],
                entry["is_sensitive"],
                tuple(Synonym(s["name"], s["value"], ConfigSourceType[s["source"]].value) for s in entry["synonyms"]),
            )
            for key, entry in described["topic"][name].items()
        }

    def replace_configs(self, name: str, configs: Mapping[str, str]) -> None:
        # The public call fills in what is missing, which would hide the replacing: send the plain request.
        resource = ConfigResource(ConfigResourceType.TOPIC, name, dict(configs))
        self._alter(resource, incremental=False)

    def change_configs(self, name: str, changes: Sequence[tuple[Operation, str, str | None]]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, {key: (op, value) for op, key, value in changes})
        self._alter(resource, incremental=True)

    def _alter(self, resource: Any, incremental: bool) -> None:
        # The public call turns the error into a sentence; the code is needed here.
        request = self.admin._alter_configs_request([resource], False, incremental)
        response = self.admin._manager.run(self.admin._manager.send, request)
        (answer,) = response.responses
        if answer.error_code:
            raise refusal(for_code(answer.error_code)(answer.error_message))

    def delete_records(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        asked = {kafka.TopicPartition(name, p): offset for p, offset in before.items()}
        answers = asking(self.admin.delete_records, asked)
        return {tp.partition: answer["low_watermark"] for tp, answer in answers.items()}

    def list_offsets(self, name: str, specs: Mapping[int, OffsetSpec]) -> dict[int, tuple[int, int]]:
        asked = {
            kafka.TopicPartition(name, p): spec if isinstance(spec, int) else KafkaOffsetSpec[spec.upper()]
            for p, spec in specs.items()
        }
        answers = asking(self.admin.list_partition_offsets, asked)
        return {tp.partition: (answer.offset, answer.timestamp) for tp, answer in answers.items()}


class KafkaPythonClient(Client):
    name = "kafka-python"

    def lacks_codec(self, codec: str) -> str | None:
        if codec == "none" or getattr(kafka_codec, f"has_{codec}")():
            return None
        return f"kafka-python needs a {codec} library that is not installed"

    @contextmanager
    def producer(self, options: ProducerOptions) -> Iterator[Producer]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if options.codec == "none" else options.codec,
            acks=options.acks,
            enable_idempotence=options.idempotent,
            linger_ms=options.linger_ms,
            max_request_size=options.request_bytes_max,
            max_block_ms=ANSWER_TIMEOUT_S * 1000,
        )
        try:
            yield KafkaPythonProducer(producer)
        finally:
            producer.close(timeout=2)

    @contextmanager
    def consumer(self, options: ConsumerOptions) -> Iterator[Consumer]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset=options.reset,
            fetch_max_wait_ms=options.max_wait_ms,
            fetch_min_bytes=options.min_bytes,
            max_partition_fetch_bytes=options.partition_bytes,
            isolation_level=options.isolation or "read_uncommitted",
        )
        try:
            yield KafkaPythonConsumer(consumer)
        finally:
            consumer.close()

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        admin = kafka.KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            yield KafkaPythonAdmin(admin)
        finally:
            admin.close()
