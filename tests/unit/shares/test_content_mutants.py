"""Mistakes about the order of keys and about times of delivery, planted and found by name."""

from collections.abc import Iterable
from typing import Any

import pytest
from shares_against_model import UnderLaws

from skidway.shares import cells, contents, delivery
from skidway.shares.contents import Content, Contents
from skidway.shares.delivery import Delivery
from skidway.shares.states import Order
from values import replace

HISTORIES_MAX = 500
STEPS = 60


class NothingIsOpened(Contents):
    def _refresh_key(self, window: Any, key: bytes) -> None:
        pass


class OnlyEarlierOnesCount(Contents):
    """Under `key`, a record goes out while a later one is held."""

    def _refresh_key(self, window: Any, key: bytes) -> None:
        order, self.order = self.order, Order.FIFO
        super()._refresh_key(window, key)
        self.order = order


class DelayedOnesDoNotBlock(Contents):
    def examine(self, window: Any, contents: Iterable[Content], upto: int, now_ms: int) -> None:
        found = list(contents)
        later = [replace(each, key=None) if each.due_ms > now_ms else each for each in found]
        super().examine(window, later, upto, now_ms)


class TimesAreIgnored(Contents):
    def examine(self, window: Any, contents: Iterable[Content], upto: int, now_ms: int) -> None:
        super().examine(window, [replace(each, due_ms=0) for each in contents], upto, now_ms)


class LooksOnlyOnce(Delivery):
    """A new leader takes for examined what the one before examined."""

    examined = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.contents.looked_to = type(self).examined

    def give_up(self, error: Any) -> None:
        type(self).examined = self.contents.looked_to
        super().give_up(error)


class NeverFreed(Contents):
    """What was settled goes on blocking what comes after it."""

    def refresh(self, window: Any) -> None:
        if window.live.changed is not None:
            window.live.changed = [each for each in window.live.changed if each[0] >= window.start_offset]
        super().refresh(window)


OF_CONTENTS: dict[type[Contents], tuple[str, ...]] = {
    NothingIsOpened: ("L2", "L15"),
    OnlyEarlierOnesCount: ("L15",),
    DelayedOnesDoNotBlock: ("L15",),
    TimesAreIgnored: ("L17",),
    NeverFreed: ("L2", "L15"),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "CHUNK", 8)
    monkeypatch.setattr(contents, "OPEN_MAX", 3)


def test_nothing_is_found_where_nothing_is_planted() -> None:
    _run(60)


@pytest.mark.parametrize("mutant", OF_CONTENTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_breaks_its_law(mutant: type[Contents], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "Contents", mutant)
    assert _broken_law() in OF_CONTENTS[mutant]


def test_a_leader_that_does_not_look_again_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "Delivery", LooksOnlyOnce)
    assert _broken_law() in ("L15", "L17")


def _broken_law() -> str:
    with pytest.raises(AssertionError) as broken:
        _run(HISTORIES_MAX)
    return str(broken.value).split(":")[0]


def _run(histories: int) -> None:
    for seed in range(histories):
        LooksOnlyOnce.examined = 0
        UnderLaws(seed, by_receipt=seed % 2 == 0, contents=True).run(STEPS)
