"""kill -9 while transactions end: each is there in all its partitions or in none, whatever was answered.

What is committed is read from the files of the replicas, by a reader that knows nothing of the broker: batches of a
producer are held back until its next marker.
"""

import threading
import time
from collections import Counter
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
from replica_files import await_in_sync, batches_of

from skidway.records.batch import read_header
from skidway.records.control import read_end_transaction
from skidway.records.record import read_records
from skidway.testing import Cluster
from waiting import comes_true

PARTITIONS = 4
PRODUCERS = 3
KILLS = 4
ROUND = 10
"""Transactions of each producer between two events."""
PATIENCE_S = 60.0
EVERYTHING = 1 << 62


class Writer(threading.Thread):
    """One transactional id. Every transaction writes its number to all partitions."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.topic, self.id = bootstrap, topic, name
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.unknown: list[str] = []
        self.done = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.done.is_set():
                self._write_until_fatal()
        except Exception as error:  # shown by the test
            self.error = error

    def _write_until_fatal(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self.id, "linger.ms": 0, "log_level": 0}
        )
        producer.init_transactions(PATIENCE_S)
        while not self.done.is_set():
            if not self._write_one(producer):
                return

    def _write_one(self, producer: confluent_kafka.Producer) -> bool:
        """False: this producer is of no more use."""
        number = len(self.committed) + len(self.aborted) + len(self.unknown)
        value, wants_abort = f"{self.id}:{number}", number % 5 == 0
        ended = self.aborted
        try:
            producer.begin_transaction()
            for index in range(PARTITIONS):
                producer.produce(self.topic, value.encode(), partition=index)
            if wants_abort:
                producer.abort_transaction(PATIENCE_S)
            else:
                ended = self.unknown  # until it is answered
                producer.commit_transaction(PATIENCE_S)
                ended = self.committed
        except confluent_kafka.KafkaException as failure:
            error = failure.args[0]
            if not error.txn_requires_abort():
                self.unknown.append(value)
                return False
            ended = self.aborted
            producer.abort_transaction(PATIENCE_S)
        ended.append(value)
        return True


def all_go_on(writers: list[Writer]) -> None:
    before = {writer: len(writer.committed) for writer in writers}
    went_on = comes_true(lambda: all(len(each.committed) >= before[each] + ROUND for each in writers), PATIENCE_S)
    assert went_on, [writer.error for writer in writers]


def committed_in(folder: Path) -> Counter[str]:
    """Values that a reader of committed records sees, and how often."""
    visible: Counter[str] = Counter()
    held: dict[int, list[str]] = {}
    for batch in batches_of(folder, EVERYTHING):
        header = read_header(batch)
        records = read_records(batch, decompressed_bytes_max=1 << 20)
        if header.is_control:
            (marker,) = records
            values = held.pop(header.producer_id, [])
            if read_end_transaction(marker).committed:
                visible.update(values)
        else:
            held.setdefault(header.producer_id, []).extend(bytes(record.value or b"").decode() for record in records)
    assert held == {}, "a transaction that never ends"
    return visible


def read_committed(bootstrap: str, topic: str) -> list[Counter[str]]:
    """By partition, what a consumer gets that wants no more than committed records."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[Counter[str]] = [Counter() for _ in range(PARTITIONS)]
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    at_end: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(at_end) < PARTITIONS:
        assert time.monotonic() < deadline, f"read to the end of {sorted(at_end)} only"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error, value, index = message.error(), message.value(), message.partition() or 0
        if error is None:
            found[index][bytes(value or b"").decode()] += 1
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            at_end.add(index)
    consumer.close()
    return found


def test_transactions_are_whole_whoever_is_killed() -> None:
    with Cluster(3, network=False, experimental_transactions=True, transactions={"state_partitions": 6}) as cluster:
        topic = "ledger"
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
        (made,) = admin.create_topics([confluent_kafka.admin.NewTopic(topic, PARTITIONS, 3)]).values()
        made.result()
        writers = [Writer(cluster.bootstrap, topic, f"writer-{number}") for number in range(PRODUCERS)]
        for writer in writers:
            writer.start()
        for number in range(KILLS):
            all_go_on(writers)
            node = number % 3 + 1
            cluster.kill(node)
            all_go_on(writers)
            cluster.start(node)
        for writer in writers:
            writer.done.set()
        for writer in writers:
            writer.join(2 * PATIENCE_S)
            assert not writer.is_alive()
            assert writer.error is None
            # Whatever it left open is aborted now.
            last = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": writer.id})
            last.init_transactions(PATIENCE_S)
        places = [(topic, index) for index in range(PARTITIONS)]
        await_in_sync(cluster, places)
        told = read_committed(cluster.bootstrap, topic)
        folders = [[Path(cluster[node].data_dir, f"{topic}-{index}") for index in range(PARTITIONS)] for node in (1, 2)]
        cluster.stop(1, 2, 3)
        seen = [[committed_in(folder) for folder in of_node] for of_node in folders]
    assert seen[0] == seen[1], "replicas agree"
    first, *rest = seen[0]
    assert all(other == first for other in rest), "in all partitions or in none"
    assert set(first.values()) == {1}, "once"
    assert told == seen[0], "consumers see the same"
    for writer in writers:
        assert set(writer.committed) <= set(first)
        assert not set(writer.aborted) & set(first)
