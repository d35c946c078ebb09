"""Parking over random histories, held against the plainest model: a list that is searched from end to end."""

import random
from collections.abc import Mapping

import pytest

from skidway.errors import NotLeaderOrFollower, ProtocolError, RequestTimedOut
from skidway.runtime.parking import BytesParking, OffsetParking, ParkedBytes, ParkedOffsets
from skidway.runtime.timers import Timers

PARTITIONS = ["p", "q", "r"]


@pytest.mark.parametrize("seed", range(30))
def test_offsets_are_answered_once_and_for_the_right_reason(seed: int) -> None:
    rng, timers = random.Random(seed), Timers()
    parking = OffsetParking[str](timers)
    end, committed, now = dict.fromkeys(PARTITIONS, 0), dict.fromkeys(PARTITIONS, 0), 0
    answers: dict[int, Mapping[str, ProtocolError]] = {}
    waiting: dict[int, tuple[dict[str, int], int, ParkedOffsets[str]]] = {}
    failed: dict[int, set[str]] = {}

    for step in range(400):
        match rng.randrange(6):
            case 0 | 1 | 2:
                offsets = {}
                for key in rng.sample(PARTITIONS, rng.randrange(1, 4)):
                    end[key] += rng.randrange(1, 4)
                    offsets[key] = end[key]

                def answer(failures: Mapping[str, ProtocolError], step: int = step) -> None:
                    assert step not in answers, "answered twice"
                    answers[step] = failures

                deadline = now + rng.randrange(1, 60)
                waiting[step] = (offsets, deadline, parking.park(offsets, deadline, answer))
                failed[step] = set()
            case 3:
                key = rng.choice(PARTITIONS)
                committed[key] = rng.randrange(committed[key], end[key] + 1)
                parking.wake(key, committed[key])
            case 4:
                now += rng.randrange(20)
                timers.fire(now)
            case _:
                key = rng.choice(PARTITIONS)
                if rng.random() < 0.2:
                    for number, (offsets, _, _) in waiting.items():
                        if offsets.get(key, 0) > committed[key]:
                            failed[number].add(key)
                    parking.fail(key, NotLeaderOrFollower())
                elif waiting and rng.random() < 0.3:
                    gone = rng.choice(list(waiting))
                    parking.cancel(waiting.pop(gone)[2])
                    assert gone not in answers

        for number, (offsets, deadline, parked) in list(waiting.items()):
            left = {key for key, offset in offsets.items() if offset > committed[key]} - failed[number]
            assert (number in answers) == (not left or deadline <= now), (number, left, deadline, now)
            if number in answers:
                told = {key: type(error) for key, error in answers[number].items()}
                expected: dict[str, type[ProtocolError]] = dict.fromkeys(failed[number], NotLeaderOrFollower)
                assert told == expected | dict.fromkeys(left, RequestTimedOut)
                assert not parked.waiting
                del waiting[number]
        still_open = [
            key
            for number, (offsets, _, _) in waiting.items()
            for key, offset in offsets.items()
            if offset > committed[key] and key not in failed[number]
        ]
        assert len(parking) == len(still_open)
        assert len(timers) == len(waiting)


@pytest.mark.parametrize("seed", range(30))
def test_fetches_resume_once_when_fed_disturbed_or_late(seed: int) -> None:
    rng, timers = random.Random(seed), Timers()
    parking = BytesParking[str](timers)
    resumed: set[int] = set()
    waiting: dict[int, tuple[list[str], int, int, ParkedBytes[str]]] = {}
    now = 0

    def resume(number: int) -> None:
        assert number not in resumed, "resumed twice"
        resumed.add(number)

    for step in range(400):
        expected: set[int] = set()
        match rng.randrange(5):
            case 0 | 1:
                keys, missing = rng.sample(PARTITIONS, rng.randrange(1, 4)), rng.randrange(1, 100)
                deadline = now + rng.randrange(1, 60)
                parked = parking.park(keys, missing, deadline, lambda step=step: resume(step))  # type: ignore[misc]
                waiting[step] = (keys, missing, deadline, parked)
            case 2:
                key, added = rng.choice(PARTITIONS), rng.randrange(50)
                for number, (keys, missing, deadline, parked) in waiting.items():
                    if key in keys:
                        waiting[number] = (keys, missing - added, deadline, parked)
                expected = {number for number, (_, missing, _, _) in waiting.items() if missing <= 0}
                parking.wake(key, added)
            case 3:
                now += rng.randrange(10)
                expected = {number for number, (_, _, deadline, _) in waiting.items() if deadline <= now}
                timers.fire(now)
            case _ if rng.random() < 0.3:
                key = rng.choice(PARTITIONS)
                expected = {number for number, (keys, _, _, _) in waiting.items() if key in keys}
                parking.disturb(key)
            case _ if waiting:
                gone = rng.choice(list(waiting))
                parking.cancel(waiting.pop(gone)[3])
        assert resumed == expected
        for number in expected:
            del waiting[number]
        resumed.clear()
        assert len(parking) == sum(len(keys) for keys, _, _, _ in waiting.values())
        assert len(timers) == len(waiting)
