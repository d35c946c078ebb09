"""Lines that repeat: the first at once, then one in a while that says how many there were."""

from server_fake_node import HandClock

from skidway.server.once_per import KINDS_MAX, OncePer


def test_the_first_of_each_kind_and_then_one_in_a_while() -> None:
    clock = HandClock()
    lines = OncePer(1_000, clock)
    assert lines.take("a") == 0
    assert lines.take("b") == 0
    assert [lines.take("a") for _ in range(3)] == [None, None, None]
    clock.now_ms += 1_000
    assert lines.take("a") == 3, "so many were left out"
    assert lines.take("a") is None


def test_only_so_many_kinds_are_remembered() -> None:
    lines = OncePer(1_000, HandClock())
    for number in range(KINDS_MAX + 1):
        assert lines.take(number) == 0
    assert lines.take(0) == 0, "the oldest was forgotten"
    assert lines.take(KINDS_MAX) is None
