"""A node without sockets, threads or time of its own: tests hand it frames, run its syncs and move its clock."""

import struct
from random import Random
from typing import Any

from skidway.broker.events import Event
from skidway.broker.listeners import DEFAULT_NAME, only_listener
from skidway.broker.node import Node
from skidway.broker.partitions.marker_batches import MarkerBatches
from skidway.broker.settings import NodeSettings
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.ports import FileSlice
from skidway.records.control import EndTransaction
from skidway.records.record import Record, build_batch, read_records
from skidway.runtime.jobs import Job
from skidway.runtime.log_store import Marker, Producer
from skidway.server.event_text import line_of
from skidway.sim.world.disk import SimDisk
from skidway.wire.headers import read_response_header, write_request_header
from skidway.wire.registry import APIS, api

KEYS = {name: key for key, name in APIS.items()}
VERSIONS = {"Produce": 9, "Fetch": 11, "CreateTopics": 7, "DeleteTopics": 5, "Metadata": 12, "DescribeLogDirs": 4}
START_MS = 1_000_000
WALL_MS = 1_700_000_000_000


class HandClock:
    def __init__(self) -> None:
        self.now_ms = START_MS
        self.leapt_ms = 0
        """By how much the time of day was set forwards or back since."""
        self.per_look_ms = 0
        """How much time each look takes: for tests of what takes long."""

    def monotonic_ms(self) -> int:
        self.now_ms += self.per_look_ms
        return self.now_ms

    def wall_ms(self) -> int:
        return WALL_MS + self.leapt_ms + self.now_ms - START_MS


def part(api_name: str, struct_name: str, *values: Any, **fields: Any) -> Any:
    """A struct of an API's request."""
    module = __import__(api(KEYS[api_name]).request.message.__module__, fromlist=[struct_name])
    return getattr(module, struct_name)(*values, **fields)


def batch(*values: bytes, **options: Any) -> bytes:
    return bytes(build_batch([Record(0, WALL_MS, None, value) for value in values], **options))


def marker_of(
    producer_id: int, epoch: int, end: EndTransaction, transaction_version: int, wall_ms: int
) -> MarkerBatches:
    return MarkerBatches(Marker(Producer(producer_id, epoch), end, transaction_version), wall_ms)


