"""Transactions of every client behind one face: a producer, and a member of a group whose offsets it commits.

Each adapter uses its client as an application would. `Fenced` says that another producer has the id now, in whatever
words the client has for it: such a producer is of no more use.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import aiokafka
import client_aiokafka as by_aiokafka
import client_confluent as by_confluent
import client_kafka_python as by_kafka_python
import confluent_kafka as ck
from aiokafka.errors import InvalidProducerEpoch as AiokafkaInvalidProducerEpoch
from aiokafka.errors import ProducerFenced as AiokafkaProducerFenced
from clients import ANSWER_TIMEOUT_S, Message, Placement, Refused
from kafka.errors import InvalidProducerEpochError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

import kafka

POLL_S = 0.2
FENCING = (ck.KafkaError._FENCED, ck.KafkaError.PRODUCER_FENCED, ck.KafkaError.INVALID_PRODUCER_EPOCH)


class Fenced(Exception):
    """Another producer has the transactional id."""


@dataclass(frozen=True)
class Options:
    transactional_id: str
    timeout_ms: int = 60_000
    codec: str = "none"
    linger_ms: int = 5
    batch_bytes: int = 16_384


class Member(ABC):
    """Reads a topic in a group and commits nothing itself."""

    @abstractmethod
    def poll(self) -> list[tuple[int, int, bytes]]:
        """(partition, offset, value) of what came within a moment."""


class TransactionalProducer(ABC):
    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, messages: Sequence[Message]) -> list[Placement]:
        """Sends all, waits for all."""

    @abstractmethod
    def send_offsets(self, member: Member, topic: str, offsets: Mapping[int, int]) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...


@dataclass(frozen=True)
class Transacting:
    name: str
    producer: Callable[..., Any]
    """(bootstrap, options): a context with an initialised producer. Leaving it closes the producer, and no more."""
    member: Callable[..., Any]
    """(bootstrap, group, topic): a context with a member that reads what is committed."""


# ------------------------------------------------------------------------------------------------ confluent-kafka


class ConfluentTransactional(TransactionalProducer):
    def __init__(self, producer: ck.Producer) -> None:
        self.producer = producer
        self.writer = by_confluent.ConfluentProducer(producer)

    def _asking(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except ck.KafkaException as error:
            if error.args[0].code() in FENCING:
                raise Fenced from error
            raise

    def begin(self) -> None:
        self._asking(self.producer.begin_transaction)

    def send(self, topic: str, messages: Sequence[Message]) -> list[Placement]:
        try:
            return self.writer.send(topic, messages)
        except (Refused, ck.KafkaException) as error:
            code = error.code if isinstance(error, Refused) else error.args[0].code()
            if code in FENCING:
                raise Fenced from error
            raise

    def send_offsets(self, member: Member, topic: str, offsets: Mapping[int, int]) -> None:
        assert isinstance(member, ConfluentMember)
        listed = [ck.TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        who = member.consumer.consumer_group_metadata()
        self._asking(self.producer.send_offsets_to_transaction, listed, who, ANSWER_TIMEOUT_S)

    def commit(self) -> None:
        self._asking(self.producer.commit_transaction, ANSWER_TIMEOUT_S)

    def abort(self) -> None:
        self._asking(self.producer.abort_transaction, ANSWER_TIMEOUT_S)


class ConfluentMember(Member):
    def __init__(self, consumer: ck.Consumer) -> None:
        self.consumer = consumer

    def poll(self) -> list[tuple[int, int, bytes]]:
        found = []
        for message in self.consumer.consume(1000, POLL_S):
            assert message.error() is None, message.error()
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert isinstance(value, bytes)
            found.append((partition, offset, value))
        return found


@contextmanager
def confluent_producer(bootstrap: str, options: Options) -> Iterator[TransactionalProducer]:
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": options.transactional_id,
            "transaction.timeout.ms": options.timeout_ms,
            "message.timeout.ms": min(options.timeout_ms, 30_000),
            "compression.type": options.codec,
            "linger.ms": options.linger_ms,
            "batch.size": options.batch_bytes,
            "log_level": 0,
        }
    )
    producer.init_transactions(ANSWER_TIMEOUT_S)
    yield ConfluentTransactional(producer)
    with contextlib.suppress(ck.KafkaException):  # of a fenced producer everything fails
        producer.purge()
        producer.flush(1)


@contextmanager
def confluent_member(bootstrap: str, group: str, topic: str) -> Iterator[Member]:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    try:
        yield ConfluentMember(consumer)
    finally:
        consumer.close()


# --------------------------------------------------------------------------------------------------- kafka-python


class KafkaPythonTransactional(TransactionalProducer):
    def __init__(self, producer: kafka.KafkaProducer) -> None:
        self.producer = producer

    def _asking(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except (ProducerFencedError, InvalidProducerEpochError) as error:
            raise Fenced from error

    def begin(self) -> None:
        self._asking(self.producer.begin_transaction)

    def send(self, topic: str, messages: Sequence[Message]) -> list[Placement]:
        send = self.producer.send
        futures = [self._asking(send, topic, one.value, one.key, partition=one.partition) for one in messages]
        answers = [self._asking(future.get, timeout=ANSWER_TIMEOUT_S) for future in futures]
        return [Placement(answer.partition, answer.offset) for answer in answers]

    def send_offsets(self, member: Member, topic: str, offsets: Mapping[int, int]) -> None:
        assert isinstance(member, KafkaPythonMember)
        listed = {kafka.TopicPartition(topic, p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()}
        self._asking(self.producer.send_offsets_to_transaction, listed, member.consumer.group_metadata())

    def commit(self) -> None:
        self._asking(self.producer.commit_transaction)

    def abort(self) -> None:
        self._asking(self.producer.abort_transaction)


class KafkaPythonMember(Member):
    def __init__(self, consumer: kafka.KafkaConsumer) -> None:
        self.consumer = consumer

    def poll(self) -> list[tuple[int, int, bytes]]:
        # Longer than the others: a poll that ends in a rebalance leaves it without partitions.
        polled = self.consumer.poll(timeout_ms=800)
        return [(one.partition, one.offset, one.value) for records in polled.values() for one in records]


@contextmanager
def kafka_python_producer(bootstrap: str, options: Options) -> Iterator[TransactionalProducer]:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=options.transactional_id,
        transaction_timeout_ms=options.timeout_ms,
        compression_type=None if options.codec == "none" else options.codec,
        linger_ms=options.linger_ms,
        batch_size=options.batch_bytes,
        max_block_ms=ANSWER_TIMEOUT_S * 1000,
    )
    try:
        producer.init_transactions()
        yield KafkaPythonTransactional(producer)
    finally:
        producer.close(timeout=0)


@contextmanager
def kafka_python_member(bootstrap: str, group: str, topic: str) -> Iterator[Member]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=100,
    )
    try:
        yield KafkaPythonMember(consumer)
    finally:
        consumer.close()


# ------------------------------------------------------------------------------------------------------- aiokafka


class AiokafkaTransactional(TransactionalProducer):
    def __init__(self, loop: asyncio.Runner, producer: aiokafka.AIOKafkaProducer) -> None:
        self.loop = loop
        self.producer = producer

    def _run(self, work: Any) -> Any:
        async def limited() -> Any:
            return await asyncio.wait_for(work, ANSWER_TIMEOUT_S)

        try:
            return self.loop.run(limited())
        except (AiokafkaProducerFenced, AiokafkaInvalidProducerEpoch) as error:
            raise Fenced from error

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, messages: Sequence[Message]) -> list[Placement]:
        async def send() -> list[Placement]:
            sent = [await self.producer.send(topic, one.value, one.key, partition=one.partition) for one in messages]
            return [Placement(answer.partition, answer.offset) for answer in await asyncio.gather(*sent)]

        placements: list[Placement] = self._run(send())
        return placements

    def send_offsets(self, member: Member, topic: str, offsets: Mapping[int, int]) -> None:
        assert isinstance(member, AiokafkaMember)
        listed = {aiokafka.TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        self._run(self.producer.send_offsets_to_transaction(listed, member.group))

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())


class AiokafkaMember(Member):
    def __init__(self, loop: asyncio.Runner, consumer: aiokafka.AIOKafkaConsumer, group: str) -> None:
        self.loop = loop
        self.consumer = consumer
        self.group = group

    def poll(self) -> list[tuple[int, int, bytes]]:
        async def poll() -> Any:
            return await self.consumer.getmany(timeout_ms=int(POLL_S * 1000))

        polled = self.loop.run(poll())
        return [(one.partition, one.offset, one.value) for records in polled.values() for one in records]


@contextmanager
def aiokafka_producer(bootstrap: str, options: Options) -> Iterator[TransactionalProducer]:
    with asyncio.Runner() as loop:

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=options.transactional_id,
                transaction_timeout_ms=options.timeout_ms,
                compression_type=None if options.codec == "none" else options.codec,
                linger_ms=options.linger_ms,
                max_batch_size=options.batch_bytes,
                request_timeout_ms=25_000,
            )
            await producer.start()
            return producer

        producer = loop.run(start())
        try:
            yield AiokafkaTransactional(loop, producer)
        finally:

            async def stop() -> None:
                # It would wait for a transaction that is open, or for messages that a fenced producer has left.
                try:
                    await asyncio.wait_for(producer.stop(), 1)
                except (TimeoutError, AiokafkaProducerFenced):
                    await producer.client.close()

            loop.run(stop())


@contextmanager
def aiokafka_member(bootstrap: str, group: str, topic: str) -> Iterator[Member]:
    with asyncio.Runner() as loop:

        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                fetch_max_wait_ms=100,
            )
            await consumer.start()
            return consumer

        consumer = loop.run(start())
        try:
            yield AiokafkaMember(loop, consumer, group)
        finally:
            loop.run(consumer.stop())


TRANSACTING = (
    Transacting(by_confluent.ConfluentClient.name, confluent_producer, confluent_member),
    Transacting(by_kafka_python.KafkaPythonClient.name, kafka_python_producer, kafka_python_member),
    Transacting(by_aiokafka.AiokafkaClient.name, aiokafka_producer, aiokafka_member),
)
