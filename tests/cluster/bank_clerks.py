"""Clerks of the bank: clients of both generations that carry out orders, each order in a transaction.

A clerk goes on whatever happens: where its client cannot, it takes its transactional id again, asks the group for the
next order, and so learns what became of the transfer that nobody answered.
"""

import contextlib
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from enum import Enum, auto

from bank import GROUP, ORDERS, Notes, Order, Place, Transfer, read_order
from cluster_history import QUICK, close
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as SteadyProducer

from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.coordinators import Coordinators, CoordinatorType
from skidway.blocking_client.errors import (
    STALE_METADATA,
    BrokerError,
    ClientError,
    ConnectionLost,
    ReplyTimeout,
    Unreachable,
    check,
)
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.offsets import READ_COMMITTED
from skidway.blocking_client.reader import Reader, by_topic
from skidway.blocking_client.transactions import Producer, Transactions
from skidway.errors import ErrorCode
from skidway.records.record import Record, build_batch
from skidway.wire.schema.end_txn import EndTxnRequest, EndTxnResponse
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

PATIENCE_S = 90.0
PAUSE_S = 0.02
ANSWER_MS = 20_000
TIMEOUT_MS = 60_000
NAMED_PRODUCE = 12
ACKS_ALL = -1
ORDERS_AT_ONCE = 200
ORDERS_BYTES = 32 * 1024
ABORT_EVERY = 8
"""Of so many orders one is aborted first, on purpose."""


class End(Enum):
    COMMITTED = auto()
    ABORTED = auto()


class Stuck(Exception):
    """The client is of no more use; what became of the last transfer has to be found out."""


class Clerk(threading.Thread, ABC):
    """One branch, one transactional id."""

    def __init__(self, bootstrap: str, branch: int) -> None:
        super().__init__(daemon=True, name=f"clerk-{branch}")
        self.bootstrap = bootstrap
        self.branch = branch
        self.id = f"clerk-{branch}"
        self.place: Place = (ORDERS, branch)
        self.notes = Notes()
        self.lives = 0
        self.open_for_business = threading.Event()
        self.open_for_business.set()
        self.idle = threading.Event()
        """No transaction of this clerk is open, and none begins before the bank opens again. `close` clears it."""
        self.done = threading.Event()
        self.error: Exception | None = None
        self.seen_at = time.monotonic()
        """When it last began something."""
        self._attempt = 0

    def describe(self) -> str:
        """For whoever waits for it in vain."""
        frame = sys._current_frames().get(self.ident or 0)
        doing = "".join(traceback.format_stack(frame)[-4:]) if frame is not None else "nothing"
        notes = self.notes
        return (
            f"{self.id} ({type(self).__name__}, life {self.lives}): {len(notes.committed)} committed,"
            f" {len(notes.aborted)} aborted, unknown {sorted(notes.unknown)}, {self.error or 'does'}\n{doing}"
        )

    def close(self) -> None:
        self.open_for_business.clear()
        self.idle.clear()

    def run(self) -> None:
        try:
            # What the last life left open is settled by another one, which does nothing else.
            while not self.done.is_set() or self.notes.unknown:
                self.lives += 1
                self.seen_at = time.monotonic()
                with contextlib.suppress(Stuck):
                    self._live()
        except Exception as error:  # shown by the test
            self.error = error
        finally:
            self.idle.set()

    @abstractmethod
    def _live(self) -> None:
        """Take the id, settle what is unknown, carry out orders until the bank is done or the client is stuck."""

    @abstractmethod
    def _transfer(self, transfer: Transfer, order: Order, *, commit: bool) -> End:
        """One transaction. `Stuck` if nobody knows how it ended."""

    def _work(self, number: int, orders: Iterator[Order]) -> None:
        """From this order on."""
        self.notes.settle(number)
        while not self.done.is_set():
            if not self._may_go_on():
                continue
            order = next(orders)
            while not self._carry_out(number, order):
                if self.done.is_set():
                    return  # a successor has taken over and does not know of another attempt
            number += 1

    def _may_go_on(self) -> bool:
        if self.open_for_business.is_set():
            return True
        self.idle.set()
        return self.open_for_business.wait(PAUSE_S)

    def _carry_out(self, number: int, order: Order) -> bool:
        self._attempt += 1
        self.seen_at = time.monotonic()
        transfer = Transfer(self.branch, number, self._attempt)
        commit = self._attempt % ABORT_EVERY != 0
        self.notes.unknown.add(transfer)  # until it is answered
        end = self._transfer(transfer, order, commit=commit)
        (self.notes.committed if end is End.COMMITTED else self.notes.aborted).add(transfer)
        self.notes.unknown.discard(transfer)
        return end is End.COMMITTED


