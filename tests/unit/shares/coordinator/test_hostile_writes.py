"""What strangers may not have stored, and notes whose numbers are used up: refused as a whole, nothing has changed."""

from typing import Any

import pytest
from share_coordinator_world import World, topic_id

from skidway.errors import FencedStateEpoch, InvalidRequest, PolicyViolation, ProtocolError
from skidway.limits import INT64_MAX, SHARE_SPAN_MAX
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.checking import NUMBERS_AHEAD_MAX, TERMS_IN_WRITE_MAX
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.operations import DONE, Ask, Initialize, Question, Read, Write
from skidway.shares.coordinator.settings import ShareCoordinatorSettings
from skidway.shares.letter_notes import DEATHS_MAX, LETTERS_MAX, Death, LetterNotes, Plan
from skidway.shares.states import AVAILABLE, DELAYED, LEASED, LOCK_MS_MAX, Cause
from skidway.shares.terms import OWNER_LENGTH_MAX, Term, TermNotes

QUEUE = ShareKey("__queue/x", topic_id("x"), 0)
GROUP = ShareKey("g", topic_id("x"), 0)
START = 10
END = START + SHARE_SPAN_MAX
TOPIC = bytes(16)


def lease(first: int = 12, end: int = 13, **changes: Any) -> Term:
    return Term(**{"first": first, "end": end, "kind": LEASED, "count": 1, "lasts_ms": 30_000, "owner": "a", **changes})


def terms(*said: Term, number: int = 1) -> dict[str, Any]:
    return {"terms": TermNotes(number, said)}


def plan(**changes: Any) -> dict[str, Any]:
    fine = {"producer_id": 5, "sequence": 0, "first": 12, "end": 13, "topic_id": TOPIC, "partition": 0}
    return {"letters": LetterNotes(1, Plan(**{**fine, **changes}))}


def deaths(*ranges: tuple[int, int], failed_ms: int = 5) -> dict[str, Any]:
    return {"letters": LetterNotes(1, None, tuple(Death(*each, Cause.REJECTED, failed_ms, 5) for each in ranges))}


class Coordinator:
    def __init__(self, key: ShareKey) -> None:
        self.key = key
        self.world = World(ShareCoordinatorSettings())
        assert [self.ask(Initialize(key, 0, 0)), self.write(start_offset=START)] == [DONE, DONE]

    def ask(self, question: Question) -> Any:
        answers: list[Any] = []
        self.world.submit(Ask([question]), answers.extend)
        (answer,) = answers
        return answer

    def write(self, **said: Any) -> Any:
        if not self.world.machine.states[self.key].snapshot.leader_epoch >= 0:
            self.ask(Read(self.key, 3))
        return self.ask(Write(self.key, 0, 3, **said))

    @property
    def stored(self) -> Any:
        return self.world.machine.states[self.key]


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator(QUEUE)


