"""The loads on the group coordinator: commits per second, and how long groups of many members take to rebalance.

Members are raw connections of one process that speak the classic protocol; every error code is checked, and a figure
counts only when all members ended in one generation with the assignment that their leader made.
"""

import os
import selectors
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator

from bench.frames import BenchError, Peer, frame, text
from bench.load import connections, produce_load
from bench.subject import Subject, cpu_seconds

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP = 8, 9, 10, 11, 13, 14
MEMBER_ID_REQUIRED = 79
NOT_YET = {3, 14, 15, 16}  # the internal topic is being made, or its coordinator is still loading
COMMIT_GROUPS = 8
COMMIT_DEPTH = 16
COMMITTED = 1_234
SESSION_MS, REBALANCE_MS = 30_000, 60_000
REBALANCES = 3
TIMEOUT_S = 30.0

Load = Callable[[Subject, float], dict[str, float]]


def blob(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def offset_commit(group: str, topic: str, partition: int, offset: int) -> bytes:
    """OffsetCommit v7 of one partition by a consumer that manages its partitions itself."""
    body = text(group) + struct.pack(">i", -1) + text("") + struct.pack(">hi", -1, 1) + text(topic)
    body += struct.pack(">iiqi", 1, partition, offset, -1) + text("")
    return frame(OFFSET_COMMIT, 7, body, flexible=False)


def offset_commit_error_at(topic: str) -> int:
    """Where, from the length prefix on, an OffsetCommit v7 reply for one partition has its error code."""
    return 4 + 4 + 4 + 4 + len(text(topic)) + 4 + 4


def committed(peer: Peer, group: str, topic: str, partition: int) -> tuple[int, int]:
    """The group's error code and the offset by OffsetFetch v5."""
    body = text(group) + struct.pack(">i", 1) + text(topic) + struct.pack(">ii", 1, partition)
    reply = peer.exchange(frame(OFFSET_FETCH, 5, body, flexible=False))
    (error,) = struct.unpack_from(">h", reply, len(reply) - 2)
    return int(error), -1 if error else int(struct.unpack_from(">q", reply, len(reply) - 18)[0])


def await_coordinator(peer: Peer, group: str, topic: str) -> None:
    """Until the broker serves the group: the first one anywhere makes a broker create its internal topic."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        reply = peer.exchange(frame(FIND_COORDINATOR, 1, text(group) + b"\0", flexible=False))
        (error,) = struct.unpack_from(">h", reply, 12)
        if not error:
            error, _ = committed(peer, group, topic, 0)
        if not error:
            return
        if error not in NOT_YET or time.monotonic() > deadline:
            raise BenchError(f"no coordinator for group {group}: error {error}")
        time.sleep(0.05)


def commits(topic: str) -> Load:
    """One group and one connection for each of COMMIT_GROUPS partitions of a topic that exists."""

    def run(subject: Subject, seconds: float) -> dict[str, float]:
        names = [f"bench-commits-{time.monotonic_ns()}-{number}" for number in range(COMMIT_GROUPS)]
        with Peer(subject.bootstrap) as peer:
            for name in names:
                await_coordinator(peer, name, topic)
            _commit_load(subject, names, topic, 0, seconds / 5)
            figures = _commit_load(subject, names, topic, COMMITTED, seconds)
            for partition, name in enumerate(names):
                error, offset = committed(peer, name, topic, partition)
                if error or offset != COMMITTED:
                    raise BenchError(f"{subject.name}: {name} has offset {offset} (error {error}), not {COMMITTED}")
        return figures

    return run


def _commit_load(subject: Subject, names: list[str], topic: str, offset: int, seconds: float) -> dict[str, float]:
    frames = [offset_commit(name, topic, partition, offset) for partition, name in enumerate(names)]
    at, depth = offset_commit_error_at(topic), COMMIT_DEPTH
    broker, own = cpu_seconds(subject.pid), os.times()
    acked = produce_load(subject.bootstrap, frames, error_at=at, depth=depth, seconds=seconds)
    used = os.times()
    return {
        "requests": acked.requests / acked.elapsed_s,
        "cores": (cpu_seconds(subject.pid) - broker) / acked.elapsed_s,
        "client": (used.user + used.system - own.user - own.system) / acked.elapsed_s,
    }


class _Reader:
    """Reads the fields of one reply, in their order."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(f">{code}", self.data, self.at)
        self.at += struct.calcsize(f">{code}")
        return int(value)

    def take(self, length_code: str) -> bytes:
        length = max(0, self.number(length_code))
        self.at += length
        return self.data[self.at - length : self.at]


class Member:
    """One connection and what its member knows of the group."""

    def __init__(self, group: str, number: int, line: socket.socket) -> None:
        self.group, self.number, self.line = group, number, line
        self.id = b""
        self.generation = -1
        self.share: bytes | None = None
        self._arrived = bytearray()

    def send(self, api: int, version: int, body: bytes) -> None:
        """The correlation id is the api's key, so that a reply says what it answers."""
        rest = memoryview(frame(api, version, text(self.group) + body, flexible=False, correlation=api))
        while rest:
            try:
                rest = rest[self.line.send(rest) :]
            except BlockingIOError:
                with selectors.DefaultSelector() as writable:
                    writable.register(self.line, selectors.EVENT_WRITE)
                    if not writable.select(TIMEOUT_S):
                        raise BenchError("the broker takes no more bytes from a member") from None

    def replies(self) -> Iterator[tuple[int, _Reader]]:
        """What has arrived whole: the api's key and the body behind the throttle time."""
        data = self.line.recv(1 << 18)
        if not data:
            raise BenchError("the broker closed a member's connection")
        self._arrived += data
        while len(self._arrived) >= 4:
            end = 4 + int(struct.unpack_from(">i", self._arrived)[0])
            if len(self._arrived) < end:
                return
            reader = _Reader(bytes(self._arrived[4:end]))
            del self._arrived[:end]
            api, _ = reader.number("i"), reader.number("i")
            yield api, reader

    def join(self, topic: str, turn: int) -> None:
        """JoinGroup v5; the turn is user data, and since it changes, every member's join begins a rebalance."""
        subscription = struct.pack(">hi", 0, 1) + text(topic) + blob(struct.pack(">i", turn))
        body = struct.pack(">iih", SESSION_MS, REBALANCE_MS, len(self.id)) + self.id + struct.pack(">h", -1)
        body += text("consumer") + struct.pack(">i", 1) + text("range") + blob(subscription)
        self.share = None
        self.send(JOIN_GROUP, 5, body)

    def sync(self, assignments: list[tuple[bytes, bytes]]) -> None:
        """SyncGroup v3."""
        body = struct.pack(">ih", self.generation, len(self.id)) + self.id + struct.pack(">hi", -1, len(assignments))
        body += b"".join(struct.pack(">h", len(id_)) + id_ + blob(share) for id_, share in assignments)
        self.send(SYNC_GROUP, 3, body)


class Crowd:
    """The members of one group; each step sends for all of them and waits for all the answers."""

    def __init__(self, group: str, topic: str, lines: list[socket.socket]) -> None:
        self.topic = topic
        self.members = [Member(group, number, line) for number, line in enumerate(lines)]
        self._selector = selectors.DefaultSelector()
        for member in self.members:
            self._selector.register(member.line, selectors.EVENT_READ, member)
        self._turn = 0

    def close(self) -> None:
        self._selector.close()

    def form(self) -> None:
        """One member alone makes the group; the others ask for their ids, and the next rebalance takes them in."""
        first, others = self.members[0], self.members[1:]
        self._ask_ids([first])
        self.rebalance([first])
        self._ask_ids(others)
        self.rebalance(self.members)

    def _ask_ids(self, members: list[Member]) -> None:
        for member in members:
            member.join(self.topic, self._turn)
        waiting = len(members)
        while waiting:
            for member, _, reader in self._arrivals():
                if (error := reader.number("h")) != MEMBER_ID_REQUIRED:
                    raise BenchError(f"a member without an id got error {error} on joining")
                reader.number("i")
                reader.take("h"), reader.take("h")
                member.id = reader.take("h")
                waiting -= 1

    def rebalance(self, members: list[Member]) -> float:
        """All join, all sync; seconds from the last JoinGroup sent to the last SyncGroup answered."""
        self._turn += 1
        for member in reversed(members):
            started = time.perf_counter()
            member.join(self.topic, self._turn)
        waiting = len(members)
        while waiting:
            for member, api, reader in self._arrivals():
                if error := reader.number("h"):
                    raise BenchError(f"api {api} of a rebalance with {len(members)} members: error {error}")
                if api == JOIN_GROUP:
                    member.sync(self._joined(member, reader, len(members)))
                else:
                    member.share = reader.take("i")
                    waiting -= 1
        elapsed_s = time.perf_counter() - started
        shares = sorted(member.share or b"" for member in members)
        expected = sorted(self._share(number) for number in range(len(members)))
        if shares != expected or len({member.generation for member in members}) != 1:
            raise BenchError(f"the {len(members)} members did not end in one generation with the leader's assignment")
        return elapsed_s

    def _joined(self, member: Member, reader: _Reader, expected: int) -> list[tuple[bytes, bytes]]:
        """The assignments that this member owes: none unless it leads."""
        member.generation = reader.number("i")
        reader.take("h")
        leader, id_ = reader.take("h"), reader.take("h")
        if id_ != member.id:
            raise BenchError("a join was answered with another member's id")
        if leader != id_:
            return []
        ids = []
        for _ in range(reader.number("i")):
            ids.append(reader.take("h"))
            reader.take("h"), reader.take("i")
        if len(ids) != expected:
            raise BenchError(f"a rebalance ended with {len(ids)} of {expected} members")
        return [(id_, self._share(number)) for number, id_ in enumerate(sorted(ids))]

    def _share(self, number: int) -> bytes:
        """One partition each, as a consumer's assignment is written."""
        return struct.pack(">hi", 0, 1) + text(self.topic) + struct.pack(">iii", 1, number, -1)

    def leave(self) -> None:
        """LeaveGroup v3 for everyone at once."""
        first = self.members[0]
        gone = b"".join(struct.pack(">h", len(one.id)) + one.id + b"\xff\xff" for one in self.members)
        first.send(LEAVE_GROUP, 3, struct.pack(">i", len(self.members)) + gone)
        for _, _, reader in self._arrivals():
            if error := reader.number("h"):
                raise BenchError(f"the members could not leave: error {error}")

    def _arrivals(self) -> list[tuple[Member, int, _Reader]]:
        """The replies that have come; waits for at least one."""
        deadline = time.monotonic() + TIMEOUT_S
        found: list[tuple[Member, int, _Reader]] = []
        while not found:
            ready = self._selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise BenchError(f"no answer to any of {len(self.members)} members in {TIMEOUT_S:.0f} s")
            for key, _ in ready:
                found += [(key.data, api, reader) for api, reader in key.data.replies()]
        return found


def rebalance(count: int, topic: str) -> Load:
    """`count` members that already form a group all join it anew, REBALANCES times: the median, `ms`."""

    def run(subject: Subject, _seconds: float) -> dict[str, float]:
        group = f"bench-rebalance-{time.monotonic_ns()}"
        with Peer(subject.bootstrap) as peer:
            await_coordinator(peer, group, topic)
        with connections(subject.bootstrap, count) as lines:
            crowd = Crowd(group, topic, lines)
            try:
                crowd.form()
                taken = [crowd.rebalance(crowd.members) for _ in range(REBALANCES)]
                crowd.leave()
            finally:
                crowd.close()
        return {"ms": statistics.median(taken) * 1e3}

    return run


def compaction(keys: int) -> Load:
    """Skidway's own compaction of a log on this disk, in a child process as its broker does it."""

    def run(_subject: Subject, _seconds: float) -> dict[str, float]:
        # Imported late: the other loads need nothing of the broker's own code.
        from bench.compaction import measured

        found = measured(keys, keys // 2)
        if found.result.keys != keys:
            raise BenchError(f"{keys} keys were written, {found.result.keys} were compacted")
        return {"mb": found.size / 1e6 / found.elapsed_s}

    return run