class SteadyClerk(Clerk):
    """librdkafka: adds partitions itself, keeps its epoch.

    librdkafka 2.16 sends offsets to nobody when the group's coordinator that it knew has gone: the node is not in its
    metadata any more, what waits for that node asks for no other (its issue 5511), and the time-out of the call is not
    looked at (5456). Such a clerk hangs for good, and a `successor` has to take its place, as after a crash.
    """

    def __init__(self, bootstrap: str, branch: int) -> None:
        super().__init__(bootstrap, branch)
        self._former: list[SteadyProducer] = []
        """Kept: the end of one that hangs would hang, too."""

    def successor(self) -> "SteadyClerk":
        """Who takes the id, and with it what is known. If this one wakes up, it is fenced."""
        self.done.set()
        another = SteadyClerk(self.bootstrap, self.branch)
        another.notes = Notes(set(self.notes.committed), set(self.notes.aborted), set(self.notes.unknown))
        another.notes.resolved, another._attempt, another.lives = self.notes.resolved, self._attempt + 1, self.lives
        self.notes = Notes()
        return another

    def _live(self) -> None:
        settings = {**QUICK, "bootstrap.servers": self.bootstrap}
        own = {"transactional.id": self.id, "linger.ms": 0, "transaction.timeout.ms": TIMEOUT_MS}
        own |= {"retry.backoff.ms": 20, "retry.backoff.max.ms": 200}
        self.producer = SteadyProducer({**settings, **own})
        self._former.append(self.producer)
        self.consumer = Consumer(
            {**settings, "group.id": GROUP, "enable.auto.commit": False, "fetch.wait.max.ms": 50}
            | {"auto.offset.reset": "earliest", "isolation.level": "read_committed", "queued.max.messages.kbytes": 64}
        )
        try:
            self.producer.init_transactions(PATIENCE_S)
            (found,) = self.consumer.committed([TopicPartition(*self.place)], PATIENCE_S)
            if found.error is not None:
                raise Stuck(found.error)
            number = max(0, found.offset)
            self.consumer.assign([TopicPartition(*self.place, number)])
            self._work(number, self._orders(number))
        except KafkaException as error:
            raise Stuck(error) from error
        finally:
            close(self.consumer)

    def _orders(self, expected: int) -> Iterator[Order]:
        while True:
            for message in self.consumer.consume(ORDERS_AT_ONCE, PAUSE_S):
                if message.error() is None:
                    assert message.offset() == expected, f"order {message.offset()} instead of {expected}"
                    expected += 1
                    yield read_order(message.value())

    def _transfer(self, transfer: Transfer, order: Order, *, commit: bool) -> End:
        try:
            self.producer.begin_transaction()
            for (topic, partition), value in transfer.entries(order):
                self.producer.produce(topic, value, partition=partition)
            next_order = TopicPartition(*self.place, transfer.order + 1)
            whose = self.consumer.consumer_group_metadata()
            self.producer.send_offsets_to_transaction([next_order], whose, PATIENCE_S)
            if commit:
                self.producer.commit_transaction(PATIENCE_S)
                return End.COMMITTED
            self.producer.abort_transaction(PATIENCE_S)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise Stuck(failure) from failure
            self.producer.abort_transaction(PATIENCE_S)
        return End.ABORTED


