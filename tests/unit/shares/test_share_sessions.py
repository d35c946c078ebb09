"""Share sessions: epochs, what is added and forgotten, how many there may be, what ends them."""

import pytest

from skidway.errors import InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound
from skidway.limits import INT32_MAX
from skidway.shares.sessions import FINAL_EPOCH, ShareSessions

ANN, BOB = ("g", "ann"), ("g", "bob")
T = b"t" * 16
ONE, TWO = object(), object()


def test_each_request_names_the_next_epoch() -> None:
    sessions = ShareSessions()
    session = sessions.begin(ANN, ONE, 2)
    for epoch in range(1, 4):
        assert sessions.go_on(ANN, epoch, ONE) is session


@pytest.mark.parametrize("epoch", [0, 1, 3, -2])
def test_another_epoch_is_refused_and_changes_nothing(epoch: int) -> None:
    sessions = ShareSessions()
    session = sessions.begin(ANN, ONE, 2)
    sessions.go_on(ANN, 1, ONE)
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.go_on(ANN, epoch, TWO)
    assert session.connection is ONE
    assert sessions.go_on(ANN, 2, ONE) is session


def test_after_the_largest_epoch_comes_one() -> None:
    sessions = ShareSessions()
    session = sessions.begin(ANN, ONE, 2)
    session.epoch = INT32_MAX
    sessions.go_on(ANN, INT32_MAX, ONE)
    assert sessions.go_on(ANN, 1, ONE) is session


@pytest.mark.parametrize("epoch", [1, FINAL_EPOCH])
def test_who_has_no_session_cannot_go_on(epoch: int) -> None:
    sessions = ShareSessions()
    sessions.begin(ANN, ONE, 2)
    with pytest.raises(ShareSessionNotFound):
        sessions.go_on(BOB, epoch, ONE)


def test_epoch_0_replaces_the_session_also_when_the_table_is_full() -> None:
    sessions = ShareSessions()
    old = sessions.begin(ANN, ONE, 1)
    sessions.add(old, [(T, 0)])
    new = sessions.begin(ANN, ONE, 1)
    assert old.ended
    assert not new.ended
    assert (new.places, sessions.places) == ({}, 0)
    with pytest.raises(ShareSessionLimitReached):
        sessions.begin(BOB, TWO, 1)
    assert list(sessions.open) == [ANN]


def test_places_are_added_once_and_forgotten() -> None:
    sessions = ShareSessions()
    session = sessions.begin(ANN, ONE, 2)
    sessions.add(session, [(T, 0), (T, 1), (T, 0)])
    sessions.add(session, [(T, 1), (T, 2)])
    assert (list(session.places), sessions.places) == ([(T, 0), (T, 1), (T, 2)], 3)
    sessions.forget(session, [(T, 1), (T, 9)])
    assert (list(session.places), sessions.places) == ([(T, 0), (T, 2)], 2)
    assert not sessions.go_on(ANN, FINAL_EPOCH, ONE).ended
    assert sessions.end(session)
    assert (sessions.open, sessions.places) == ({}, 0)


def test_another_place_comes_first_in_each_request() -> None:
    sessions = ShareSessions()
    session = sessions.begin(ANN, ONE, 2)
    assert session.rotated(1) == []
    sessions.add(session, [(T, 0), (T, 1), (T, 2)])
    assert [session.rotated(epoch)[0][1] for epoch in range(1, 5)] == [1, 2, 0, 1]


def test_sessions_end_with_their_connection() -> None:
    sessions = ShareSessions()
    ann, bob = sessions.begin(ANN, ONE, 2), sessions.begin(BOB, TWO, 2)
    assert sessions.on_disconnected(ONE) == [ann]
    assert not sessions.end(ann)
    assert sessions.end(bob), "the last of its group"
    assert not sessions.end(bob), "only once"


def test_a_session_begun_anew_does_not_die_with_the_old_connection() -> None:
    sessions = ShareSessions()
    sessions.begin(ANN, ONE, 2)
    new = sessions.begin(ANN, TWO, 2)
    assert sessions.on_disconnected(ONE) == []
    assert sessions.on_disconnected(TWO) == [new]


def test_a_session_goes_on_by_another_connection() -> None:
    sessions = ShareSessions()
    session = sessions.begin(ANN, ONE, 2)
    sessions.go_on(ANN, 1, TWO)
    assert sessions.on_disconnected(ONE) == []
    assert sessions.on_disconnected(TWO) == [session]
