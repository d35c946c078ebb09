"""confluent-kafka (librdkafka) behind the face of `clients`."""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
from clients import (
    ANSWER_TIMEOUT_S,
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
from confluent_kafka import admin as cka

OFFSET_OUT_OF_RANGE = 1


def refusal(error: ck.KafkaError) -> Refused:
    # librdkafka reports a position without a reset rule under a code of its own.
    code = OFFSET_OUT_OF_RANGE if error.code() == ck.KafkaError._AUTO_OFFSET_RESET else error.code()
    return Refused(code, error.str())


def result(future: "Future[Any]") -> Any:
    try:
        return future.result(timeout=ANSWER_TIMEOUT_S)
    except ck.KafkaException as error:
        raise refusal(error.args[0]) from error


class ConfluentProducer(Producer):
    def __init__(self, producer: ck.Producer) -> None:
        self.producer = producer

    def send(self, topic: str, messages: Sequence[Message]) -> list[Placement]:
        answers: list[Any] = [None] * len(messages)
        for index, message in enumerate(messages):
            options: dict[str, Any] = {}
            if message.timestamp_ms is not None:
                options["timestamp"] = message.timestamp_ms
            if message.partition is not None:
                options["partition"] = message.partition

            def delivered(error: Any, sent: Any, index: int = index) -> None:
                answers[index] = error or Placement(sent.partition(), sent.offset())

            try:
                self.producer.produce(
                    topic,
                    message.value,
                    message.key,
                    headers=list(message.headers) or None,
                    on_delivery=delivered,
                    **options,
                )
            except ck.KafkaException as error:
                raise refusal(error.args[0]) from error
        left = self.producer.flush(ANSWER_TIMEOUT_S)
        assert left == 0, f"{left} messages neither delivered nor refused"
        for answer in answers:
            if isinstance(answer, ck.KafkaError):
                raise refusal(answer)
        return answers


class ConfluentConsumer(Consumer):
    def __init__(self, consumer: ck.Consumer) -> None:
        self.consumer = consumer

    def assign(self, topic: str, positions: Mapping[int, int]) -> None:
        self.consumer.assign([ck.TopicPartition(topic, p, offset) for p, offset in positions.items()])

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.consumer.seek(ck.TopicPartition(topic, partition, offset))

    def take(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Received]:
        deadline = time.monotonic() + timeout_s
        found: list[Received] = []
        while len(found) < count and (left := deadline - time.monotonic()) > 0:
            for message in self.consumer.consume(count - len(found), timeout=min(left, 0.2)):
                error = message.error()
                if error is not None:
                    raise refusal(error)
                found.append(received(message))
        return found

    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int]:
        asked = [ck.TopicPartition(topic, p, at) for p, at in times.items()]
        return {tp.partition: tp.offset for tp in self.consumer.offsets_for_times(asked, timeout=ANSWER_TIMEOUT_S)}

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        try:
            low, high = self.consumer.get_watermark_offsets(ck.TopicPartition(topic, partition), ANSWER_TIMEOUT_S)
        except ck.KafkaException as error:
            raise refusal(error.args[0]) from error
        return low, high


def received(message: ck.Message) -> Received:
    kind, timestamp = message.timestamp()
    partition, offset = message.partition(), message.offset()
    headers: Any = message.headers() or ()
    assert partition is not None
    assert offset is not None
    return Received(
        partition,
        offset,
        message.key(),
        message.value(),
        tuple(headers),
        timestamp,
        1 if kind == ck.TIMESTAMP_LOG_APPEND_TIME else 0,
    )


