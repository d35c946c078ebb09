"""Mistakes that coordinators of share groups have made, planted and found by name: the stories can fail."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import test_share_groups as stories

from skidway.errors import ErrorCode, FencedMemberEpoch
from skidway.groups.share.change import ShareChange
from skidway.groups.share.operations import (
    BY_RESET,
    FIRST_STATE_EPOCH,
    AlterShareOffsets,
    InitializeStates,
    ShareHeartbeat,
    StateItem,
)
from skidway.groups.share.protocol import ShareProtocol
from skidway.runtime.replicated import Now, Operation

Plant = Callable[[pytest.MonkeyPatch], None]
right_initialize = ShareChange.initialize
right_heartbeat = ShareProtocol._heartbeat
right_initialized = ShareProtocol._initialized
right_begin_deletion = ShareProtocol._begin_deletion


def start_resolved_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every try has the group's epoch of then, so the last one counts."""

    def initialize(self: ShareChange, epoch: int, items: Iterable[StateItem], asked: Operation[Any] | None) -> None:
        retry_epoch = self.now.monotonic_ms if epoch == FIRST_STATE_EPOCH else epoch
        right_initialize(self, retry_epoch, items, asked)

    monkeypatch.setattr(ShareChange, "initialize", initialize)


def alter_without_a_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-20910."""

    def initialize(self: ShareChange, epoch: int, items: Iterable[StateItem], asked: Operation[Any] | None) -> None:
        right_initialize(self, FIRST_STATE_EPOCH if isinstance(asked, AlterShareOffsets) else epoch, items, asked)

    monkeypatch.setattr(ShareChange, "initialize", initialize)


def new_partitions_at_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-20742."""

    def initialize(self: ShareChange, epoch: int, items: Iterable[StateItem], asked: Operation[Any] | None) -> None:
        if asked is None:
            items = [StateItem(item.topic_id, item.partition, BY_RESET) for item in items]
        right_initialize(self, epoch, items, asked)

    monkeypatch.setattr(ShareChange, "initialize", initialize)


def rejoin_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-19233."""

    def heartbeat(self: ShareProtocol, call: ShareHeartbeat, now: Now) -> Any:
        group = self._context.groups.get(call.group_id)
        if call.member_epoch == 0 and call.member_id in getattr(group, "members", {}):
            raise FencedMemberEpoch("it is a member")
        return right_heartbeat(self, call, now)

    monkeypatch.setattr(ShareProtocol, "_heartbeat", heartbeat)


def part_of_a_topic_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of it starts at 0, as if it had come later."""

    def initialized(self: ShareProtocol, change: ShareChange, effect: InitializeStates, codes: list[ErrorCode]) -> None:
        fine = [number for number, code in enumerate(codes) if code == ErrorCode.NONE]
        some = InitializeStates(
            effect.group_id, effect.number, effect.state_epoch, tuple(effect.items[number] for number in fine)
        )
        right_initialized(self, change, some, [ErrorCode.NONE] * len(fine))
        if len(fine) < len(codes):
            change.try_later()

    monkeypatch.setattr(ShareProtocol, "_initialized", initialized)


def failed_initialisation_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShareChange, "try_later", lambda self: None)


def load_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShareProtocol, "unfinished", lambda self: [])


def deletion_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes over knows nothing of it."""

    def begin(self: ShareProtocol, change: ShareChange, topic_ids: frozenset[bytes], asked: Operation[Any]) -> None:
        change.delete(sorted(topic_ids), asked)

    monkeypatch.setattr(ShareProtocol, "_begin_deletion", begin)


FOUND: list[tuple[Plant, Callable[[], None]]] = [
    (start_resolved_twice, stories.test_what_cannot_be_initialised_is_tried_again_as_a_whole_topic),
    (alter_without_a_new_epoch, stories.test_offsets_are_altered_in_a_new_state_epoch),
    (new_partitions_at_latest, stories.test_partitions_that_come_later_start_at_their_beginning),
    (rejoin_refused, stories.test_epochs_are_checked),
    (part_of_a_topic_is_done, stories.test_what_cannot_be_initialised_is_tried_again_as_a_whole_topic),
    (failed_initialisation_forgotten, stories.test_what_cannot_be_initialised_is_tried_again_as_a_whole_topic),
    (load_begins_nothing, stories.test_a_new_coordinator_goes_on_with_what_was_begun),
    (deletion_not_written_down, stories.test_a_deletion_that_fails_is_finished_later),
]


@pytest.mark.parametrize(("plant", "story"), FOUND, ids=lambda each: each.__name__)
def test_a_planted_mistake_is_found(plant: Plant, story: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    story()
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        story()
