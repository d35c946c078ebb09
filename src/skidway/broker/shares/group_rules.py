"""What a share group's settings mean for the leaders of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from skidway.limits import SHARE_ORDERED_SPAN_MAX, SHARE_SPAN_MAX
from skidway.log import lookup
from skidway.log.bounds import Bound
from skidway.log.log import Log
from skidway.metadata import group_configs
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.features import SHARE_LETTERS, share_version
from skidway.metadata.group_configs import ShareLetters
from skidway.metadata.image import Image
from skidway.shares.states import ArchiveAtOnce, DeliveryRules, LetterFirst, Order
from skidway.steps import Steps

LATEST, EARLIEST = "latest", "earliest"


class GroupRules(NamedTuple):
    delivery: DeliveryRules
    reads_committed: bool = False
    may_renew: bool = True
    start: str = LATEST
    """Where a group begins with a partition: `latest`, `earliest`, or so far back in time."""
    start_back_ms: int = 0
    letters: ShareLetters | None = None
    """What becomes of dead records; None: they are archived, and that is all."""

    @property
    def upto(self) -> Bound:
        return Bound.LAST_STABLE if self.reads_committed else Bound.HIGH_WATERMARK


RulesOf = Callable[[str], GroupRules]
"""Of a group, as they are now."""


class GroupRulesOf:
    """By the settings of the groups, in bounds that the broker's operator chose."""

    __slots__ = ("_image", "_known", "_others", "_static")

    def __init__(self, image: Image, static: Mapping[str, str]) -> None:
        self._image = image
        self._static = static
        self._others = self._rules({})
        """Of groups without a setting of their own."""
        self._known: dict[str, tuple[Mapping[str, str], int, GroupRules]] = {}
        """Of others, with what they were made of: every request asks for them."""

    def __call__(self, group: str) -> GroupRules:
        overrides = self._image.config(ResourceType.GROUP, group)
        if not overrides:
            self._known.pop(group, None)
            return self._others
        known = self._known.get(group)
        # The image changes no settings in place: as long as they are the same object, they say the same.
        if known is not None and known[0] is overrides and known[1] == share_version(self._image):
            return known[2]
        rules = self._rules(overrides)
        self._known[group] = overrides, share_version(self._image), rules
        return rules

    def _rules(self, overrides: Mapping[str, str]) -> GroupRules:
        config = group_configs.share_config(overrides, self._static)
        start = group_configs.share_start(overrides)
        has_letters = share_version(self._image) >= SHARE_LETTERS
        letters = group_configs.share_letters(overrides) if has_letters else None
        ordered = config.in_key_order
        delivery = DeliveryRules(
            config.lock_ms,
            config.deliveries_max,
            config.locks_max,
            SHARE_ORDERED_SPAN_MAX if ordered else SHARE_SPAN_MAX,
            ArchiveAtOnce() if letters is None else LetterFirst(),
            receipts_expire=ordered,
            order=Order.KEY if ordered else Order.NONE,
            delays=config.delays,
        )
        return GroupRules(
            delivery, config.reads_committed, config.may_renew, start.strategy, start.duration_ms, letters
        )


def first_offset(log: Log, rules: GroupRules, wall_ms: int) -> Steps[int]:
    """Where a group begins that has nothing stored."""
    if rules.start == EARLIEST:
        return log.start_offset
    if rules.start == LATEST:
        return log.bound(rules.upto)
    found = yield from lookup.offset_for_timestamp(log, wall_ms - rules.start_back_ms, rules.upto)
    return log.bound(rules.upto) if found is None else found[0]
