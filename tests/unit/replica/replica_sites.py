"""Sites that hold copies of partitions on simulated disks, and answer fetches as a leader does, over the real codec."""

from collections.abc import Iterable
from random import Random
from typing import Any

from skidway.broker.partitions.partition import Partition, log_settings
from skidway.broker.partitions.producer_budget import ProducerBudget
from skidway.broker.reads.consumers import ConsumerSession
from skidway.broker.reads.sessions import FINAL_EPOCH, AskedByFetch, FetchTarget, Sessions
from skidway.errors import OffsetOutOfRange, ProtocolError
from skidway.limits import DEFAULT_LIMITS
from skidway.log.bounds import Bound
from skidway.log.log import Log
from skidway.log.recovery.opening import open_log
from skidway.metadata.topic_configs import TopicConfig, resolve
from skidway.records.batch import read_header
from skidway.records.record import Record, build_batch, read_records
from skidway.replica.fetcher import Fetcher, FetchSettings
from skidway.replica.news import CopyBegunAnew, ReplicaNews, TailCut
from skidway.replica.role import PartitionRole
from skidway.replica.throttle import Throttle
from skidway.runtime.turn import TurnNotes
from skidway.server.event_text import line_of
from skidway.sim.world.disk import SimDisk
from skidway.steps import at_once
from skidway.wire.message import Message
from skidway.wire.registry import api
from skidway.wire.schema.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from skidway.wire.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

NOW_MS = 1_000_000
WALL_MS = 1_700_000_000_000
LAG_MS = 30_000
FETCH_VERSION, LIST_OFFSETS_VERSION = 18, 11


def topic_id(topic: str) -> bytes:
    return topic.encode().rjust(16, b"\0")


