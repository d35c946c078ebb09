"""What a queue's settings mean for the leaders of its partitions."""

from __future__ import annotations

from collections.abc import Callable

from skidway.broker.shares.group_rules import EARLIEST, GroupRules, RulesOf
from skidway.limits import QUEUE_IN_FLIGHT_MAX, SHARE_ORDERED_SPAN_MAX, SHARE_SPAN_MAX
from skidway.metadata.group_configs import ShareLetters
from skidway.metadata.topic_configs import QueueConfig
from skidway.shares.queue_groups import topic_of
from skidway.shares.states import NO_LIMIT, ArchiveAtOnce, DeliveryRules, LetterFirst, Order

FIFO = "fifo"


class QueueRulesOf:
    """Of queues by the settings of their topics; of all other groups as before."""

    __slots__ = ("_config_of", "_groups", "_known")

    def __init__(self, config_of: Callable[[str], QueueConfig], groups: RulesOf) -> None:
        self._config_of = config_of
        self._groups = groups
        self._known: dict[str, tuple[QueueConfig, GroupRules]] = {}

    def __call__(self, group: str) -> GroupRules:
        topic = topic_of(group)
        if topic is None:
            return self._groups(group)
        config = self._config_of(topic)
        known = self._known.get(topic)
        if known is not None and known[0] is config:
            return known[1]
        if len(self._known) >= 10_000:
            self._known.clear()
        rules = _rules(config)
        self._known[topic] = config, rules
        return rules


def _rules(config: QueueConfig) -> GroupRules:
    letters: ShareLetters | None = None
    if config.dead_letter_topic:
        letters = ShareLetters(config.dead_letter_topic, copies=True, blocks=True, of_queue=True)
    is_fifo = config.type == FIFO
    delivery = DeliveryRules(
        lock_ms=max(1, config.visibility_timeout_ms),
        count_limit=config.max_deliveries or NO_LIMIT,
        leases_max=QUEUE_IN_FLIGHT_MAX,
        span_max=SHARE_ORDERED_SPAN_MAX if is_fifo else SHARE_SPAN_MAX,
        end_of_life=ArchiveAtOnce() if letters is None else LetterFirst(),
        isolates=False,
        receipts_expire=is_fifo,
        order=Order.FIFO if is_fifo else Order.NONE,
        delays=True,
        fair=not is_fifo,
    )
    return GroupRules(delivery, reads_committed=True, start=EARLIEST, letters=letters)
