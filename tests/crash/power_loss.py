"""Histories of a node whose machine loses power, and what must be true of what is left.

`History(seed).run()` lives several lives on one disk. In each, clients produce, create and delete topics, delete
records and read, workers sync in any order, and the machine stops in the middle of some disk operation: mostly by
power loss, sometimes only the process dies and the page cache stays. After each restart everything promised is looked
for. The seed decides everything; a failure says which one it was.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from simulated_node import (
    ACKS_ALL,
    FAR_MS,
    ManualClock,
    SimulatedClient,
    SimulatedNode,
    WatchedDisk,
    batch_of,
    create_topic,
    fetch,
    produce,
    records_in,
)

from skidway.errors import ErrorCode
from skidway.records.batch import BatchHeader
from skidway.sim.world.disk import Crashed
from skidway.wire.schema.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skidway.wire.schema.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from skidway.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skidway.wire.schema.init_producer_id import InitProducerIdRequest
from skidway.wire.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from skidway.wire.schema.metadata import MetadataRequest

Batches = list[tuple[BatchHeader, list[tuple[int, bytes]]]]
NAMES = ("apples", "pears", "plums")
BATCHES_REMEMBERED = 5
EARLIEST = -2
LIVES = 4
STEPS_MAX = 160
SETTINGS = {"checkpoint_ms": 40, "retention_check_ms": 60}


@dataclass
class Log:
    """What the clients know of one partition."""

    sent: set[bytes] = field(default_factory=set)
    promised: dict[int, bytes] = field(default_factory=dict)
    """What must survive a loss of power."""
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """What must survive the death of the process: everything answered."""
    deleted_to: int = 0
    """The highest offset anybody asked to delete up to."""
    begins_at: int = 0
    """Where it begins at least: a client was told that what lies below is deleted."""
    fetched_to: int = 0
    batches: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Of idempotent producers, by (producer id, first sequence)."""
    expired: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Those that were gone after a restart. What retention or a client removed may be back after a loss of power, if no
    sync of the directory came in between and what followed was not promised."""
    next_sequence: dict[int, int] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    """Producers one of whose batches came too early in this life: the next one of theirs is out of order."""
    retired: set[int] = field(default_factory=set)
    """Producers of which no batch was left after a restart: what the broker remembers of them is its own affair."""


@dataclass
class Topic:
    name: str
    id: bytes
    sync: bool
    expires: bool
    logs: list[Log]
    deleting: bool = False
    deleted: bool = False

    @property
    def usable(self) -> bool:
        return not self.deleting


class History:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.disk = WatchedDisk()
        self.clock = ManualClock()
        self.started: SimulatedNode | None = None
        """Of this life, once it is up."""
        self.topics: dict[bytes, Topic] = {}
        self.creating: dict[str, tuple[int, bool, bool]] = {}
        """Topics asked for and not answered: partitions, flush=sync, short retention."""
        self.producer_ids: set[int] = set()
        self.live_producers: list[int] = []
        self.values = 0
        self.depth = 0
        self.marks: dict[str, int] = {}
        """How often interesting things happened: a test that never saw them proves nothing."""

    @property
    def shell(self) -> SimulatedNode:
        assert self.started is not None, "no node is up"
        return self.started

    def mark(self, what: str) -> None:
        self.marks[what] = self.marks.get(what, 0) + 1

    def run(self) -> dict[str, int]:
        for _ in range(LIVES):
            self.live()
        self.start()
        self.check()
        return self.marks

    # One life.

    def live(self) -> None:
        random = self.random
        # Often early, so that recoveries are interrupted too; now and then not at all.
        life = random.choice((random.randrange(1, 30), random.randrange(1, 400), random.randrange(1, 400), FAR_MS))
        self.disk.crash_at = self.disk.operations + life
        try:
            self.start()
            self.check()
            for _ in range(STEPS_MAX):
                self.step()
            if random.randrange(2):
                self.shell.settle()
                waiting = [client.waiting for client in self.shell.clients if client.waiting]
                assert not waiting, f"nothing is under way and nobody answers: {waiting}"
                assert not self.shell.node.rooms.hosting.lives.missing, (
                    "nothing is under way and a partition is offline"
                )
                self.mark("settled")
                if random.randrange(2):
                    self.shell.node.close(clean=True)
                    self.mark("closed cleanly")
        except Crashed:
            self.mark("crashed in an operation")
        self.end_life()

    def start(self) -> None:
        # Until it is up, no client of this life exists.
        self.started = None
        self.started = SimulatedNode(self.disk, self.random, self.clock, **SETTINGS)
        self.shell.interrupt = self.interrupt
        self.clients: list[SimulatedClient] = [self.shell.connect() for _ in range(3)]

    def end_life(self) -> None:
        if self.started is not None:
            # Replies that were ready may have left just before the end: they count.
            self.disk.crash_at = None
            self.started.collect()
        self.disk.before = lambda kind: None
        if self.random.randrange(4):
            self.disk.crash(self.random)
            for topic in self.topics.values():
                for log in topic.logs:
                    log.acknowledged = dict(log.promised)
            self.mark("power lost")
        else:
            self.disk.crash_at = None
            self.mark("process died")
        self.live_producers.clear()

    def interrupt(self) -> None:
        """Something else happens while a worker waits for the disk."""
        if self.depth < 3 and self.random.randrange(3) == 0:
            self.depth += 1
            try:
                self.step()
            finally:
                self.depth -= 1

    def step(self) -> None:
        random, shell = self.random, self.shell
        shell.pass_time(random.randrange(4))
        choice = random.randrange(100)
        if choice < 34:
            self.produce()
        elif choice < 40:
            self.repeat()
        elif choice < 46:
            self.fetch()
        elif choice < 49:
            self.create_topic()
        elif choice < 51:
            self.delete_topic()
        elif choice < 52:
            self.grow_topic()
        elif choice < 54:
            self.delete_records()
        elif choice < 57:
            self.take_producer_id()
        elif choice < 60:
            shell.node.maintain(self.clock.now_ms, self.clock.wall_ms())
        elif choice < 75:
            shell.end_turn()
        elif choice < 88:
            if shell.queued:
                shell.run_job(random.randrange(len(shell.queued)))
        elif choice < 98 and shell.finished:
            shell.deliver(random.randrange(len(shell.finished)))
        if random.randrange(2):
            shell.collect()

    # What clients do.

    def client(self) -> SimulatedClient:
        return self.random.choice(self.clients)

    def pick(self) -> tuple[Topic, int] | None:
        usable = [topic for topic in self.topics.values() if topic.usable]
        if not usable:
            return None
        topic = self.random.choice(usable)
        return topic, self.random.randrange(len(topic.logs))

    def produce(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        topic, index = picked
        log = topic.logs[index]
        values = []
        for _ in range(self.random.randrange(1, 4)):
            self.values += 1
            values.append(b"%d:" % self.values + bytes(self.random.randrange(400)))
        pid, sequence = -1, -1
        producers = [pid for pid in self.live_producers if pid not in log.retired]
        if producers and self.random.randrange(2):
            pid = self.random.choice(producers)
            sequence = log.next_sequence.get(pid, 0)
            log.next_sequence[pid] = sequence + len(values)
        batch = batch_of(values, self.clock.wall_ms(), pid, 0 if pid >= 0 else -1, sequence)
        log.sent.update(values)
        if pid >= 0:
            log.batches[pid, sequence] = batch
        self.send_batch(topic, index, pid, batch, values, self.random.choice((ACKS_ALL, ACKS_ALL, 1)))

    def repeat(self) -> None:
        """A client that saw no answer sends one of its producer's last five batches again."""
        picked = self.pick()
        if picked is None:
            return
        log = picked[0].logs[picked[1]]
        pids = sorted(pid for pid in self.live_producers if pid in log.next_sequence)
        if not pids:
            return
        pid = self.random.choice(pids)
        known = sorted(sequence for owner, sequence in log.batches if owner == pid)[-BATCHES_REMEMBERED:]
        batch = log.batches[pid, self.random.choice(known)]
        ((_, records),) = records_in(batch)
        self.mark("repeated a batch")
        self.send_batch(picked[0], picked[1], pid, batch, [value for _, value in records], ACKS_ALL)

    def send_batch(self, topic: Topic, index: int, pid: int, batch: bytes, values: list[bytes], acks: int) -> None:
        log = topic.logs[index]
        too_early = self.is_too_early(topic, index)
        if too_early:
            log.refused.add(pid)

        def answered(reply: Any) -> None:
            (partition,) = reply.responses[0].partition_responses
            if partition.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                assert pid in log.refused, "nothing before this batch was refused"
                return
            if partition.error_code != ErrorCode.NONE:
                self.excuse(topic, partition.error_code, too_early)
                return
            for offset, value in enumerate(values, partition.base_offset):
                assert log.acknowledged.get(offset, value) == value, f"offset {offset} was told twice"
                log.acknowledged[offset] = value
                if topic.sync and acks == ACKS_ALL:
                    log.promised[offset] = value
            self.mark("acknowledged")

        self.client().send(produce(topic.id, index, batch, acks), answered)

    def is_too_early(self, topic: Topic, index: int) -> bool:
        """Whether a partition cannot be opened yet: the files of an older one of its name are just leaving."""
        return "of the same name" in self.shell.node.rooms.hosting.lives.missing.get((topic.id, index), "")

    def excuse(self, topic: Topic, code: int, too_early: bool) -> None:
        """The only good reasons to refuse: the topic is being deleted, or it was asked for too early.

        NOT_LEADER_OR_FOLLOWER is what a Kafka broker answers too before it has opened a new partition, and
        KAFKA_STORAGE_ERROR when the disk has just refused that; clients ask again. `live` looks that it never lasts:
        when nothing is under way, no partition is missing.
        """
        if too_early:
            assert code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode(code).name
            self.mark("refused as too early")
        else:
            assert code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID), ErrorCode(code).name
            assert topic.deleting, f"{topic.name} is refused with {ErrorCode(code).name}"
            self.mark("refused as gone")

    def fetch(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        topic, index = picked
        log = topic.logs[index]
        too_early = self.is_too_early(topic, index)

        def answered(reply: Any) -> None:
            if not reply.responses:
                return
            (partition,) = reply.responses[0].partitions
            if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                log.fetched_to = max(log.acknowledged, default=0)
                return
            if partition.error_code != ErrorCode.NONE:
                self.excuse(topic, partition.error_code, too_early)
                return
            for _, records in records_in(partition.records):
                for offset, value in records:
                    self.saw(topic, log, offset, value)
                    log.fetched_to = offset + 1

        self.client().send(fetch(topic.id, index, log.fetched_to, 2_000), answered)

    def saw(self, topic: Topic, log: Log, offset: int, value: bytes) -> None:
        """What somebody has read stays, as long as the topic promises anything."""
        assert value in log.sent, f"{value[:10]!r} at {offset} was never sent to {topic.name}"
        assert log.acknowledged.get(offset, value) == value, f"{topic.name}: {offset} is not what was acknowledged"
        log.acknowledged[offset] = value
        if topic.sync:
            log.promised[offset] = value
        self.mark("read")

    def create_topic(self) -> None:
        name = self.random.choice(NAMES)
        if name in self.creating or any(topic.name == name and not topic.deleted for topic in self.topics.values()):
            return
        count, sync, expires = self.random.randrange(1, 3), self.random.randrange(3) > 0, not self.random.randrange(3)
        self.creating[name] = (count, sync, expires)

        def answered(reply: Any) -> None:
            (created,) = reply.topics
            assert created.error_code == ErrorCode.NONE, created
            self.adopt(name, created.topic_id, count)
            self.mark("created")

        configs: dict[str, Any] = {
            "internal_segment_bytes": 3_000,
            "index_interval_bytes": 300,
            "file_delete_delay_ms": 20,
        }
        configs |= {"flush": "sync" if sync else "os", "retention_ms": 50 if expires else -1}
        self.client().send(create_topic(name, count, **configs), answered)

    def adopt(self, name: str, topic_id: bytes, count: int) -> None:
        _, sync, expires = self.creating.pop(name)
        assert topic_id not in self.topics, "a topic id was given twice"
        self.topics[topic_id] = Topic(name, topic_id, sync, expires, [Log() for _ in range(count)])

    def delete_topic(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        topic = picked[0]
        topic.deleting = True

        def answered(reply: Any) -> None:
            (deleted,) = reply.responses
            assert deleted.error_code == ErrorCode.NONE, deleted
            topic.deleted = True
            self.mark("deleted")

        self.client().send(DeleteTopicsRequest([DeleteTopicState(None, topic.id)], [], FAR_MS), answered)

    def grow_topic(self) -> None:
        picked = self.pick()
        if picked is None or len(picked[0].logs) >= 4:
            return
        topic = picked[0]
        asked = [CreatePartitionsTopic(topic.name, len(topic.logs) + 1, None)]

        def answered(reply: Any) -> None:
            if reply.results[0].error_code == ErrorCode.NONE and not topic.deleting:
                topic.logs.append(Log())
                self.mark("grown")

        self.client().send(CreatePartitionsRequest(asked, FAR_MS), answered)

    def delete_records(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        topic, index = picked
        log = topic.logs[index]
        if not log.acknowledged:
            return
        offset = self.random.choice(sorted(log.acknowledged))
        log.deleted_to = max(log.deleted_to, offset)
        asked = [DeleteRecordsTopic(topic.name, [DeleteRecordsPartition(index, offset)])]

        def answered(reply: Any) -> None:
            (deleted,) = reply.topics[0].partitions
            if deleted.error_code == ErrorCode.NONE:
                log.begins_at = max(log.begins_at, deleted.low_watermark)
            self.mark("records deleted")

        self.client().send(DeleteRecordsRequest(asked, FAR_MS), answered)

    def take_producer_id(self) -> None:
        def answered(reply: Any) -> None:
            assert reply.error_code == ErrorCode.NONE
            assert reply.producer_id not in self.producer_ids, "a producer id was handed out twice"
            self.producer_ids.add(reply.producer_id)
            self.live_producers.append(reply.producer_id)

        self.client().send(InitProducerIdRequest(None, 0), answered)

    # What must be true after a restart.

    def check(self) -> None:
        self.check_topics()
        for topic in list(self.topics.values()):
            for index, log in enumerate(topic.logs):
                self.check_log(topic, index, log)
        assert not [event for event in self.shell.events if "offline" in event], self.shell.events

    def check_topics(self) -> None:
        reply = self.shell.call(MetadataRequest(None))
        found = {bytes(topic.topic_id): topic for topic in reply.topics}
        for topic in list(self.topics.values()):
            if topic.id not in found:
                assert topic.deleting, f"{topic.name} was created, acknowledged, and is gone"
                del self.topics[topic.id]
            else:
                assert not topic.deleted, f"{topic.name} was deleted, acknowledged, and is back"
                topic.deleting = False
        for topic_id, described in found.items():
            if topic_id not in self.topics:
                assert described.name in self.creating, f"{described.name} has another id than was told"
                self.adopt(described.name, topic_id, len(described.partitions))
            logs = self.topics[topic_id].logs
            assert len(described.partitions) >= len(logs), "partitions were created, acknowledged, and are gone"
            logs += [Log() for _ in range(len(described.partitions) - len(logs))]
            assert not [part for part in described.partitions if part.error_code or part.offline_replicas], described
        self.creating.clear()

    def read_all(self, topic: Topic, index: int) -> tuple[int, int, Batches]:
        """(start, end, batches) of a log, read in small pieces."""
        asked = ListOffsetsTopic(topic.name, [ListOffsetsPartition(index, -1, EARLIEST)])
        (earliest,) = self.shell.call(ListOffsetsRequest(-1, 0, [asked])).topics[0].partitions
        offset: int = earliest.offset
        batches: Batches = []
        while True:
            (partition,) = self.shell.call(fetch(topic.id, index, offset, 3_000)).responses[0].partitions
            assert partition.error_code == ErrorCode.NONE, (topic.name, index, ErrorCode(partition.error_code).name)
            got = records_in(partition.records)
            if not got:
                assert partition.high_watermark == offset, (partition.high_watermark, offset)
                return partition.log_start_offset, offset, batches
            batches += got
            offset = got[-1][0].last_offset + 1

    def check_log(self, topic: Topic, index: int, log: Log) -> None:
        start, end, batches = self.read_all(topic, index)
        where = f"{topic.name}-{index}"
        found = {offset: value for _, records in batches for offset, value in records}
        assert start >= log.begins_at, f"{where} begins at {start}, and was told to begin at {log.begins_at}"
        if found:
            # The first batch may begin below the start, if records in the middle of it were deleted.
            assert sorted(found) == list(range(min(found), end)), f"{where} has holes"
            assert min(found) <= start, f"{where} begins at {start}, its first batch at {min(found)}"
        else:
            assert start == end, f"{where} is empty between {start} and {end}"
        for offset, value in log.acknowledged.items():
            assert offset < end, f"{where} ends at {end}, {offset} was acknowledged"
            if offset >= start:
                assert found[offset] == value, f"{where}: {offset} is not what was acknowledged"
            elif not topic.expires:
                assert offset < log.deleted_to, f"{where} begins at {start}, deleted up to {log.deleted_to}"
        self.check_producers(topic, index, log, batches)
        # What is served now has been seen, so it must stay. Lost batches are never mentioned again.
        log.acknowledged = {offset: value for offset, value in log.acknowledged.items() if offset >= start}
        log.promised = {offset: value for offset, value in log.promised.items() if offset >= start}
        for offset, value in found.items():
            if offset >= start:
                self.saw(topic, log, offset, value)
        log.fetched_to = start

    def check_producers(self, topic: Topic, index: int, log: Log, batches: Batches) -> None:
        headers = [header for header, _ in batches if header.producer_id >= 0]
        seen = [(header.producer_id, header.base_sequence) for header in headers]
        assert len(seen) == len(set(seen)), "a batch of an idempotent producer is there twice"
        log.retired |= log.next_sequence.keys()
        log.next_sequence.clear()
        log.refused.clear()
        known = log.expired | log.batches
        if back := [key for key in seen if key not in log.batches]:
            assert topic.expires or log.deleted_to, (
                f"{topic.name}-{index}: {back} were gone, deleted by nobody, and are back"
            )
            self.mark("expired batches back")
        for pid in sorted({header.producer_id for header in headers}):
            own = [header for header in headers if header.producer_id == pid]
            for header in own[-BATCHES_REMEMBERED:]:
                batch = known[pid, header.base_sequence]
                (answer,) = self.shell.call(produce(topic.id, index, batch)).responses[0].partition_responses
                assert (answer.error_code, answer.base_offset) == (0, header.base_offset), "a repeated batch is new"
                self.mark("duplicate known after restart")
            log.next_sequence[pid] = own[-1].last_sequence + 1
            log.retired.discard(pid)
            if pid not in self.live_producers:
                self.live_producers.append(pid)
        log.expired = known
        log.batches = {key: known[key] for key in seen}
