"""Share groups in simulated clusters: members of all kinds come far, and each law speaks when it should."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from skidway.errors import ErrorCode
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.records import ShareRecord
from skidway.shares.coordinator.state import Snapshot, Update
from skidway.shares.states import Verb
from skidway.sim.clients.share_holds import Hold, Spoken
from skidway.sim.laws.history import History
from skidway.sim.laws.share_states import Replay
from skidway.sim.laws.shares import ShareLaws
from skidway.sim.plan import TRIMMED
from skidway.sim.run import run_plan
from skidway.sim.share_plan import FAULTS, draw_share_plan
from skidway.sim.world.events import Violation, World

SEEDS = 7
"""These always do the same here; `skidway sim run --shares --fresh` draws others."""
TOPIC, PLACE = bytes(16), ("t0", 0)
KEY = ShareKey("g", TOPIC, 0)
LIMIT = 3
LOCK_US = 1_000_000
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
REIGN = (1, 5)
SESSION = object()


def broken_by(seeds: range) -> list[str]:
    verdicts = [run_plan(draw_share_plan(seed)) for seed in seeds]
    assert all(verdict.reads for verdict in verdicts), "nobody got anything"
    return [f"seed {verdict.seed}: {verdict.checker}: {verdict.text}" for verdict in verdicts if not verdict.ok]


def test_no_seed_with_share_groups_breaks_a_law() -> None:
    assert broken_by(range(2, SEEDS)) == []


def test_the_first_seeds_with_share_groups_break_no_law() -> None:
    assert broken_by(range(2)) == []


def test_plans_have_all_kinds_of_faults_and_members() -> None:
    plans = [draw_share_plan(seed) for seed in range(60)]
    assert {fault.kind for plan in plans for fault in plan.faults} == set(FAULTS)
    assert any(topic.name == TRIMMED for plan in plans for topic in plan.topics)
    assert {plan.nodes for plan in plans} == {1, 3}
    groups = [group for plan in plans for group in plan.share_groups]
    assert {group.members for group in groups} == {1, 2, 3, 4}
    assert {group.strict for group in groups} == {True, False}
    chances = ("release", "reject", "renew", "dawdle", "crash", "leave", "wrong", "poison")
    for name in chances:
        assert {bool(getattr(group, f"{name}_chance")) for group in groups} == {True, False}, name


class Laws(ShareLaws):
    """With one leader that goes on, whose log begins at 0."""

    def __init__(self) -> None:
        world = World(1)
        history = History(world)
        history.places[b"v"] = (*PLACE, True)
        super().__init__(world, cast(Any, SimpleNamespace(running=[], hosts={})), history, LIMIT)
        self.replay = Replay()
        self.store(Snapshot(0, 0, REIGN[1], 0, 0, 0, 0))

    def reign(self, node_id: int, topic_id: bytes, index: int) -> tuple[int, int]:
        return REIGN

    def _session(self, hold: Hold) -> object:
        return SESSION

    def store(self, value: Snapshot | Update | None) -> None:
        self.states._take(self.replay, ShareRecord(KEY, value))

    def update(
        self, *batches: tuple[int, int, int, int], start: int = 0, done: int = -1, epoch: int = REIGN[1]
    ) -> None:
        self.store(Update(0, epoch, start, done, [StateBatch(*batch) for batch in batches]))

    def deliver(self, first: int, end: int, count: int = 1, member: str = "a") -> Hold:
        now_us = self.world.now_us
        hold = Hold(member, "g", PLACE, TOPIC, first, end, count, 1, now_us, now_us, LOCK_US)
        self.delivered(hold, dict.fromkeys(range(first, end), b"v"), REIGN)
        return hold

    def say(self, hold: Hold, *verbs: Verb, member: str = "a") -> Spoken:
        words = [(hold.first, hold.end, list(verbs))]
        spoken = Spoken(member, "g", PLACE, TOPIC, 1, words, [hold], sent_us=self.world.now_us)
        self.speaking(spoken)
        return spoken


@pytest.fixture
def laws() -> Laws:
    return Laws()


def broken(act: Any, *arguments: Any, **more: Any) -> str:
    with pytest.raises(Violation) as violation:
        act(*arguments, **more)
    return violation.value.checker


def test_what_was_accepted_comes_again(laws: Laws) -> None:
    spoken = laws.say(laws.deliver(0, 2), Verb.ACCEPT)
    laws.update((0, 1, ACKNOWLEDGED, 1))
    laws.answered(spoken, ErrorCode.NONE)
    assert broken(laws.deliver, 1, 2, 2, "b") == "settled-again"


def test_an_answer_without_what_was_said_in_the_store(laws: Laws) -> None:
    spoken = laws.say(laws.deliver(0, 2), Verb.ACCEPT)
    laws.update((0, 0, ACKNOWLEDGED, 1))
    assert broken(laws.answered, spoken, ErrorCode.NONE) == "answered-acks"


def test_two_have_one_record(laws: Laws) -> None:
    laws.deliver(0, 2)
    assert broken(laws.deliver, 1, 3, 2, "b") == "two-holders"


def test_a_record_may_come_again_when_its_lock_is_over(laws: Laws) -> None:
    laws.deliver(0, 2)
    laws.world.now_us = LOCK_US
    laws.deliver(0, 2, 2, "b")


def test_a_count_comes_twice_or_falls_or_is_too_high(laws: Laws) -> None:
    hold = laws.deliver(0, 1)
    laws.world.now_us = LOCK_US
    assert broken(laws.deliver, 0, 1, 1, "b") == "delivery-counts"
    assert broken(laws.deliver, 1, 2, LIMIT + 1) == "delivery-counts"
    laws.update((2, 2, AVAILABLE, 2))
    assert broken(laws.deliver, 2, 3, 1) == "delivery-counts"
    assert hold.count == 1


def test_a_word_counts_after_its_lock(laws: Laws) -> None:
    hold = laws.deliver(0, 1)
    laws.world.now_us = 2 * LOCK_US
    spoken = laws.say(hold, Verb.ACCEPT)
    laws.update((0, 0, ACKNOWLEDGED, 1))
    assert broken(laws.answered, spoken, ErrorCode.NONE) == "lock-times"


def test_a_word_is_refused_though_the_record_is_held(laws: Laws) -> None:
    spoken = laws.say(laws.deliver(0, 1), Verb.ACCEPT)
    assert broken(laws.answered, spoken, ErrorCode.INVALID_RECORD_STATE) == "lock-times"


def test_only_what_another_leader_delivered_may_be_past_the_end(laws: Laws) -> None:
    spoken = laws.say(laws.deliver(0, 1), Verb.ACCEPT)
    assert not laws.may_be_past(spoken)
    spoken.holds[0].reign = (REIGN[0], REIGN[1] - 1)
    assert laws.may_be_past(spoken)


def test_a_renewed_lock_lasts(laws: Laws) -> None:
    hold = laws.deliver(0, 1)
    laws.world.now_us = LOCK_US // 2
    laws.answered(laws.say(hold, Verb.RENEW), ErrorCode.NONE)
    laws.world.now_us = LOCK_US
    assert broken(laws.deliver, 0, 1, 2, "b") == "two-holders"


def test_a_part_of_what_was_refused_is_stored(laws: Laws) -> None:
    hold = laws.deliver(0, 2)
    spoken = laws.say(hold, Verb.ACCEPT)
    spoken.foreign = [5]
    laws.update((0, 0, ACKNOWLEDGED, 1))
    assert broken(laws.answered, spoken, ErrorCode.INVALID_RECORD_STATE) == "torn-acks"


def test_an_offset_that_is_named_twice_passes(laws: Laws) -> None:
    spoken = laws.say(laws.deliver(0, 1), Verb.ACCEPT)
    spoken.twice = True
    assert broken(laws.answered, spoken, ErrorCode.NONE) == "torn-acks"


def test_a_stranger_settles(laws: Laws) -> None:
    spoken = laws.say(laws.deliver(0, 1), Verb.ACCEPT, member="b")
    spoken.foreign = [0]
    assert broken(laws.answered, spoken, ErrorCode.NONE) == "two-holders"


def test_the_start_passes_what_nobody_settled(laws: Laws) -> None:
    laws.say(laws.deliver(0, 1), Verb.ACCEPT)
    laws.update(start=1)
    assert broken(laws.update, start=2) == "share-start"


def test_the_start_goes_back(laws: Laws) -> None:
    laws.say(laws.deliver(0, 3), Verb.REJECT)
    laws.update(start=3)
    assert broken(laws.update, start=2) == "share-start"


def test_an_end_that_nobody_asked_for(laws: Laws) -> None:
    laws.say(laws.deliver(0, 1), Verb.RELEASE)
    assert broken(laws.update, (0, 0, ARCHIVED, 1)) == "unexplained-end"
    laws.of(KEY).counts[0] = LIMIT
    laws.update((0, 0, ARCHIVED, LIMIT))


def test_an_older_leader_writes(laws: Laws) -> None:
    assert broken(laws.update, epoch=REIGN[1] - 1) == "old-epochs"


def test_an_older_leader_is_answered(laws: Laws) -> None:
    hold = laws.deliver(0, 1)
    laws.update(epoch=REIGN[1] + 1)
    spoken = laws.say(hold, Verb.ACCEPT)
    laws.update((0, 0, ACKNOWLEDGED, 1), epoch=REIGN[1] + 1)
    assert broken(laws.answered, spoken, ErrorCode.NONE) == "old-epochs"


def test_a_snapshot_forgets(laws: Laws) -> None:
    laws.say(laws.deliver(0, 2), Verb.ACCEPT)
    laws.update((1, 1, ACKNOWLEDGED, 1), done=1)
    assert broken(laws.store, Snapshot(1, 0, REIGN[1], 0, 0, 0, 0)) == "share-state"


def test_more_is_called_done_than_is(laws: Laws) -> None:
    laws.say(laws.deliver(0, 3), Verb.ACCEPT)
    assert broken(laws.update, (1, 2, ACKNOWLEDGED, 1), done=3) == "share-lag"
