"""Mistakes about readers that are sent to followers (KIP-392)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.broker.partitions.partition import Partition
from skidway.broker.reads.consumers import ConsumerPoll
from skidway.broker.reads.sessions import FetchTarget


@contextmanager
def followers_serve_everything() -> Iterator[None]:
    """A follower serves what lies above its high watermark."""
    original = ConsumerPoll.look_at

    def look_at(self: ConsumerPoll, target: FetchTarget) -> Any:
        partition = self.find(target.topic, target.index)
        if partition.leads:
            return original(self, target)
        log = partition.log
        known = log.high_watermark
        log.begin_at(log.end_offset)
        try:
            return original(self, target)
        finally:
            log.begin_at(known)

    with patch.object(ConsumerPoll, "look_at", look_at):
        yield


@contextmanager
def followers_commit_themselves() -> Iterator[None]:
    """A follower takes what it has fetched for committed, whatever its leader says."""
    original = Partition.advance

    def advance(self: Partition, high_watermark: int) -> None:
        original(self, high_watermark if self.leads else self.log.end_offset)

    with patch.object(Partition, "advance", advance):
        yield
