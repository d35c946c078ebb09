"""A third kind of fetch, as small as one can be: everything but what it looks at and says is `Poll`'s."""

from collections.abc import Sequence
from typing import Any

import pytest
from broker_world import World, batch

from skidway.broker.partitions.partition import Partition
from skidway.broker.reads.poll import TARGETS_AT_ONCE, Poll, Reads
from skidway.broker.reads.sessions import TARGETS_PER_STEP, Session, Sessions, TargetKey
from skidway.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch, ProtocolError
from skidway.steps import Steps, at_once

GROUP = 7


class Seen:
    """A partition, and what its reader has seen of it."""

    def __init__(self, key: TargetKey) -> None:
        self.key = key
        self.end_offset = 0

    def update(self, asked: Any) -> None:
        pass


class EndsSession(Session[Seen]):
    def new_target(self, key: TargetKey, asked: Any) -> Seen:
        return Seen(key)


class Named:
    def __init__(self, partition: int) -> None:
        self.partition = partition


class Asked:
    """A request."""

    by_id = False

    def __init__(self, session_id: int, epoch: int, *indexes: int, forget: Sequence[int] = ()) -> None:
        self.session_id = session_id
        self.session_epoch = epoch
        self.named = len(indexes)
        self.topics = [("t", [Named(index) for index in indexes])]
        self.forgotten = [("t", forget)]


class Call:
    """As much of a call as a poll needs."""

    version = 1

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.is_long = False
        self.on_gone: Any = None
        self.replies: list[Any] = []

    def reply(self, response: Any) -> None:
        self.replies.append(response)

    def fail(self, bug: Exception) -> None:
        raise bug


class EndsPoll(Poll[Seen, str, list[str]]):
    """Tells where partitions end, when that is news."""

    def __init__(self, reads: Reads, call: Any, session: Session[Seen], wait_ms: int) -> None:
        super().__init__(reads, call, 1, wait_ms)
        self.session = session

    def targets(self) -> list[Seen]:
        return list(self.session.row.values())

    def partition_of(self, target: Seen) -> Partition:
        return self.reads.partitions.find(*target.key)  # type: ignore[arg-type]

    def look_at(self, target: Seen) -> str | None:
        end_offset = self.partition_of(target).log.end_offset
        if end_offset == target.end_offset:
            return None
        self.bytes_found += 1
        target.end_offset = end_offset
        return f"{target.key[1]} ends at {end_offset}"

    def refusal(self, target: Seen, error: ProtocolError) -> str:
        return f"{target.key[1]} is refused: {error.code.name}"

    def awaited(self) -> Sequence[Partition]:
        return [self.partition_of(target) for target in self.targets()]

    def reply(self) -> Steps[list[str]]:
        yield None
        return [line for _, line in self.found]

    def error_reply(self, error: ProtocolError) -> list[str]:
        return [error.code.name]


class Ends:
    def __init__(self, partitions: int = 3) -> None:
        self.world = World()
        self.world.peer().create("t", partitions, flush="os")
        node = self.world.node
        self.sessions = Sessions(EndsSession, node.limits, node.world.random)

    def ask(self, asked: Asked, wait_ms: int = 0) -> tuple[int, Call, Any]:
        """The session's id, the call, and what was answered at once."""
        node = self.world.node
        call = Call(self.world.clock.now_ms)
        session = self.sessions.session_of(asked, GROUP, call.now_ms)
        poll = EndsPoll(node.rooms.reads, call, session, wait_ms)
        return session.id, call, poll.answer(self.sessions.update(session, asked), asked.named + len(session.row))

    def write(self, index: int) -> None:
        self.world.peer().produce("t", batch(b"x"), index=index, acks=1)
        self.world.settle()


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_it_has_sessions(ends: Ends) -> None:
    ends.write(1)
    session_id, _, told = ends.ask(Asked(0, 0, 0, 1, 2))
    assert told == ["1 ends at 1"]
    ends.write(0)
    ends.write(2)
    assert ends.ask(Asked(session_id, 1, forget=[2]))[2] == ["0 ends at 1"]
    with pytest.raises(InvalidFetchSessionEpoch):
        ends.ask(Asked(session_id, 1))
    ends.ask(Asked(session_id, -1))
    with pytest.raises(FetchSessionIdNotFound):
        ends.ask(Asked(session_id, 2))
    assert ends.sessions.partition_count == 0


def test_it_waits_until_something_happens(ends: Ends) -> None:
    _, call, told = ends.ask(Asked(0, 0, 0, 1), wait_ms=1_000)
    assert told is None
    ends.write(2)
    assert call.replies == []
    ends.write(1)
    assert call.replies == [["1 ends at 1"]]


def test_it_waits_no_longer_than_it_may(ends: Ends) -> None:
    _, call, _ = ends.ask(Asked(0, 0, 0), wait_ms=1_000)
    ends.world.pass_time(999)
    assert call.replies == []
    ends.world.pass_time(1)
    assert call.replies == [[]]


def test_who_hangs_up_is_not_answered(ends: Ends) -> None:
    _, call, _ = ends.ask(Asked(0, 0, 0), wait_ms=1_000)
    call.on_gone()
    ends.write(0)
    assert call.replies == []
    assert len(ends.world.node.waiting.polls) == 0


def test_a_refusal_does_not_wait(ends: Ends) -> None:
    assert ends.ask(Asked(0, 0, 0, 9), wait_ms=1_000)[2] == ["9 is refused: UNKNOWN_TOPIC_OR_PARTITION"]


def test_many_partitions_are_done_in_steps() -> None:
    count = TARGETS_AT_ONCE + 1
    ends = Ends(count)
    ends.write(count - 1)
    steps = ends.ask(Asked(0, 0, *range(count)))[2]
    taken = 0
    while next(steps, "done") is None:
        taken += 1
    assert taken > 2 * (count // TARGETS_PER_STEP)
    assert at_once(ends.ask(Asked(0, 0, *range(count)))[2]) == [f"{count - 1} ends at 1"]
