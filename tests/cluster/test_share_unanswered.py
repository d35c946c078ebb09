"""A broker is killed while acknowledgements are under way: what does not come again is stored as settled.

Whoever got no answer cannot know what became of its acknowledgement. The broker's log tells: between the kill and the
next start its files are read, without the broker's own code for share-partitions but for the form of a record. Exactly
what is not settled there is delivered again, and all that was answered is settled there.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from time import sleep

from share_groups import configure, initialise
from share_history import ACCEPT, Journal
from share_worker import Worker

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import ClientError, check
from skidway.records.batch import iter_headers
from skidway.records.record import Record, build_batch, read_records
from skidway.shares.coordinator import records as state_records
from skidway.shares.coordinator.state import Snapshot
from skidway.testing import Broker
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from skidway.wire.schema.share_acknowledge import ShareAcknowledgeResponse
from skidway.wire.schema.share_fetch import ShareFetchResponse
from waiting import eventually

GROUP, TOPIC = "workers", "jobs"
WORKERS = 16
BATCHES, BATCH = 100, 100
HEARD = 4
STEPS, STEP_S = 4, 0.0005
"""How long the broker has for those that are sent last: nothing, half a millisecond, and so on."""
ROUNDS, ROUNDS_MAX = 4, 25
"""A quick broker answers everything before it dies, so rounds go on until it has left something unanswered."""
SETTLED = (2, 4)
"""Acknowledged, archived: the numbers in Kafka's records."""
NAMED_PRODUCE = 12
LARGE = 1 << 26


class Visitor(Worker):
    """A member of its own, with one connection, that acquires, and accepts without waiting for the answer."""

    def __init__(self, client: Client, journal: Journal, number: int) -> None:
        super().__init__(client, GROUP, TOPIC, journal, Random(number))
        self.topic_id = client.look_up(TOPIC).id
        self.connection: Connection = client.connect(next(iter(client.picture.brokers.values())))
        self.held: dict[tuple[int, int, int], int] = {}

    @property
    def offsets(self) -> set[int]:
        return {offset for _, first, last in self.held for offset in range(first, last + 1)}

    def acquire(self) -> set[int]:
        answer = self.connection.call(self.fetch(0, self.topic_id, [0]), ShareFetchResponse)
        check(answer.error_code, "fetching")
        data = [one for found in answer.responses for one in found.partitions]
        for one in data:
            check(one.error_code, "the partition")
        self.held = {(0, each.first_offset, each.last_offset): ACCEPT for one in data for each in one.acquired_records}
        return self.offsets

    def accept(self) -> None:
        self.connection.send(self.acknowledgement(0, self.topic_id, self.held))

    def is_answered(self) -> bool:
        """The broker may be dead."""
        try:
            answer = self.connection.receive(ShareAcknowledgeResponse)
        except ClientError:
            return False
        codes = [one.error_code for found in answer.responses for one in found.partitions]
        return answer.error_code == 0 and codes == [0]


@contextmanager
def visitors(broker: Broker, journal: Journal, count: int) -> Iterator[list[Visitor]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(broker.bootstrap)) for _ in range(count)]
        yield [Visitor(client, journal, number) for number, client in enumerate(clients)]


def prepare(broker: Broker) -> None:
    configure(broker.bootstrap, GROUP, {"share.auto.offset.reset": "earliest"})
    with Client(broker.bootstrap) as client:
        Admin(client).create_topic(TOPIC, partitions=1)
    initialise(broker.bootstrap, GROUP, TOPIC, 1)
    with Client(broker.bootstrap) as client:
        client.look_up(TOPIC)
        connection = client.connect(next(iter(client.picture.brokers.values())))
        for number in range(BATCHES):
            batch = build_batch([Record(each, 0, None, b"%d" % (number * BATCH + each)) for each in range(BATCH)])
            data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])]
            connection.send(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=data), version=NAMED_PRODUCE)
            answer = connection.receive(ProduceResponse)
            check(answer.responses[0].partition_responses[0].error_code, "producing")


def stored_as_settled(data_dir: Path) -> set[int]:
    """Of the only share-partition, by the files of a broker that does not run."""
    start, states = 0, dict[int, tuple[int, int]]()
    for file in sorted(data_dir.glob("**/__share_group_state-*/*.log")):
        stored = file.read_bytes()
        for at, header in iter_headers(stored):
            for record in read_records(stored[at : at + header.size], decompressed_bytes_max=LARGE):
                decoded = state_records.decode(record.key or b"", record.value)
                if decoded is None or decoded.value is None:
                    continue
                if isinstance(decoded.value, Snapshot):
                    states = {}
                start = max(start, decoded.value.start_offset)
                for batch in decoded.value.batches:
                    for offset in range(batch.first, batch.last + 1):
                        states[offset] = max(states.get(offset, (0, 0)), (batch.delivery_count, int(batch.state)))
    return {*range(start), *(offset for offset, (_, state) in states.items() if state in SETTLED)}


def kill_in_the_middle(broker: Broker, journal: Journal, later_s: float) -> tuple[set[int], set[int]]:
    """A few are answered, the others are sent, and the broker dies. What was answered, what was not."""
    answered, unanswered = set[int](), set[int]()
    with visitors(broker, journal, WORKERS) as workers:
        for worker in workers:
            eventually(worker.acquire)
        for worker in workers[:HEARD]:
            worker.accept()
            assert worker.is_answered()
            answered |= worker.offsets
        for worker in workers[HEARD:]:
            worker.accept()
        sleep(later_s)
        broker.kill()
        for worker in workers[HEARD:]:
            (answered if worker.is_answered() else unanswered).update(worker.offsets)
    return answered, unanswered


def drained(broker: Broker, journal: Journal) -> list[int]:
    """All that comes, each accepted."""
    came: list[int] = []
    with visitors(broker, journal, 1) as (worker,):
        while True:
            if not worker.acquire():
                return came
            came += sorted(worker.offsets)
            worker.accept()
            assert worker.is_answered()


def test_what_does_not_come_again_is_stored_as_settled(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    answered, unanswered = set[int](), set[int]()
    with Broker(flush="os") as broker:
        prepare(broker)
        for number in range(ROUNDS_MAX):
            if number >= ROUNDS and unanswered:
                break
            heard, unheard = kill_in_the_middle(broker, journal, number % STEPS * STEP_S)
            answered |= heard
            unanswered |= unheard
            settled = stored_as_settled(broker.data_dir)
            assert answered <= settled, f"answered and not stored: {sorted(answered - settled)[:20]}"
            broker.start()
        came = drained(broker, journal)
    everything = set(range(BATCHES * BATCH))
    lost = everything - settled - set(came)
    assert not lost, f"neither stored as settled nor delivered again: {sorted(lost)[:20]}"
    again = settled & set(came)
    assert not again, f"stored as settled and delivered again: {sorted(again)[:20]}"
    assert len(came) == len(set(came)), "something came twice though it was accepted"
    assert unanswered, "every acknowledgement was answered: nothing is shown"
    kept = unanswered & settled
    print(f"{len(answered)} answered; of {len(unanswered)} without an answer {len(kept)} are stored as settled")