class Peer:
    """One connection; replies are what its outbox holds, in order."""

    def __init__(self, world: "World", listener: str = DEFAULT_NAME) -> None:
        self.world = world
        self.connection = world.node.connect("test:1", listener)
        self.asked: list[tuple[int, str, int]] = []
        self.tail = b""
        self.correlation_id = 0
        self.ready_count = 0
        self.connection.on_ready = self._on_ready

    def _on_ready(self) -> None:
        self.ready_count += 1

    def frame(self, name: str, **fields: Any) -> bytes:
        version = fields.pop("version", VERSIONS.get(name, api(KEYS[name]).versions[0]))
        self.correlation_id += 1
        self.asked.append((self.correlation_id, name, version))
        parts: list[Any] = []
        served = api(KEYS[name])
        served.request.encoder(version)(served.request.message(**fields), parts)
        content = write_request_header(KEYS[name], version, self.correlation_id, "test") + b"".join(map(bytes, parts))
        return struct.pack(">i", len(content)) + content

    def give(self, data: bytes) -> int:
        """What a shell does: offer the bytes, keep the tail."""
        data = self.tail + data
        taken = self.connection.receive(memoryview(bytearray(data)), self.world.clock.now_ms)
        self.tail = data[taken:]
        return taken

    def send(self, name: str, **fields: Any) -> int:
        self.give(self.frame(name, **fields))
        return self.correlation_id

    def replies(self) -> list[tuple[int, Any]]:
        """(correlation id, response) of everything in the outbox, which is emptied."""
        parts = [item.read() if isinstance(item, FileSlice) else bytes(item) for item in self.connection.outbox]
        self.connection.outbox.clear()
        data, found = b"".join(parts), []
        while data:
            (length,) = struct.unpack_from(">i", data)
            frame, data = data[4 : 4 + length], data[4 + length :]
            correlation_id, name, version = self.asked.pop(0)
            got, position = read_response_header(KEYS[name], version, frame)
            while got != correlation_id:  # acks=0 has no reply
                correlation_id, name, version = self.asked.pop(0)
                got, position = read_response_header(KEYS[name], version, frame)
            response, end = api(KEYS[name]).response.decoder(version)(memoryview(frame), position)
            assert end == len(frame)
            found.append((correlation_id, response))
        return found

    def reply(self) -> Any:
        ((_, response),) = self.replies()
        return response

    def call(self, name: str, **fields: Any) -> Any:
        """Send, let the node do all its work, and take the answer."""
        self.send(name, **fields)
        self.world.settle()
        return self.reply()

    # The requests that most stories need.

    def produce(self, topic: str, data: bytes, *, acks: int = -1, index: int = 0, timeout_ms: int = 5000) -> int:
        entry = part("Produce", "PartitionProduceData", index, data)
        topics = [part("Produce", "TopicProduceData", topic, partition_data=[entry])]
        return self.send("Produce", acks=acks, timeout_ms=timeout_ms, topic_data=topics)

    def fetch_frame(self, offsets: dict[tuple[str, int], int], **fields: Any) -> bytes:
        topics: dict[str, list[Any]] = {}
        for (topic, index), offset in offsets.items():
            wanted = part("Fetch", "FetchPartition", index, fetch_offset=offset, partition_max_bytes=1_000_000)
            topics.setdefault(topic, []).append(wanted)
        entries = [part("Fetch", "FetchTopic", topic, partitions=wanted) for topic, wanted in topics.items()]
        defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 10_000_000, "session_epoch": -1}
        return self.frame("Fetch", topics=entries, **{**defaults, **fields})

    def fetch(self, offsets: dict[tuple[str, int], int], **fields: Any) -> int:
        self.give(self.fetch_frame(offsets, **fields))
        return self.correlation_id

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        entries = [
            part("CreateTopics", "CreatableTopicConfig", key.replace("_", "."), value) for key, value in configs.items()
        ]
        asked = part("CreateTopics", "CreatableTopic", topic, partitions, 1, configs=entries)
        (made,) = self.call("CreateTopics", topics=[asked], timeout_ms=1000).topics
        assert made.error_code == 0, made

    def alter(self, topic: str, **configs: str) -> int:
        entries = [
            part("IncrementalAlterConfigs", "AlterableConfig", key.replace("_", "."), 0, value)
            for key, value in configs.items()
        ]
        asked = part("IncrementalAlterConfigs", "AlterConfigsResource", 2, topic, entries)
        (result,) = self.call("IncrementalAlterConfigs", resources=[asked]).responses
        return int(result.error_code)

    def delete(self, topic: str) -> int:
        return self.send("DeleteTopics", topic_names=[topic], timeout_ms=1000)


class World:
    def __init__(
        self,
        disk: SimDisk | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: HandClock | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock or HandClock()
        self.disk = disk or SimDisk()
        self.events: list[str] = []
        self.reported: list[Event] = []
        self.held: list[Job] = []
        """What the node has handed out and nobody has run yet."""
        fields = {"node_id": 1, "listeners": only_listener("here", 9092), "data_dir": "/data", **settings}
        node_settings = NodeSettings(**fields)

        def report(event: Event) -> None:
            self.reported.append(event)
            self.events.append(line_of(event))

        self.node = Node(node_settings, self.disk, self.clock, Random(7), limits, report=report)
        self.node.open(self.clock.now_ms, self.clock.wall_ms())

    def peer(self, listener: str = DEFAULT_NAME) -> Peer:
        return Peer(self, listener)

    def end_turn(self) -> None:
        """The end of a turn; syncs it wants are held until `sync`."""
        self.held += self.node.end_turn()

    def sync(self) -> None:
        """A worker runs what is held."""
        held, self.held = self.held, []
        for job in held:
            error = None
            try:
                job.run()
            except OSError as failure:
                error = failure
            job.done(error, self.clock.now_ms)
        self.end_turn()

    def settle(self) -> None:
        self.end_turn()
        while self.held:
            self.sync()

    def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.node.on_time(self.clock.now_ms)
        self.end_turn()

    def partition(self, topic: str, index: int = 0) -> Any:
        return self.node.partitions.find(topic, index)


def values(response: Any, topic: int = 0, index: int = 0) -> list[bytes | None]:
    """The record values of one partition of a fetch reply."""
    data = bytes(response.responses[topic].partitions[index].records)
    found, position = [], 0
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        whole = data[position : position + 12 + length]
        found += [record.value for record in read_records(whole, decompressed_bytes_max=10**8)]
        position += len(whole)
    return found


def code(response: Any) -> int:
    """The error code of the only partition of a produce reply."""
    return int(response.responses[0].partition_responses[0].error_code)