class BumpingClerk(Clerk):
    """This repository's own client: partitions are added by writing, and every end brings another epoch.

    Half of them ask again when no answer to an end comes. The others are hasty: they begin another life, as after a
    crash.
    """

    @property
    def is_hasty(self) -> bool:
        return self.branch % 2 == 1

    def _live(self) -> None:
        try:
            with Client(self.bootstrap, client_id=self.id, timeout_ms=ANSWER_MS) as client:
                self.client = client
                self.transactions = Transactions(client)
                self._coordinators = Coordinators(client, CoordinatorType.TRANSACTION)
                self.producer = self.transactions.begin(self.id, TIMEOUT_MS)
                self._sequences: dict[Place, int] = {}
                committed = Groups(client).committed_of(GROUP, [self.place], require_stable=True)
                number = committed[self.place].offset if self.place in committed else 0
                self._work(number, self._orders(number))
        except ClientError as error:
            time.sleep(PAUSE_S)
            raise Stuck(error) from error

    def _orders(self, expected: int) -> Iterator[Order]:
        reader = Reader(
            self.client,
            {self.place: expected},
            isolation_level=READ_COMMITTED,
            partition_fetch_bytes=ORDERS_BYTES,
        )
        while True:
            for record in reader.poll(50):
                assert record.offset == expected, f"order {record.offset} instead of {expected}"
                expected += 1
                yield read_order(record.value)

    def _transfer(self, transfer: Transfer, order: Order, *, commit: bool) -> End:
        try:
            self._write(transfer.entries(order))
            self.transactions.commit_offsets(self.producer, GROUP, {self.place: transfer.order + 1})
        except BrokerError as refusal:
            if refusal.code != ErrorCode.TRANSACTION_ABORTABLE:
                raise
            commit = False
        self._end(commit=commit)
        return End.COMMITTED if commit else End.ABORTED

    def _write(self, entries: list[tuple[Place, bytes]]) -> None:
        """Every place gets one batch, which is sent until it is taken."""
        values: dict[Place, list[bytes]] = {}
        for place, value in entries:
            values.setdefault(place, []).append(value)
        batches = {place: self._batch(place, written) for place, written in values.items()}
        deadline = time.monotonic() + ANSWER_MS / 1_000
        while batches:
            trouble = self._send(batches)
            if trouble is not None:
                if time.monotonic() > deadline:
                    raise trouble
                time.sleep(PAUSE_S)

    def _batch(self, place: Place, written: list[bytes]) -> bytearray:
        now_ms = time.time_ns() // 1_000_000
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(written)
        return build_batch(
            [Record(0, now_ms, None, value) for value in written],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def _send(self, batches: dict[Place, bytearray]) -> ClientError | None:
        """To all leaders at once. What was taken goes out of `batches`; the answer says what hindered the others."""
        by_leader: dict[Connection, list[Place]] = {}
        try:
            for topic, index in batches:
                by_leader.setdefault(self.client.leader(topic, index), []).append((topic, index))
            for connection, places in by_leader.items():
                connection.send(self._request({place: batches[place] for place in places}), version=NAMED_PRODUCE)
        except (ConnectionLost, Unreachable, ReplyTimeout, BrokerError) as error:
            if isinstance(error, BrokerError) and not error.retriable:
                raise
            # Answers that may still come belong to no question any more.
            for connection in by_leader:
                connection.close()
            self._forget(batches)
            return error
        trouble: ClientError | None = None
        refused: BrokerError | None = None
        for connection in by_leader:
            try:
                for place, code in self._answers(connection):
                    if code == ErrorCode.NONE:
                        del batches[place]
                        continue
                    trouble = BrokerError(code, f"{place}")
                    refused = refused or (None if trouble.retriable else trouble)
            except (ConnectionLost, ReplyTimeout) as error:
                trouble = error
        if refused is not None:
            raise refused
        if trouble is not None and not (isinstance(trouble, BrokerError) and trouble.code not in STALE_METADATA):
            self._forget(batches)
        return trouble

    def _request(self, batches: Mapping[Place, bytearray]) -> ProduceRequest:
        data = [
            TopicProduceData(
                topic, partition_data=[PartitionProduceData(index, batches[topic, index]) for index in partitions]
            )
            for topic, partitions in by_topic(batches).items()
        ]
        return ProduceRequest(self.id, ACKS_ALL, ANSWER_MS, data)

    def _answers(self, connection: Connection) -> Iterator[tuple[Place, int]]:
        for answered in connection.receive(ProduceResponse).responses:
            for answer in answered.partition_responses:
                yield (answered.name, answer.index), answer.error_code

    def _forget(self, batches: Mapping[Place, bytearray]) -> None:
        for topic, _ in batches:
            self.client.forget(topic)

    def _end(self, *, commit: bool) -> None:
        request = EndTxnRequest(self.id, self.producer.producer_id, self.producer.epoch, commit)

        def ask(coordinator: Connection) -> Producer:
            reply = coordinator.call(request, EndTxnResponse)
            check(reply.error_code, f"cannot end the transaction of {self.id}")
            return Producer(self.id, reply.producer_id, reply.producer_epoch)

        self.producer = ask(self._coordinators.find(self.id)) if self.is_hasty else self._coordinators.ask(self.id, ask)
        self._sequences.clear()
