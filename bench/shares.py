"""The loads of share groups: records acquired and accepted, the time to an answer, and what it takes in memory.

Records are produced before, in prepared batches. Members are raw connections of one process; an ordinary member of the
group joins first, so that the broker knows the group and where it begins. What a member fetches it settles: `Streaming`
sends acknowledgements with a later fetch, as clients do, `Ranges` too, but a range for each record; `OneByOne` sends a
request for each record, all that it holds one behind the other. Every reply is checked.

Figures beyond those of workloads.py: `records` records per second that were acquired and whose acceptance was answered,
`cpu_record` broker CPU microseconds per record, `rate_cpu` records per CPU second of the broker, `mb` megabytes of
resident memory more than before, `join` milliseconds from the first heartbeat of a new group to its first record.
"""

import os
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench import share_frames
from bench.frames import Batch, BenchError, Peer, batch, produce, produce_error_at
from bench.load import nearest_rank
from bench.share_frames import Beaten, Range, Session, alter_groups, heartbeat, read_fetch
from bench.subject import Subject, cpu_seconds, resident_mb

Figures = dict[str, float]
PARTITIONS = 8
RECORDS_PER_FETCH = 500
"""What a Java consumer asks for by itself."""
BATCH_RECORDS = 100
VALUE_BYTES = 100
WAIT_MS = 500
ASSIGNED_S = 20.0
FILL_DEPTH = 32
RECEIVE_BYTES = 4 << 20
GROUPS_AT_ONCE = 200


def fill(subject: Subject, topic: str, partitions: int, one: Batch, batches: int) -> None:
    """So many batches into each partition."""
    error_at = produce_error_at(topic)
    with Peer(subject.bootstrap) as peer:
        for partition in range(partitions):
            request = produce(topic, partition, one.data, acks=1)
            left = batches
            while left:
                count = min(left, FILL_DEPTH)
                peer.socket.sendall(request * count)
                for _ in range(count):
                    reply = peer._receive(int(struct.unpack(">i", peer._receive(4))[0]))
                    if error := struct.unpack_from(">h", reply, error_at - 4)[0]:
                        raise BenchError(f"{topic}-{partition}: error {error}")
                left -= count


def check_altered(reply: bytes) -> None:
    """IncrementalAlterConfigs."""
    fields = share_frames.Fields(reply)
    fields.number("i")
    for _ in range(fields.count()):
        if error := fields.number("h"):
            raise BenchError(f"the settings of a group were refused: error {error}")
        fields.skip_text()
        fields.number("b")
        fields.skip_text()
        fields.at += 1


def join(subject: Subject, groups: list[str], topic: str, partitions: int, settings: dict[str, str]) -> bytes:
    """One member for each group, until it has all partitions. Returns the topic's id."""
    settings = {"share.auto.offset.reset": "earliest", **settings}
    topic_id = b""
    with Peer(subject.bootstrap) as peer:
        _await_coordinator(peer, groups[0])
        for at in range(0, len(groups), GROUPS_AT_ONCE):
            check_altered(peer.exchange(alter_groups(groups[at : at + GROUPS_AT_ONCE], settings)))
        for at in range(0, len(groups), GROUPS_AT_ONCE):
            topic_id = _await_assigned(peer, groups[at : at + GROUPS_AT_ONCE], topic, partitions)
    return topic_id


def _await_coordinator(peer: Peer, group: str) -> None:
    """The topic for groups is made when somebody asks for a coordinator."""
    deadline = time.monotonic() + ASSIGNED_S
    at = share_frames.ERROR_OF_COORDINATOR_AT
    while error := struct.unpack_from(">h", peer.exchange(share_frames.find_coordinator(group)), at)[0]:
        if error not in share_frames.NOT_YET or time.monotonic() > deadline:
            raise BenchError(f"no coordinator for {group}: error {error}")
        time.sleep(0.02)


