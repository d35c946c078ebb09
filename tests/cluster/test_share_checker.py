"""The checker of share groups finds what it is there to find."""

from pathlib import Path

from share_history import (
    ACCEPT,
    REJECT,
    RELEASE,
    UNKNOWN_EPOCH,
    Event,
    Got,
    Heard,
    History,
    Journal,
    Said,
    read_journals,
)

LOCK_S = 10.0
LIMIT = 5


def got(worker: str, at: float, *, count: int = 1, epoch: int = 3, offset: int = 0) -> Got:
    return Got(worker, 0, offset, offset, count, epoch, at, at + 0.5)


def said(worker: str, at: float, verdict: int = ACCEPT) -> Said:
    return Said(worker, 0, 0, 0, verdict, at)


def heard(worker: str, at: float, verdict: int = ACCEPT, error: int = 0) -> Heard:
    return Heard(worker, 0, 0, 0, verdict, error, at)


def problems(*events: Event) -> list[str]:
    return list(History(events, LOCK_S).problems(LIMIT))


def test_one_after_the_other_is_well() -> None:
    events: list[Event] = [got("a", 0), said("a", 1, RELEASE), heard("a", 1.1, RELEASE), got("b", 2, count=2)]
    assert problems(*events, said("b", 3), heard("b", 3.1)) == []


def test_given_after_its_acceptance_was_answered() -> None:
    (found,) = problems(got("a", 0), said("a", 1), heard("a", 1.1), got("b", 2, count=2))
    assert "after its end was answered" in found


def test_given_after_its_rejection_was_answered() -> None:
    (found,) = problems(got("a", 0), said("a", 1, REJECT), heard("a", 1.1, REJECT), got("b", 2, count=2))
    assert "after its end was answered" in found


def test_a_refused_acceptance_is_none() -> None:
    assert problems(got("a", 0), said("a", 1), heard("a", 1.1, error=121), got("b", 2, count=2)) == []


def test_asked_before_the_answer_came_is_well() -> None:
    assert problems(got("a", 0), said("a", 1), heard("a", 3), got("b", 2)) == []


def test_two_holders_at_once() -> None:
    (found,) = problems(got("a", 0), got("b", 1, count=2), said("a", 3), said("b", 3.5))
    assert "at once, in leader epoch 3" in found


def test_two_holders_under_two_leaders_may_be() -> None:
    assert problems(got("a", 0), got("b", 1, epoch=4), said("a", 3)) == []
    assert problems(got("a", 0), got("b", 1, epoch=UNKNOWN_EPOCH), said("a", 3)) == []


def test_nobody_holds_longer_than_the_lock() -> None:
    assert problems(got("a", 0), got("b", 11, count=2), said("a", 20), heard("a", 20.1, error=121)) == []


def test_a_holder_that_says_nothing_may_have_died() -> None:
    assert problems(got("a", 0), got("b", 1, count=2), said("b", 2)) == []


def test_too_many_deliveries() -> None:
    (found,) = problems(got("a", 0, count=6))
    assert "6th time" in found


def test_records_that_nobody_ended() -> None:
    history = History([got("a", 0), said("a", 1), got("a", 0, offset=1), got("a", 0, offset=2, count=5)], LOCK_S)
    assert history.missing({0: 4}, LIMIT) == [(0, 1), (0, 3)], "0 may be accepted, 2 was tried as often as allowed"


def test_journals_are_read_back(tmp_path: Path) -> None:
    events: list[Event] = [got("a", 0), said("a", 1), heard("a", 2)]
    Journal(tmp_path / "a.journal").write(events)
    with (tmp_path / "a.journal").open("ab") as file:
        file.write(b'{"type":"Got","worker":"to')
    assert read_journals(tmp_path) == events
