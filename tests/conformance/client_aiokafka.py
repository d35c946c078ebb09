"""aiokafka behind the face of `clients`: each object has a loop of its own that runs only during a call."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import aiokafka
from aiokafka import codec as aiokafka_codec
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, KafkaError, MessageSizeTooLargeError, OffsetOutOfRangeError
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

OFFSET_OUT_OF_RANGE = 1
MESSAGE_TOO_LARGE = 10


def refusal(error: KafkaError) -> Refused:
    if isinstance(error, OffsetOutOfRangeError):
        return Refused(OFFSET_OUT_OF_RANGE, str(error))
    if isinstance(error, MessageSizeTooLargeError):
        return Refused(MESSAGE_TOO_LARGE, str(error))
    if isinstance(error, BrokerResponseError):
        return Refused(error.errno, str(error))
    raise error


class Loop:
    def __init__(self) -> None:
        self.runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float = ANSWER_TIMEOUT_S + 1) -> Any:
        async def limited() -> Any:
            return await asyncio.wait_for(work, timeout_s)

        try:
            return self.runner.run(limited())
        except KafkaError as error:
            raise refusal(error) from error


class AiokafkaProducer(Producer):
    def __init__(self, loop: Loop, producer: aiokafka.AIOKafkaProducer) -> None:
        self.loop = loop
        self.producer = producer

    def send(self, topic: str, messages: Sequence[Message]) -> list[Placement]:
        sent: list[Placement] = self.loop.run(self._send(topic, messages))
        return sent

    async def _send(self, topic: str, messages: Sequence[Message]) -> list[Placement]:
        futures = [
            await self.producer.send(
                topic,
                message.value,
                message.key,
                partition=message.partition,
                timestamp_ms=message.timestamp_ms,
                headers=list(message.headers) or None,
            )
            for message in messages
        ]
        answers = await asyncio.gather(*futures)
        # With acks=0 aiokafka knows nothing of where a message went.
        return [Placement(answer.partition, answer.offset) if answer else Placement(-1, -1) for answer in answers]


class AiokafkaConsumer(Consumer):
    def __init__(self, loop: Loop, consumer: aiokafka.AIOKafkaConsumer) -> None:
        self.loop = loop
        self.consumer = consumer

    def assign(self, topic: str, positions: Mapping[int, int]) -> None:
        async def assign() -> None:
            self.consumer.assign([aiokafka.TopicPartition(topic, p) for p in positions])

        self.loop.run(assign())
        for partition, offset in positions.items():
            self.seek(topic, partition, offset)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        where = aiokafka.TopicPartition(topic, partition)
        if offset == BEGINNING:
            self.loop.run(self.consumer.seek_to_beginning(where))
        elif offset == END:
            self.loop.run(self.consumer.seek_to_end(where))
        else:
            self.consumer.seek(where, offset)

    def take(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Received]:
        taken: list[Received] = self.loop.run(self._take(count, timeout_s), timeout_s + 2)
        return taken

    async def _take(self, count: int, timeout_s: float) -> list[Received]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        found: list[Received] = []
        while len(found) < count and (left := deadline - loop.time()) > 0:
            polled = await self.consumer.getmany(timeout_ms=int(left * 1000), max_records=count - len(found))
            found += [received(record) for records in polled.values() for record in records]
        return found

    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int]:
        asked = {aiokafka.TopicPartition(topic, p): at for p, at in times.items()}
        found = self.loop.run(self.consumer.offsets_for_times(asked))
        return {tp.partition: END if where is None else where.offset for tp, where in found.items()}

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        where = aiokafka.TopicPartition(topic, partition)
        low = self.loop.run(self.consumer.beginning_offsets([where]))[where]
        return low, self.loop.run(self.consumer.end_offsets([where]))[where]


def received(record: Any) -> Received:
    headers = tuple((name, value) for name, value in record.headers)
    return Received(
        record.partition, record.offset, record.key, record.value, headers, record.timestamp, record.timestamp_type
    )


def checked(code: int, message: str | None) -> None:
    if code:
        raise Refused(code, message or "")


class AiokafkaAdmin(Admin):
    def __init__(self, loop: Loop, admin: AIOKafkaAdminClient) -> None:
        self.loop = loop
        self.admin = admin

    def create(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        topic = NewTopic(name, partitions, replication, topic_configs=dict(configs or {}))
        answer = self.loop.run(self.admin.create_topics([topic], validate_only=validate_only))
        for _, code, message in answer.topic_errors:
            checked(code, message)

    def delete(self, name: str) -> None:
        answer = self.loop.run(self.admin.delete_topics([name]))
        for _, code in answer.topic_error_codes:
            checked(code, None)

    def grow(self, name: str, partitions: int, validate_only: bool = False) -> None:
        asked = {name: NewPartitions(partitions)}
        answer = self.loop.run(self.admin.create_partitions(asked, validate_only=validate_only))
        for _, code, message in answer.topic_errors:
            checked(code, message)

    def topics(self) -> set[str]:
        return set(self.loop.run(self.admin.list_topics()))

    def describe(self, name: str) -> dict[int, Partition]:
        (described,) = self.loop.run(self.admin.describe_topics([name]))
        checked(described["error_code"], None)
        return {
            p["partition"]: Partition(p["leader"], tuple(p["replicas"]), tuple(p["isr"]))
            for p in described["partitions"]
        }

    def cluster(self) -> Cluster:
        described = self.loop.run(self.admin.describe_cluster())
        nodes = tuple(Node(n["node_id"], n["host"], n["port"]) for n in described["brokers"])
        return Cluster(described["cluster_id"], described["controller_id"], nodes)

    def configs(self, name: str) -> dict[str, Config]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        (answer,) = self.loop.run(self.admin.describe_configs([resource], include_synonyms=True))
        ((code, message, _, _, entries),) = answer.resources
        checked(code, message)
        return {
            key: Config(value, source, read_only, sensitive, tuple(Synonym(*synonym) for synonym in synonyms))
            for key, value, read_only, source, sensitive, synonyms in entries
        }

    def replace_configs(self, name: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, dict(configs))
        (answer,) = self.loop.run(self.admin.alter_configs([resource]))
        for code, message, *_ in answer.resources:
            checked(code, message)

    def change_configs(self, name: str, changes: Sequence[tuple[Operation, str, str | None]]) -> None:
        raise NotInThisClient("aiokafka has no incremental alter configs")

    def delete_records(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        asked = {aiokafka.TopicPartition(name, p): RecordsToDelete(offset) for p, offset in before.items()}
        answers = self.loop.run(self.admin.delete_records(asked))
        return {tp.partition: low for tp, low in answers.items()}

    def list_offsets(self, name: str, specs: Mapping[int, OffsetSpec]) -> dict[int, tuple[int, int]]:
        raise NotInThisClient("aiokafka has no admin call to list offsets")


class AiokafkaClient(Client):
    name = "aiokafka"

    def lacks_codec(self, codec: str) -> str | None:
        if codec == "none" or getattr(aiokafka_codec, f"has_{codec}")():
            return None
        return f"aiokafka needs a {codec} library that is not installed"

    @contextmanager
    def producer(self, options: ProducerOptions) -> Iterator[Producer]:
        loop = Loop()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if options.codec == "none" else options.codec,
                acks=options.acks,
                enable_idempotence=options.idempotent,
                linger_ms=options.linger_ms,
                max_request_size=options.request_bytes_max,
                request_timeout_ms=25_000,
            )
            await producer.start()
            return producer

        producer = loop.run(start())
        try:
            yield AiokafkaProducer(loop, producer)
        finally:
            loop.run(producer.stop())
            loop.runner.close()

    @contextmanager
    def consumer(self, options: ConsumerOptions) -> Iterator[Consumer]:
        loop = Loop()

        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset=options.reset,
                fetch_max_wait_ms=options.max_wait_ms,
                fetch_min_bytes=options.min_bytes,
                max_partition_fetch_bytes=options.partition_bytes,
                isolation_level=options.isolation or "read_uncommitted",
            )
            await consumer.start()
            return consumer

        consumer = loop.run(start())
        try:
            yield AiokafkaConsumer(loop, consumer)
        finally:
            loop.run(consumer.stop())
            loop.runner.close()

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        loop = Loop()

        async def start() -> AIOKafkaAdminClient:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            return admin

        admin = loop.run(start())
        try:
            yield AiokafkaAdmin(loop, admin)
        finally:
            loop.run(admin.close())
            loop.runner.close()