def _await_assigned(peer: Peer, groups: list[str], topic: str, partitions: int) -> bytes:
    epochs, topic_id = dict.fromkeys(groups, 0), b""
    deadline = time.monotonic() + ASSIGNED_S
    while epochs:
        for group, epoch in list(epochs.items()):
            reply = peer.exchange(heartbeat(group, "first", epoch, None if epoch else [topic]))
            if not epoch and share_frames.error_of(reply) in share_frames.NOT_YET:
                continue
            beaten = Beaten(reply)
            epochs[group] = beaten.epoch
            for found, indexes in (beaten.assigned or {}).items():
                topic_id = found
                if len(indexes) == partitions:
                    del epochs[group]
        if time.monotonic() > deadline:
            raise BenchError(f"{len(epochs)} of {len(groups)} groups have no partitions after {ASSIGNED_S:.0f} s")
        if epochs:
            time.sleep(0.02)
    return topic_id


class Replies:
    """What came over one connection, cut into replies. A reply is valid until the next call."""

    def __init__(self, peer: socket.socket) -> None:
        self._socket = peer
        self._buffer = bytearray(RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        self._begin = self._end = 0

    def receive(self) -> None:
        if self._begin and (self._end == len(self._buffer) or self._begin == self._end):
            self._view[: self._end - self._begin] = self._view[self._begin : self._end].tobytes()
            self._begin, self._end = 0, self._end - self._begin
        got = self._socket.recv_into(self._view[self._end :])
        if not got:
            raise BenchError("the broker closed a connection")
        self._end += got

    def next(self) -> memoryview | None:
        if self._end - self._begin < 4:
            return None
        size = 4 + int(struct.unpack_from(">i", self._buffer, self._begin)[0])
        assert size <= RECEIVE_BYTES, f"a reply of {size} bytes"
        if self._end - self._begin < size:
            return None
        begin, self._begin = self._begin, self._begin + size
        return self._view[begin : begin + size]

    def same(self, wanted: bytes, most: int) -> int:
        """How many replies, `most` at most, have just these bytes."""
        count = min(most, (self._end - self._begin) // len(wanted))
        found = self._view[self._begin : self._begin + count * len(wanted)]
        if count and found == wanted * count:
            self._begin += len(found)
            return count
        return 0


class Member:
    """One connection that does not block, and a session over it."""

    def __init__(self, subject: Subject, group: str, name: str, topic_id: bytes, partitions: list[int]) -> None:
        host, _, port = subject.bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.replies = Replies(self.socket)
        self.session = Session(group, name, topic_id, partitions)
        self.partitions = partitions
        self.accepted = 0
        """Records whose acceptance was answered."""

    def send(self, data: bytes | bytearray) -> None:
        self.socket.sendall(data)

    def begin(self) -> None:
        """Send the first requests."""

    def on_readable(self) -> None:
        """Take what came, and send what follows from it."""


def count_of(acquired: dict[int, list[Range]]) -> int:
    return sum(last - first + 1 for ranges in acquired.values() for first, last in ranges)


class Streaming(Member):
    """Acknowledges with the next fetch what a fetch brought."""

    depth = 2
    """Fetches under way."""

    def begin(self) -> None:
        self._under_way: list[int] = []
        for _ in range(self.depth):
            self._more({})

    def _more(self, acquired: dict[int, list[Range]]) -> None:
        self._under_way.append(count_of(acquired))
        self.send(self.session.fetch(RECORDS_PER_FETCH, WAIT_MS, self.said(acquired)))

    def said(self, acquired: dict[int, list[Range]]) -> dict[int, list[Range]]:
        return acquired

    def on_readable(self) -> None:
        self.replies.receive()
        while (reply := self.replies.next()) is not None:
            acquired = read_fetch(reply)
            self.accepted += self._under_way.pop(0)
            self._more(acquired)


class Ranges(Streaming):
    """A range for each record, all of them in one request."""

    def said(self, acquired: dict[int, list[Range]]) -> dict[int, list[Range]]:
        return {
            index: [(offset, offset) for first, last in ranges for offset in range(first, last + 1)]
            for index, ranges in acquired.items()
        }


class OneByOne(Member):
    """A request for each record that it holds, and a fetch before them for the next ones."""

    def begin(self) -> None:
        self._expected = b""
        self._held: dict[int, list[Range]] = {}
        self._singly = {index: self.session.singly(index) for index in self.partitions}
        self._waits_for_fetch, self._answers_due = True, 0
        self.send(self.session.fetch(RECORDS_PER_FETCH, WAIT_MS, {}))

    def on_readable(self) -> None:
        self.replies.receive()
        while True:
            if self._waits_for_fetch:
                reply = self.replies.next()
                if reply is None:
                    return
                self._held = read_fetch(reply)
                self._waits_for_fetch = False
            if self._answers_due and not self._take_answers():
                return
            if not self._answers_due:
                self._go_on()

    def _take_answers(self) -> bool:
        """Whether all have come."""
        while self._answers_due:
            count = self.replies.same(self._expected, self._answers_due) if self._expected else 0
            if not count:
                reply = self.replies.next()
                if reply is None:
                    return False
                share_frames.check_acknowledged(reply)
                self._expected, count = bytes(reply), 1
            self.accepted += count
            self._answers_due -= count
        return True

    def _go_on(self) -> None:
        parts = [self.session.fetch(RECORDS_PER_FETCH, WAIT_MS, {})]
        for index, ranges in self._held.items():
            for first, last in ranges:
                parts.append(bytes(self._singly[index].accept(first, last)))
                self._answers_due += last - first + 1
        self._waits_for_fetch = True
        self.send(b"".join(parts))


def _own_cpu() -> float:
    used = os.times()
    return used.user + used.system


def drive(
    subject: Subject, members: list[Member], *, seconds: float, until: int | None = None, warms: bool = True
) -> Figures:
    """All of them, for so long, or until so many records are accepted. `warms`: the first part does not count."""
    with selectors.DefaultSelector() as selector:
        began, before = time.monotonic(), 0
        started, broker, own = began, cpu_seconds(subject.pid), _own_cpu()
        for member in members:
            selector.register(member.socket, selectors.EVENT_READ, member)
            member.begin()
        warm = seconds / 5 if warms else 0.0
        while (now := time.monotonic()) < began + warm + seconds:
            done = sum(member.accepted for member in members)
            if until is not None and done >= until:
                break
            if warms and (now >= began + warm or (until is not None and done > until / 5)):
                warms = False
                started, broker, own, before = now, cpu_seconds(subject.pid), _own_cpu(), done
            for key, _ in selector.select(0.1):
                key.data.on_readable()
        elapsed = now - started
        done = sum(member.accepted for member in members) - before
        broker, own = cpu_seconds(subject.pid) - broker, _own_cpu() - own
    for member in members:
        member.socket.close()
    if not done:
        raise BenchError("no acknowledgement was answered")
    return {
        "records": done / elapsed,
        "cpu_record": 1e6 * broker / done,
        "rate_cpu": done / max(broker, 0.01),
        "cores": broker / elapsed,
        "client": own / elapsed,
    }


@contextmanager
def filled(subject: Subject, partitions: int, records: int, value_bytes: int = VALUE_BYTES) -> Iterator[str]:
    """A topic with so many records in batches of BATCH_RECORDS, deleted afterwards."""
    name = f"bench-shares-{time.monotonic_ns()}"
    with Peer(subject.bootstrap) as peer:
        peer.create_topic(name, partitions, subject.topic_configs("os") | {"file.delete.delay.ms": "1000"})
    try:
        per_batch = BATCH_RECORDS if records <= 5_000_000 else 10 * BATCH_RECORDS
        one = batch(value_bytes, records=per_batch)
        fill(subject, name, partitions, one, -(-records // per_batch // partitions))
        yield name
    finally:
        with Peer(subject.bootstrap) as peer:
            peer.delete_topic(name)


def new_group() -> str:
    return f"bench-{time.monotonic_ns()}"


def rate(subject: Subject, kind: type[Member], members: int, records: int, seconds: float) -> Figures:
    """Of one group that works off a topic."""
    with filled(subject, PARTITIONS, records) as name:
        return rate_of(subject, name, kind, members, int(records * 0.9), seconds)


def rate_of(subject: Subject, name: str, kind: type[Member], members: int, until: int, seconds: float) -> Figures:
    group = new_group()
    topic_id = join(subject, [group], name, PARTITIONS, {})
    crowd = [kind(subject, group, f"m{number}", topic_id, [number % PARTITIONS]) for number in range(members)]
    return drive(subject, crowd, seconds=seconds, until=until)


BACKLOG_VALUE_BYTES = 10


def backlog(subject: Subject, records: int, seconds: float) -> Figures:
    """The same with a long way to go; what the process has more in memory at its end."""
    with filled(subject, PARTITIONS, records, BACKLOG_VALUE_BYTES) as name:
        before = resident_mb(subject.pid)
        found = rate_of(subject, name, Streaming, PARTITIONS, records, seconds)
        return found | {"mb": resident_mb(subject.pid) - before}


IN_FLIGHT_PARTITIONS = 60
IN_FLIGHT = 120_000


def in_flight(subject: Subject) -> Figures:
    """Memory of so many records that a member holds."""
    with filled(subject, IN_FLIGHT_PARTITIONS, 2 * IN_FLIGHT) as name:
        group = new_group()
        topic_id = join(subject, [group], name, IN_FLIGHT_PARTITIONS, {"share.record.lock.duration.ms": "60000"})
        before, held = resident_mb(subject.pid), 0
        session = Session(group, "holder", topic_id, list(range(IN_FLIGHT_PARTITIONS)))
        with Peer(subject.bootstrap) as peer:
            while held < IN_FLIGHT:
                got = count_of(read_fetch(peer.exchange(session.fetch(4 * RECORDS_PER_FETCH, WAIT_MS, {}))))
                if not got and session.epoch > 10:
                    raise BenchError(f"only {held} records are in flight")
                held += got
            return {"mb": resident_mb(subject.pid) - before, "held": held}


def many_groups(subject: Subject, groups: int, records: int, seconds: float) -> Figures:
    """So many groups, each with one member, together so many records of one partition; over a few connections."""
    with filled(subject, 1, max(records // groups, RECORDS_PER_FETCH)) as name:
        names = [f"{new_group()}-{number}" for number in range(groups)]
        topic_id = join(subject, names, name, 1, {})
        crowds = [
            Crowd(subject, [Session(each, "m", topic_id, [0]) for each in names[number::PARTITIONS]])
            for number in range(min(PARTITIONS, groups))
        ]
        # From the start: each of many groups has few records, and much is acquired before the first is accepted.
        return drive(subject, list(crowds), seconds=seconds, until=int(records * 0.9), warms=False)


class Crowd(Member):
    """Sessions of many groups over one connection, one request of each under way: with records to be settled, as long
    as there are any, and as a rule the next ones."""

    def __init__(self, subject: Subject, sessions: list[Session]) -> None:
        super().__init__(subject, "", "", bytes(16), [0])
        self._sessions = sessions

    def begin(self) -> None:
        self._line: list[tuple[Session, int]] = []
        for session in self._sessions:
            self._more(session, {})

    def _more(self, session: Session, acquired: dict[int, list[Range]]) -> None:
        self._line.append((session, count_of(acquired)))
        self.send(session.fetch(RECORDS_PER_FETCH, 0, acquired))

    def on_readable(self) -> None:
        self.replies.receive()
        taken = 0
        while (reply := self.replies.next()) is not None:
            session, accepted = self._line[taken]
            taken += 1
            acquired = read_fetch(reply)
            self.accepted += accepted
            self._more(session, acquired)
        del self._line[:taken]


LATENCY_RATE = 1_000
LATENCY_MEMBERS = 4
LATENCY_FETCHES = 6
"""Before, so that each holds enough records."""


def latencies(subject: Subject, seconds: float) -> Figures:
    """Single acknowledgements at a fixed rate, each from the moment it was due."""
    os.sync()
    with filled(subject, PARTITIONS, 2_000 * PARTITIONS) as name:
        group = new_group()
        topic_id = join(subject, [group], name, PARTITIONS, {})
        waiting = [_Waiting(subject, group, number, topic_id) for number in range(LATENCY_MEMBERS)]
        taken = sorted(_at_a_rate(waiting, seconds))
        for each in waiting:
            each.socket.close()
    return {"p50": nearest_rank(taken, 50), "p99": nearest_rank(taken, 99), "p999": nearest_rank(taken, 99.9)}


class _Waiting(Member):
    """Holds records, and settles one when told to."""

    def __init__(self, subject: Subject, group: str, number: int, topic_id: bytes) -> None:
        mine = list(range(number, PARTITIONS, LATENCY_MEMBERS))
        super().__init__(subject, group, f"m{number}", topic_id, mine)
        self._held: list[tuple[int, int]] = []
        for _ in range(LATENCY_FETCHES):
            for index, ranges in read_fetch(self.exchange(self.session.fetch(RECORDS_PER_FETCH, WAIT_MS, {}))).items():
                self._held += [(index, offset) for first, last in ranges for offset in range(first, last + 1)]
        self.due: list[float] = []

    @property
    def held(self) -> int:
        return len(self._held)

    def exchange(self, request: bytes) -> memoryview:
        self.send(request)
        while (reply := self.replies.next()) is None:
            self.replies.receive()
        return reply

    def settle_one(self, due: float) -> None:
        index, offset = self._held.pop()
        self.due.append(due)
        self.send(self.session.acknowledge({index: [(offset, offset)]}))

    def answered(self) -> list[float]:
        """Milliseconds that each took of those that are answered now."""
        self.replies.receive()
        now, taken = time.perf_counter(), []
        while (reply := self.replies.next()) is not None:
            share_frames.check_acknowledged(reply)
            taken.append((now - self.due.pop(0)) * 1e3)
        return taken


def _at_a_rate(members: list[_Waiting], seconds: float) -> list[float]:
    taken: list[float] = []
    count, sent = int(LATENCY_RATE * seconds), 0
    if sum(member.held for member in members) < count:
        raise BenchError("the members hold too few records")
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.socket, selectors.EVENT_READ, member)
        began = time.perf_counter()
        deadline = began + seconds + 20
        while len(taken) < count:
            now = time.perf_counter()
            if now > deadline:
                raise BenchError(f"{len(taken)} of {count} acknowledgements are answered")
            while sent < count and began + sent / LATENCY_RATE <= now:
                members[sent % len(members)].settle_one(began + sent / LATENCY_RATE)
                sent += 1
            until = began + sent / LATENCY_RATE - time.perf_counter() if sent < count else 0.1
            for key, _ in selector.select(max(0.0, until)):
                taken += key.data.answered()
    return taken


def first_delivery(subject: Subject, times: int) -> Figures:
    """From the first heartbeat of a new group's only member, which comes back when it is told to, to its first record.
    The coordinator has seen other groups before."""
    with filled(subject, 1, 10 * BATCH_RECORDS) as name:
        join(subject, [new_group()], name, 1, {})
        taken = sorted(_joined_ms(subject, name) for _ in range(times))
    return {"join": taken[len(taken) // 2], "join_max": taken[-1]}


def _joined_ms(subject: Subject, name: str) -> float:
    group, epoch = new_group(), 0
    with Peer(subject.bootstrap) as peer:
        check_altered(peer.exchange(alter_groups([group], {"share.auto.offset.reset": "earliest"})))
        began = time.perf_counter()
        while True:
            beaten = Beaten(peer.exchange(heartbeat(group, "first", epoch, None if epoch else [name])))
            epoch = beaten.epoch
            if beaten.assigned:
                break
            time.sleep(beaten.interval_ms / 1e3)
        (topic_id,) = beaten.assigned
        session = Session(group, "first", topic_id, [0])
        while not read_fetch(peer.exchange(session.fetch(RECORDS_PER_FETCH, WAIT_MS, {}))):
            pass
        return (time.perf_counter() - began) * 1e3