class Site:
    """One node: its disk, its partitions, its side of the fetch sessions."""

    def __init__(self, node_id: int, disk: SimDisk | None = None) -> None:
        self.node_id = node_id
        self.disk = disk or SimDisk()
        self.partitions: dict[tuple[bytes, int], Partition] = {}
        self.turn: TurnNotes[Partition] = TurnNotes(lambda: None)
        self.sessions = Sessions(ConsumerSession, DEFAULT_LIMITS, Random(node_id))
        self.heard: list[Message] = []
        """Requests that came in, as they were decoded."""
        self.keeps_sessions = True

    def host(self, topic: str = "t", index: int = 0, *, flush: str = "os", **configs: str) -> Partition:
        config = resolve({"flush": flush, **{name.replace("_", "."): value for name, value in configs.items()}})
        directory = f"{topic}-{index}"
        if not self.disk.exists(directory):
            self.disk.make_directory(directory)
        log = self._open(directory, config, 0)
        log.begin_at(0)
        return self._add(topic, index, log, config)

    def host_again(self, partition: Partition, *, recovery_point: int) -> Partition:
        """After a crash."""
        config = resolve({"flush": "sync" if partition.log.is_flushed else "os"})
        return self._add(
            partition.topic, partition.index, self._open(partition.log.directory, config, recovery_point), config
        )

    def _open(self, directory: str, config: TopicConfig, recovery_point: int) -> Log:
        return open_log(
            self.disk,
            directory,
            log_settings(config),
            clean=recovery_point == 0,
            recovery_point=recovery_point,
            start_offset=None,
            now_ms=WALL_MS,
        )

    def _add(self, topic: str, index: int, log: Log, config: TopicConfig) -> Partition:
        partition = Partition(
            topic,
            topic_id(topic),
            index,
            log,
            config,
            self.turn,
            self.node_id,
            LAG_MS,
            ProducerBudget(DEFAULT_LIMITS.producers_max, self.partitions.values()),
            Throttle(),
        )
        self.partitions[partition.topic_id, index] = partition
        return partition

    def sync(self) -> None:
        """A worker syncs whatever wants it."""
        for partition in self.turn.take_unsynced():
            ticket = partition.begin_sync()
            if ticket is not None:
                ticket.run()
                partition.finish_sync(ticket)

    # --- as a leader ---

    def answer(self, request: Message, now_ms: int = NOW_MS) -> Any:
        version = FETCH_VERSION if isinstance(request, FetchRequest) else LIST_OFFSETS_VERSION
        heard: Any = over_the_wire(request, version, "request")
        self.heard.append(heard)
        if isinstance(heard, ListOffsetsRequest):
            return over_the_wire(self._starts(heard), version, "response")
        return over_the_wire(self._records(heard, now_ms), version, "response")

    def _records(self, request: FetchRequest, now_ms: int) -> FetchResponse:
        asked = AskedByFetch(request, FETCH_VERSION)
        if not self.keeps_sessions:
            asked.session_epoch = FINAL_EPOCH
        try:
            session = self.sessions.session_of(asked, request.replica_state.replica_id, now_ms)
        except ProtocolError as error:
            return FetchResponse(error_code=error.code)
        at_once(self.sessions.update(session, asked))
        replica = request.replica_state
        return FetchResponse(
            session_id=session.id,
            responses=[
                FetchableTopicResponse(
                    topic_id=target.topic,  # type: ignore[arg-type]
                    partitions=[self._read(target, replica.replica_id, replica.replica_epoch, now_ms)],
                )
                for target in session.targets.values()
            ],
        )

    def _read(self, target: FetchTarget, replica_id: int, broker_epoch: int, now_ms: int) -> PartitionData:
        partition = self.partitions[target.topic, target.index]  # type: ignore[index]
        log, asked = partition.log, target.asked
        data = PartitionData(target.index, 0, log.high_watermark, -1, log.start_offset, records=b"")
        try:
            partition.leader.check_epoch(asked.current_leader_epoch)
            epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if asked.last_fetched_epoch >= 0 and (epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset):
                data.diverging_epoch = EpochEndOffset(epoch, end_offset)
                return data
            if not log.start_offset <= asked.fetch_offset <= log.end_offset:
                raise OffsetOutOfRange()
            partition.advance(
                partition.leader.on_fetch(replica_id, broker_epoch, asked.fetch_offset, log.end_offset, now_ms)
            )
            data.high_watermark = log.high_watermark
            found = log.read(asked.fetch_offset, asked.partition_max_bytes, Bound.END)
            data.records = b"" if found is None else found.read()
        except ProtocolError as error:
            data.error_code = error.code
        return data

    def _starts(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                partition = self.partitions[topic_id(topic.name), asked.partition_index]
                answer = ListOffsetsPartitionResponse(asked.partition_index, offset=partition.log.start_offset)
                try:
                    partition.leader.check_epoch(asked.current_leader_epoch)
                except ProtocolError as error:
                    answer.error_code, answer.offset = error.code, -1
                answers.append(answer)
            topics.append(ListOffsetsTopicResponse(topic.name, answers))
        return ListOffsetsResponse(topics=topics)


def over_the_wire(message: Message, version: int, side: str) -> Any:
    key = 1 if isinstance(message, FetchRequest | FetchResponse) else 2
    codec = getattr(api(key), side)
    parts: list[Any] = []
    codec.encoder(version)(message, parts)
    data = b"".join(map(bytes, parts))
    decoded, end = codec.decoder(version)(memoryview(data), 0)
    assert end == len(data)
    return decoded


def role(leader: int, epoch: int, *, unclean: bool = False, replicas: Iterable[int] = (1, 2, 3)) -> PartitionRole:
    everyone = list(replicas)
    return PartitionRole(leader, epoch, epoch, everyone, everyone, dict.fromkeys(everyone, 1), unclean)


def elect(leader: Partition, *others: Partition, epoch: int, node_id: int = 1, unclean: bool = False) -> None:
    """The metadata names a leader; all of them hear of it."""
    members = [leader, *others]
    named = role(node_id, epoch, unclean=unclean, replicas=range(1, len(members) + 1))
    leader.lead(named, NOW_MS)
    for other in others:
        other.follow(named, NOW_MS)


def write(partition: Partition, *values: bytes) -> None:
    """Each as a batch of its own, in the leader's epoch."""
    for value in values:
        batch = build_batch([Record(0, WALL_MS, None, value)])
        partition.append(batch, read_header(batch), WALL_MS)


def contents(partition: Partition, *, committed: bool = False) -> list[bytes | None]:
    log = partition.log
    found: list[bytes | None] = []
    offset = log.start_offset
    while (part := log.read(offset, 1 << 20, Bound.HIGH_WATERMARK if committed else Bound.END)) is not None:
        data = part.read()
        position = 0
        while position < len(data):
            header = read_header(memoryview(data)[position:])
            batch = data[position : position + header.size]
            found += [record.value for record in read_records(batch, decompressed_bytes_max=1 << 20)]
            offset = header.last_offset + 1
            position += header.size
    return found


def stored_bytes(partition: Partition) -> bytes:
    log = partition.log
    return b"".join(segment.file.read_at(0, segment.size) for segment in log.segments)


class Following:
    """A fetcher of one site, and how it talks to the site it follows."""

    def __init__(self, site: Site, leader: Site, settings: FetchSettings | None = None) -> None:
        self.site = site
        self.leader = leader
        self.now_ms = NOW_MS
        self.troubles: list[str] = []
        self.cuts: list[str] = []
        self.fetcher = Fetcher(site.node_id, leader.node_id, self._report, settings)

    def _report(self, news: ReplicaNews) -> None:
        (self.cuts if isinstance(news, TailCut | CopyBegunAnew) else self.troubles).append(line_of(news))

    def follow(self, *partitions: Partition) -> "Following":
        for partition in partitions:
            self.fetcher.follow(partition)
        return self

    def fetcher_copy(self) -> Partition:
        (copy,) = self.site.partitions.values()
        return copy

    def ask(self) -> Any:
        """What it asks for now, if anything."""
        return self.fetcher.next_request(1, self.now_ms)

    def tell(self, response: Message | None) -> None:
        self.fetcher.on_response(response, self.now_ms, WALL_MS)

    def turn(self) -> bool:
        """One request and its answer; false when there is nothing to ask."""
        request = self.ask()
        if request is None:
            return False
        self.tell(self.leader.answer(request, self.now_ms))
        return True

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    def catch_up(self, turns: int = 20) -> None:
        """Until nothing changes any more."""
        for _ in range(turns):
            if not self.turn():
                self.site.sync()
                deadline_ms = self.fetcher.deadline_ms
                if deadline_ms is not None:
                    self.now_ms = max(self.now_ms, deadline_ms)


def pair(**configs: str) -> tuple[Site, Partition, Site, Partition]:
    """Node 1 leads `t-0` in epoch 0, node 2 follows."""
    one, two = Site(1), Site(2)
    settings: dict[str, Any] = dict(configs)
    leader, follower = one.host(**settings), two.host(**settings)
    elect(leader, follower, epoch=0)
    return one, leader, two, follower


def followed(site: Site, leader: Site, *partitions: Partition) -> Following:
    return Following(site, leader).follow(*partitions)


def asked(request: object) -> list[tuple[int, int, int]]:
    """(fetch offset, leader epoch, epoch of the last record) of every partition a request names."""
    assert isinstance(request, FetchRequest)
    return [
        (one.fetch_offset, one.current_leader_epoch, one.last_fetched_epoch)
        for topic in request.topics
        for one in topic.partitions
    ]
