"""Parking: every request that waits is answered exactly once, for the right reason."""

from collections.abc import Mapping

import pytest

from skidway.errors import NotLeaderOrFollower, ProtocolError, RequestTimedOut
from skidway.runtime.parking import BytesParking, OffsetParking
from skidway.runtime.timers import Timers

DEADLINE = 1_000


class Answers:
    """What the answers were, as `name: failed partitions`."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def offsets(self, name: str):  # type: ignore[no-untyped-def]
        def answer(failed: Mapping[str, ProtocolError]) -> None:
            what = ", ".join(f"{key} {type(error).__name__}" for key, error in failed.items())
            self.given.append(f"{name}: {what or 'committed'}")

        return answer

    def bytes(self, name: str):  # type: ignore[no-untyped-def]
        return lambda: self.given.append(name)


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def answers() -> Answers:
    return Answers()


def test_replies_leave_as_the_watermark_passes_them(timers: Timers, answers: Answers) -> None:
    parking = OffsetParking[str](timers)
    parking.park({"p": 5}, DEADLINE, answers.offsets("first"))
    parking.park({"p": 9}, DEADLINE, answers.offsets("second"))

    parking.wake("p", 4)
    assert answers.given == []
    parking.wake("p", 8)
    assert answers.given == ["first: committed"]
    parking.wake("p", 9)
    assert answers.given == ["first: committed", "second: committed"]
    assert len(parking) == 0
    assert len(timers) == 0
    assert parking._queues == {}


def test_a_request_over_two_partitions_waits_for_both(timers: Timers, answers: Answers) -> None:
    parking = OffsetParking[str](timers)
    parking.park({"p": 5, "q": 1}, DEADLINE, answers.offsets("both"))
    parking.wake("p", 5)
    assert answers.given == []
    parking.wake("p", 99)
    assert answers.given == []
    parking.wake("q", 1)
    assert answers.given == ["both: committed"]


def test_the_deadline_names_only_the_partitions_that_are_late(timers: Timers, answers: Answers) -> None:
    parking = OffsetParking[str](timers)
    parking.park({"p": 5, "q": 1}, DEADLINE, answers.offsets("both"))
    parking.wake("p", 5)
    timers.fire(DEADLINE)
    assert answers.given == ["both: q RequestTimedOut"]
    parking.wake("q", 1)
    assert len(answers.given) == 1


def test_a_failed_partition_fails_its_part_and_the_rest_goes_on(timers: Timers, answers: Answers) -> None:
    parking = OffsetParking[str](timers)
    parking.park({"p": 5, "q": 1}, DEADLINE, answers.offsets("both"))
    parking.park({"p": 6}, DEADLINE, answers.offsets("other"))
    parking.fail("p", NotLeaderOrFollower())
    assert answers.given == ["other: p NotLeaderOrFollower"]
    parking.wake("q", 1)
    assert answers.given[1:] == ["both: p NotLeaderOrFollower"]


def test_a_retried_batch_waits_behind_the_tail(timers: Timers, answers: Answers) -> None:
    parking = OffsetParking[str](timers)
    parking.park({"p": 9}, DEADLINE, answers.offsets("newer"))
    parking.park({"p": 5}, DEADLINE, answers.offsets("retry"))
    parking.wake("p", 9)
    assert answers.given == ["newer: committed", "retry: committed"]


def test_requests_that_time_out_on_a_stuck_partition_are_forgotten(timers: Timers, answers: Answers) -> None:
    parking = OffsetParking[str](timers)
    for _ in range(10):
        for _ in range(100):
            parking.park({"stuck": 5}, DEADLINE, answers.offsets("x"))
        timers.fire(DEADLINE)
    assert len(answers.given) == 1_000
    assert parking._queues == {}


def test_cancelling_lets_others_wait_on(timers: Timers, answers: Answers) -> None:
    parking = OffsetParking[str](timers)
    gone = parking.park({"p": 5}, DEADLINE, answers.offsets("gone"))
    parking.park({"p": 5}, DEADLINE, answers.offsets("stays"))
    parking.park({"p": 7}, DEADLINE, answers.offsets("stays too"))
    parking.cancel(gone)
    parking.cancel(gone)
    assert len(parking) == 2
    parking.wake("p", 7)
    assert answers.given == ["stays: committed", "stays too: committed"]
    assert len(timers) == 0


def test_an_answer_may_park_again_on_the_same_partition(timers: Timers, answers: Answers) -> None:
    parking = OffsetParking[str](timers)
    parking.park({"p": 5}, DEADLINE, lambda failed: void(parking.park({"p": 8}, DEADLINE, answers.offsets("next"))))
    parking.wake("p", 5)
    parking.wake("p", 8)
    assert answers.given == ["next: committed"]
    assert parking._queues == {}


def void(value: object) -> None:
    """A callback must return nothing."""


def test_timeouts_are_protocol_errors_with_the_right_code() -> None:
    assert RequestTimedOut.code == 7


def test_a_fetch_resumes_when_its_partitions_together_have_enough(timers: Timers, answers: Answers) -> None:
    parking = BytesParking[str](timers)
    parking.park(["p", "q"], 100, DEADLINE, answers.bytes("hungry"))
    parking.park(["q"], 1, DEADLINE, answers.bytes("modest"))
    parking.wake("p", 60)
    assert answers.given == []
    parking.wake("q", 39)
    assert answers.given == ["modest"]
    parking.wake("elsewhere", 1_000)
    parking.wake("q", 1)
    assert answers.given == ["modest", "hungry"]
    assert parking._waiting == {}
    assert len(timers) == 0


def test_a_fetch_resumes_at_its_deadline_with_whatever_is_there(timers: Timers, answers: Answers) -> None:
    parking = BytesParking[str](timers)
    parking.park(["p"], 100, DEADLINE, answers.bytes("fetch"))
    timers.fire(DEADLINE - 1)
    assert answers.given == []
    timers.fire(DEADLINE)
    assert answers.given == ["fetch"]
    parking.wake("p", 1_000)
    assert answers.given == ["fetch"]


def test_a_disturbed_partition_resumes_its_fetches_at_once(timers: Timers, answers: Answers) -> None:
    parking = BytesParking[str](timers)
    parking.park(["p", "q"], 100, DEADLINE, answers.bytes("a"))
    parking.park(["q"], 100, DEADLINE, answers.bytes("b"))
    parking.disturb("p")
    parking.disturb("unknown")
    assert answers.given == ["a"]
    assert len(parking) == 1


def test_a_fetch_that_names_a_partition_twice_is_resumed_once(timers: Timers, answers: Answers) -> None:
    parking = BytesParking[str](timers)
    parking.park(["p", "p"], 10, DEADLINE, answers.bytes("twice"))
    parking.wake("p", 10)
    assert answers.given == ["twice"]
    assert parking._waiting == {}


def test_a_closed_connection_cancels_its_fetch(timers: Timers, answers: Answers) -> None:
    parking = BytesParking[str](timers)
    parked = parking.park(["p"], 1, DEADLINE, answers.bytes("gone"))
    parking.cancel(parked)
    parking.wake("p", 1)
    timers.fire(DEADLINE)
    assert answers.given == []
    assert not parked.waiting


def test_a_resumed_fetch_may_park_again_and_is_not_woken_by_the_same_bytes(timers: Timers, answers: Answers) -> None:
    parking = BytesParking[str](timers)

    def resume() -> None:
        answers.given.append("resumed")
        parking.park(["p"], 1, DEADLINE, resume)

    parking.park(["p"], 1, DEADLINE, resume)
    parking.wake("p", 50)
    assert answers.given == ["resumed"]
    parking.wake("p", 50)
    assert answers.given == ["resumed"] * 2
