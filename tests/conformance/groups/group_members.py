"""Group consumers of every client behind one face, each polling in a thread or a process of its own.

A kind is a client and the way it shares partitions: the classic protocol's eager and cooperative ways, and the newer
protocol. A member commits what it has read after every poll, so that what it hands over was read once. Run as a
program (`python group_members.py '{"kind": …}'`) it reports what it does line by line, and can be killed.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from waiting import eventually

Place = tuple[str, int]
KINDS = ("confluent-range", "confluent-cooperative", "confluent-consumer", "kafka-python", "aiokafka")
NEWER = "confluent-consumer"
POLL_S = 0.1
SETTLE_S = 60.0


@dataclass(frozen=True)
class Options:
    kind: str
    bootstrap: str
    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    instance: str | None = None
    session_ms: int = 6_000


class Sharing(ABC):
    """What a member needs of its client."""

    @abstractmethod
    def poll(self) -> list[tuple[Place, int, bytes]]:
        """(where, offset, value) of what came within POLL_S."""

    @abstractmethod
    def assignment(self) -> set[Place]: ...

    @abstractmethod
    def commit(self, offsets: dict[Place, int]) -> None:
        """Waits for the answer; a rebalance in between is no error, the next owner reads again."""

    @abstractmethod
    def close(self) -> None: ...


class ConfluentSharing(Sharing):
    def __init__(self, options: Options) -> None:
        import confluent_kafka as ck

        settings: dict[str, Any] = {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
        if options.kind == NEWER:
            settings["group.protocol"] = "consumer"
        else:
            strategy = "cooperative-sticky" if options.kind == "confluent-cooperative" else "range"
            settings["partition.assignment.strategy"] = strategy
            settings["session.timeout.ms"] = options.session_ms
            settings["heartbeat.interval.ms"] = 300
        if options.instance:
            settings["group.instance.id"] = options.instance
        self.ck = ck
        self.consumer = ck.Consumer(settings)
        self.consumer.subscribe([options.pattern] if options.pattern else list(options.topics))

    def poll(self) -> list[tuple[Place, int, bytes]]:
        found = self.consumer.consume(500, timeout=POLL_S)
        read: list[Any] = [((m.topic(), m.partition()), m.offset(), m.value()) for m in found if m.error() is None]
        return read

    def assignment(self) -> set[Place]:
        return {(tp.topic, tp.partition) for tp in self.consumer.assignment()}

    def commit(self, offsets: dict[Place, int]) -> None:
        with contextlib.suppress(self.ck.KafkaException):
            where = [self.ck.TopicPartition(topic, p, offset) for (topic, p), offset in offsets.items()]
            self.consumer.commit(offsets=where, asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class KafkaPythonSharing(Sharing):
    def __init__(self, options: Options) -> None:
        from kafka.errors import KafkaConnectionError, KafkaError
        from kafka.structs import OffsetAndMetadata

        import kafka

        self.kafka, self.error, self.offset = kafka, KafkaError, OffsetAndMetadata
        self.broker_is_away = KafkaConnectionError
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            group_instance_id=options.instance,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=300,
            # With a pattern it asks for every topic each time, which takes long on a broker that has many.
            metadata_max_age_ms=3_000 if options.pattern else 500,
            fetch_max_wait_ms=100,
            request_timeout_ms=max(30_000, options.session_ms + 5_000),
        )
        self.consumer.subscribe(topics=list(options.topics) or (), pattern=options.pattern)

    def poll(self) -> list[tuple[Place, int, bytes]]:
        # Longer than a rebalance takes, for a bug of kafka-python 3.0.12. If a leader rejoins because metadata changed
        # (or a member because its subscription did), need_rejoin() of kafka/coordinator/consumer.py is true only until
        # _perform_assignment() (or group_protocols()) takes the new snapshot. A poll that ends after that and before
        # the answer to the sync leaves the join to the next poll, which no longer sees a need for it: only
        # join_group_async() of base.py takes the result of _join_task and goes back to beating. So the member stays
        # "rebalancing", silent, with its old partitions. One member that polled for 1 ms: 8 of 8 times.
        try:
            polled = self.consumer.poll(timeout_ms=2_500)
        except self.broker_is_away:
            return []  # it leaves trying again to whoever polls
        return [((r.topic, r.partition), r.offset, r.value) for records in polled.values() for r in records]

    def assignment(self) -> set[Place]:
        return {(tp.topic, tp.partition) for tp in self.consumer.assignment()}

    def commit(self, offsets: dict[Place, int]) -> None:
        with contextlib.suppress(self.error):
            where = {
                self.kafka.TopicPartition(*place): self.offset(offset, "", -1) for place, offset in offsets.items()
            }
            self.consumer.commit(where)

    def close(self) -> None:
        self.consumer.close(autocommit=False)


class AiokafkaSharing(Sharing):
    """The loop runs only in calls, which is nearly always: a member does nothing but poll."""

    def __init__(self, options: Options) -> None:
        import aiokafka
        from aiokafka.errors import KafkaError

        self.aiokafka, self.error = aiokafka, KafkaError
        self.runner = asyncio.Runner()
        self.runner.run(self._start(options))

    async def _start(self, options: Options) -> None:
        self.consumer = self.aiokafka.AIOKafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            group_instance_id=options.instance,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=500,
            fetch_max_wait_ms=100,
        )
        self.consumer.subscribe(topics=list(options.topics) or (), pattern=options.pattern)
        try:
            await self.consumer.start()
        except self.error:
            await self.consumer.stop()
            raise

    def poll(self) -> list[tuple[Place, int, bytes]]:
        polled = self.runner.run(self.consumer.getmany(timeout_ms=int(POLL_S * 1000)))
        return [((r.topic, r.partition), r.offset, r.value) for records in polled.values() for r in records]

    def assignment(self) -> set[Place]:
        return {(tp.topic, tp.partition) for tp in self.consumer.assignment()}

    def commit(self, offsets: dict[Place, int]) -> None:
        with contextlib.suppress(self.error):
            where = {self.aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
            self.runner.run(self.consumer.commit(where))

    def close(self) -> None:
        self.runner.run(self.consumer.stop())
        self.runner.close()


def open_sharing(options: Options) -> Sharing:
    made = {"kafka-python": KafkaPythonSharing, "aiokafka": AiokafkaSharing}
    return made.get(options.kind, ConfluentSharing)(options)


@dataclass
class Seen:
    """What is known of a member from outside."""

    assigned: set[Place] = field(default_factory=set)
    changes: int = 0
    """How often the assignment changed."""
    read: list[tuple[Place, int, bytes]] = field(default_factory=list)

    def values(self) -> list[bytes]:
        return [value for _, _, value in self.read]

    def note_assignment(self, now: set[Place]) -> None:
        if now != self.assigned:
            self.assigned = now
            self.changes += 1


class Member:
    """In a thread."""

    def __init__(self, options: Options) -> None:
        self.seen = Seen()
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, args=(options,), daemon=True)
        self._thread.start()

    def _live(self, options: Options) -> None:
        try:
            sharing = open_sharing(options)
            try:
                while not self._stop.is_set():
                    found = sharing.poll()
                    self.seen.read += found
                    self.seen.note_assignment(sharing.assignment())
                    if found:
                        sharing.commit({place: offset + 1 for place, offset, _ in found})
            finally:
                sharing.close()
        except BaseException as failure:
            self.failure = failure

    def close(self) -> None:
        self._stop.set()
        self._thread.join(SETTLE_S)
        assert not self._thread.is_alive(), "the member does not end"
        if self.failure is not None:
            raise self.failure
        self.seen.assigned = set()


class Process:
    """In a process, to be killed. It stops committing when told, so that what is read and what is committed differ."""

    def __init__(self, options: Options) -> None:
        here = Path(__file__)
        folders = [str(folder) for folder in here.parents[:3]]
        self.seen = Seen()
        self.commits = True
        self.process = subprocess.Popen(
            [sys.executable, str(here), json.dumps(asdict(options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(folders), "PATH": ""},
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if not told["commits"]:
                self.commits = False
            self.seen.note_assignment({(topic, p) for topic, p in told["assigned"]})
            self.seen.read += [((topic, p), offset, value.encode()) for topic, p, offset, value in told["read"]]

    def stop_committing(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"stop\n")
        self.process.stdin.flush()
        eventually(lambda: not self.commits, SETTLE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()

    close = kill


def main(text: str) -> None:
    told = json.loads(text)
    sharing = open_sharing(Options(**{**told, "topics": tuple(told["topics"])}))
    committing = threading.Event()
    committing.set()

    def listen() -> None:
        if not sys.stdin.readline():
            import os

            os._exit(1)  # whoever started this is gone
        committing.clear()

    threading.Thread(target=listen, daemon=True).start()
    before: tuple[set[Place], bool] = set(), True
    while True:
        found = sharing.poll()
        now = sharing.assignment(), committing.is_set()
        if found and now[1]:
            sharing.commit({place: offset + 1 for place, offset, _ in found})
        if found or now != before:
            read = [[*place, offset, value.decode()] for place, offset, value in found]
            print(json.dumps({"assigned": sorted(now[0]), "commits": now[1], "read": read}), flush=True)
            before = now


# ------------------------------------------------------------------------------------------------------ waiting


def shares(members: list[Any]) -> list[int]:
    for member in members:
        if getattr(member, "failure", None) is not None:
            raise member.failure
    return sorted(len(member.seen.assigned) for member in members)


def await_shares(members: list[Any], expected: list[int], timeout_s: float = SETTLE_S) -> None:
    """Until everyone has so many partitions, nobody's is another's, and it stayed so for a moment."""

    def settled() -> bool:
        owned = [place for member in members for place in member.seen.assigned]
        return shares(members) == sorted(expected) and len(owned) == len(set(owned))

    deadline = time.monotonic() + timeout_s
    while True:
        left = max(deadline - time.monotonic(), 0.1)
        eventually(lambda: settled() or ([sorted(member.seen.assigned) for member in members] and False), left)
        changes = [member.seen.changes for member in members]
        time.sleep(0.4)
        if settled() and changes == [member.seen.changes for member in members]:
            return


if __name__ == "__main__":
    main(sys.argv[1])