@pytest.mark.parametrize(
    "said",
    [
        {"start_offset": -2},
        {"start_offset": INT64_MAX},
        {"complete_count": -2},
        {"complete_count": SHARE_SPAN_MAX + 1},
        {"batches": [StateBatch(12, 14, 2, 1), StateBatch(14, 15, 2, 1)]},
        {"batches": [StateBatch(14, 15, 2, 1), StateBatch(12, 13, 2, 1)]},
        {"batches": [StateBatch(13, 12, 2, 1)]},
        {"batches": [StateBatch(-1, 12, 2, 1)]},
        {"batches": [StateBatch(12, 12, 1, 1)]},
        {"batches": [StateBatch(12, 12, 2, -1)]},
        {"batches": [StateBatch(12, END, 2, 1)]},
        {"batches": [StateBatch(12, INT64_MAX, 2, 1)]},
        terms(lease(12, 15), lease(14, 16)),
        terms(lease(14, 16), lease(12, 13)),
        terms(lease(-1, 12)),
        terms(lease(13, 13)),
        terms(lease(12, END + 1)),
        terms(lease(kind=5)),
        terms(lease(count=-1)),
        terms(lease(lasts_ms=-1)),
        terms(lease(lasts_ms=LOCK_MS_MAX + 1)),
        terms(lease(kind=DELAYED, lasts_ms=INT64_MAX)),
        terms(lease(until_ms=-1)),
        terms(lease(owner="x" * (OWNER_LENGTH_MAX + 1))),
        terms(lease(), number=0),
        terms(lease(), number=-1),
        terms(lease(), number=NUMBERS_AHEAD_MAX + 1),
        plan(producer_id=-2),
        plan(sequence=-1),
        plan(partition=-1),
        plan(end=12 + LETTERS_MAX + 1),
        plan(first=13),
        plan(first=END, end=END + 1),
        deaths((12, 14), (13, 15)),
        deaths((14, 14)),
        deaths((12, INT64_MAX)),
        deaths((12, 13), failed_ms=-2),
        deaths(*((at, at + 1) for at in range(12, 13 + DEATHS_MAX))),
        {"letters": LetterNotes(0, None, (Death(12, 13, Cause.REJECTED, 5, 5),))},
        {"letters": LetterNotes(INT64_MAX)},
    ],
)
def test_what_no_leader_would_write_is_refused(coordinator: Coordinator, said: dict[str, Any]) -> None:
    before = coordinator.stored
    assert isinstance(coordinator.write(**said), InvalidRequest)
    assert coordinator.stored == before
    fine = {**terms(lease()), **plan(), "batches": [StateBatch(12, END - 1, 2, 1)], "complete_count": SHARE_SPAN_MAX}
    assert coordinator.write(**fine) == DONE


def test_too_many_terms_are_too_much_even_if_they_say_nothing(coordinator: Coordinator) -> None:
    many = [Term(12 + at, 13 + at, AVAILABLE) for at in range(TERMS_IN_WRITE_MAX + 1)]
    assert isinstance(coordinator.write(**terms(*many)), PolicyViolation)


def test_the_state_epochs_of_a_queue_follow_one_another_and_those_of_a_group_are_its_own() -> None:
    queue, group = Coordinator(QUEUE), Coordinator(GROUP)
    assert isinstance(queue.ask(Initialize(QUEUE, 2, 0)), InvalidRequest)
    assert queue.ask(Initialize(QUEUE, 1, 0)) == DONE
    assert group.ask(Initialize(GROUP, 40, 0)) == DONE
    for coordinator in (queue, group):
        assert isinstance(coordinator.ask(Initialize(coordinator.key, 41, INT64_MAX)), InvalidRequest)
    fresh = World(ShareCoordinatorSettings())
    answers: list[Any] = []
    fresh.submit(Ask([Initialize(QUEUE, 1, 0)]), answers.extend)
    assert isinstance(answers[0], InvalidRequest)


NOTES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (terms(lease()), terms(lease(owner="b"))),
    (terms(lease()), terms(lease(15, 16))),
    (plan(), plan(sequence=7)),
    (deaths((12, 13)), plan()),
]


@pytest.mark.parametrize(("one", "other"), NOTES)
def test_two_lives_at_one_leader_do_not_use_one_number(
    coordinator: Coordinator, one: dict[str, Any], other: dict[str, Any]
) -> None:
    """The first life's write came late: the second one had read before, and counts from the same number on."""
    assert coordinator.write(**one) == DONE
    stored = coordinator.stored.snapshot
    refusal = coordinator.write(batches=[StateBatch(20, 20, 2, 1)], **other)
    assert isinstance(refusal, FencedStateEpoch), "it has to read again"
    assert coordinator.stored.snapshot == stored, "nothing of it is kept"
    assert coordinator.write(**one) == DONE, "a write whose answer was lost is sent again"
    assert coordinator.write(start_offset=20, **one) == DONE
    assert coordinator.write(**one) == DONE


def test_a_write_with_an_older_number_is_late(coordinator: Coordinator) -> None:
    assert coordinator.write(**terms(lease(), number=1)) == DONE
    assert coordinator.write(**terms(lease(20, 30), number=4)) == DONE
    for number in (1, 3):
        answer = coordinator.write(**terms(lease(), number=number))
        assert isinstance(answer, ProtocolError)
        assert isinstance(answer, FencedStateEpoch)
