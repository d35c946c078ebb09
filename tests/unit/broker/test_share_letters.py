"""Dead letters of share groups through lost writes, lost answers and fail-overs: one for each dead record (L11).

Mistakes are planted and found, so the law can be broken.
"""

from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from letter_world import LetterWorld

from skidway.broker.shares import letter_writer, share_partition
from skidway.broker.shares.letter_office import LetterOffice, Refused, Target
from skidway.broker.shares.letter_writer import LetterWriter
from skidway.broker.shares.news import LettersBlocked, LettersGoOn, LettersLost
from skidway.errors import ErrorCode
from skidway.metadata.group_configs import ShareLetters
from skidway.records.record import Record
from skidway.shares import delivery
from skidway.shares.durable import Durable
from skidway.shares.letter_notes import Plan
from skidway.shares.letters import Letters
from skidway.shares.states import Verb

HISTORIES_MAX = 300
STEPS = 80


@given(st.integers(0, 2**32))
@settings(max_examples=100)
def test_each_dead_record_has_one_letter(seed: int) -> None:
    LetterWorld(seed).run(STEPS)


class ForgetsThePlan(Letters):
    """A new leader begins with a producer of its own (KIP-1191 says so: letters come twice)."""

    def __init__(self, durable: Durable) -> None:
        super().__init__(durable)
        self._loaded = durable.letters.plan

    @property
    def last_plan(self) -> Plan | None:
        return None if super().last_plan == self._loaded else super().last_plan

    __slots__ = ("_loaded",)


class NotResumed(Letters):
    """What is archiving in the store is left so (KAFKA-20672)."""

    def __init__(self, durable: Durable) -> None:
        super().__init__(durable)
        durable.has_dead = False

    __slots__ = ()


class ArchivedFirst(LetterWriter):
    """The record is archived when its letter is sent, not when it is there."""

    __slots__ = ()

    def _write(self, plan: Plan, found: dict[int, Record]) -> None:
        super()._write(plan, found)
        self._archive(plan.first, plan.end)


class SilenceIsConsent(LetterWriter):
    """Nobody answers, and the letter counts as written."""

    __slots__ = ()

    def _on_sent(self, plan: Plan, code: ErrorCode, text: str) -> None:
        super()._on_sent(plan, ErrorCode.NONE if code is ErrorCode.REQUEST_TIMED_OUT else code, text)


class LettersForGaps(LetterWriter):
    __slots__ = ()

    def _plan(self, rules: ShareLetters, target: Target, due: tuple[int, int], found: dict[int, Record]) -> None:
        everything = {at: found.get(at, Record(at, 1, None, None)) for at in range(*due)}
        super()._plan(rules, target, due, everything)


class SentBeforeItIsStored(LetterWriter):
    """The plan is produced at once, and stored later."""

    __slots__ = ()

    def _propose(self, plan: Plan) -> None:
        self._read(plan.first, plan.end, partial(self._write, plan))
        super()._propose(plan)


class RefusalIsTakenForCertain(LetterWriter):
    """Also a plan that a leader before may have written is replaced."""

    __slots__ = ()

    def _on_sent(self, plan: Plan, code: ErrorCode, text: str) -> None:
        super()._on_sent(plan, code, text)
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            self._certain, self._new_id = plan, True


MISTAKES = [
    ForgetsThePlan,
    NotResumed,
    ArchivedFirst,
    SilenceIsConsent,
    LettersForGaps,
    SentBeforeItIsStored,
    RefusalIsTakenForCertain,
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if issubclass(mistake, Letters):
        monkeypatch.setattr(delivery, "Letters", mistake)
    else:
        monkeypatch.setattr(share_partition, "LetterWriter", mistake)
    for seed in range(HISTORIES_MAX):
        try:
            LetterWorld(seed).run(STEPS)
        except AssertionError as found:
            assert str(found).startswith("L11"), found  # noqa: PT017
            return
    pytest.fail(f"{mistake.__name__} was not found in {HISTORIES_MAX} histories")


def dead_record(world: LetterWorld) -> None:
    world.log.append(1, None)
    world.acquire()
    ((first, end),) = world.held
    world.say(first, end, Verb.REJECT)
    world.store_one("fine")


def pause(world: LetterWorld, ms: int) -> None:
    world.now_ms += ms
    world.turn()


def test_an_operator_is_told_once_and_when_it_goes_on() -> None:
    world = LetterWorld(0)
    world.office.refusal = "no such topic"
    dead_record(world)
    for _ in range(5):
        pause(world, letter_writer.PAUSE_MS_MAX)
    assert world.events == [LettersBlocked("g", str(world.share.partition), 0, "dlq.t", "no such topic")]
    assert world.share.delivery is not None
    assert world.share.delivery.held_offsets == 0, "a record that waits for its letter takes no lock"
    assert not world.share.is_idle
    world.drain()
    assert [type(event) for event in world.events] == [LettersBlocked, LettersGoOn]
    assert world.office.letters == [0]


def test_what_cannot_be_written_is_given_up_where_the_group_says_so() -> None:
    world = LetterWorld(0, blocks=False)
    world.office.refusal = "no such topic"
    dead_record(world)
    pause(world, 0)
    assert [type(event) for event in world.events] == [LettersLost]
    assert (world.office.written, world.office.given_up) == (0, 1)


def test_a_passing_trouble_is_no_reason_to_give_up() -> None:
    world = LetterWorld(0, blocks=False)
    dead_record(world)
    pause(world, 0)
    world.store_one("fine")
    pause(world, 0)
    for _ in range(letter_writer.TRIES_MAX - 1):
        world.post_one("lost")
        pause(world, letter_writer.PAUSE_MS_MAX)
    world.drain()
    assert world.office.letters == [0]
    assert [type(event) for event in world.events] == [LettersBlocked, LettersGoOn]


@pytest.mark.parametrize("of_queue", [False, True])
def test_letters_do_not_go_to_the_topic_of_their_records(of_queue: bool) -> None:
    """An admin can set it so. It is refused for what it is, whatever the name begins with."""
    unused: Any = None
    office = LetterOffice(unused, unused, unused, unused, unused)
    with pytest.raises(Refused, match="jobs is the topic where the records come from"):
        office.target("jobs", "jobs", 0, of_queue=of_queue)