class ConfluentAdmin(Admin):
    def __init__(self, admin: cka.AdminClient) -> None:
        self.admin = admin

    def create(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        topic = cka.NewTopic(name, partitions, replication, config=dict(configs or {}))
        result(self.admin.create_topics([topic], validate_only=validate_only)[name])

    def delete(self, name: str) -> None:
        result(self.admin.delete_topics([name])[name])

    def grow(self, name: str, partitions: int, validate_only: bool = False) -> None:
        result(self.admin.create_partitions([cka.NewPartitions(name, partitions)], validate_only=validate_only)[name])

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics)

    def describe(self, name: str) -> dict[int, Partition]:
        described = result(self.admin.describe_topics(ck.TopicCollection([name]))[name])
        return {
            p.id: Partition(
                -1 if p.leader is None else p.leader.id, tuple(n.id for n in p.replicas), tuple(n.id for n in p.isr)
            )
            for p in described.partitions
        }

    def cluster(self) -> Cluster:
        described = result(self.admin.describe_cluster())
        nodes = tuple(Node(n.id, n.host, n.port) for n in described.nodes)
        return Cluster(described.cluster_id, described.controller.id, nodes)

    def configs(self, name: str) -> dict[str, Config]:
        resource = cka.ConfigResource(cka.ConfigResource.Type.TOPIC, name)
        entries = result(self.admin.describe_configs([resource])[resource])
        return {
            entry.name: Config(
                entry.value,
                int(entry.source),
                bool(entry.is_read_only),
                bool(entry.is_sensitive),
                tuple(Synonym(s.name, s.value, int(s.source)) for s in entry.synonyms.values()),
            )
            for entry in entries.values()
        }

    def replace_configs(self, name: str, configs: Mapping[str, str]) -> None:
        resource = cka.ConfigResource(cka.ConfigResource.Type.TOPIC, name, set_config=dict(configs))
        result(self.admin.alter_configs([resource])[resource])

    def change_configs(self, name: str, changes: Sequence[tuple[Operation, str, str | None]]) -> None:
        entries = [
            cka.ConfigEntry(key, value, incremental_operation=cka.AlterConfigOpType[operation])
            for operation, key, value in changes
        ]
        resource = cka.ConfigResource(cka.ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        result(self.admin.incremental_alter_configs([resource])[resource])

    def delete_records(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        asked = [ck.TopicPartition(name, p, offset) for p, offset in before.items()]
        answers = self.admin.delete_records(asked)
        return {tp.partition: result(future).low_watermark for tp, future in answers.items()}

    def list_offsets(self, name: str, specs: Mapping[int, OffsetSpec]) -> dict[int, tuple[int, int]]:
        known: dict[str, Any] = {
            "earliest": cka.OffsetSpec.earliest,
            "latest": cka.OffsetSpec.latest,
            "max_timestamp": cka.OffsetSpec.max_timestamp,
        }
        asked = {}
        for partition, spec in specs.items():
            if isinstance(spec, str) and spec not in known:
                raise NotInThisClient(f"confluent-kafka has no offset spec {spec}")
            made = cka.OffsetSpec.for_timestamp(spec) if isinstance(spec, int) else known[spec]()
            asked[ck.TopicPartition(name, partition)] = made
        answers = {tp.partition: result(future) for tp, future in self.admin.list_offsets(asked).items()}
        return {partition: (answer.offset, answer.timestamp) for partition, answer in answers.items()}


class ConfluentClient(Client):
    name = "confluent-kafka"

    def lacks_codec(self, codec: str) -> str | None:
        return None

    @contextmanager
    def producer(self, options: ProducerOptions) -> Iterator[Producer]:
        producer = ck.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": options.codec,
                "acks": options.acks,
                "enable.idempotence": options.idempotent,
                "linger.ms": options.linger_ms,
                "message.max.bytes": options.request_bytes_max,
                "partitioner": "murmur2_random",
                "topic.metadata.propagation.max.ms": 1000,
                "log_level": 0,
            }
        )
        yield ConfluentProducer(producer)
        producer.purge()
        producer.flush(1)

    @contextmanager
    def consumer(self, options: ConsumerOptions) -> Iterator[Consumer]:
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                # librdkafka insists on a group name; with assign() and no commits it stays unused.
                "group.id": f"unused-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": {"none": "error"}.get(options.reset, options.reset),
                "fetch.wait.max.ms": options.max_wait_ms,
                "fetch.min.bytes": options.min_bytes,
                "max.partition.fetch.bytes": options.partition_bytes,
                "enable.partition.eof": False,
                "log_level": 0,
                **({"isolation.level": options.isolation} if options.isolation else {}),
            }
        )
        try:
            yield ConfluentConsumer(consumer)
        finally:
            consumer.close()

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        yield ConfluentAdmin(cka.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}))
