"""Mistakes that coordinators of classic groups have been known to make."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.groups.classic import Classic
from skidway.groups.members import ClassicGroup, State
from skidway.groups.operations import SyncGroup
from skidway.groups.rebalance import sync_reply
from skidway.runtime.replicated import Decision, Replicated


@contextmanager
def old_assignments_synced() -> Iterator[None]:
    """A coordinator answers a sync with what the member had in the generation before, while the leader assigns."""
    original = Classic._sync

    def sync(self: Classic, call: SyncGroup, now_ms: int) -> Any:
        group = self._known(call.group_id)
        member = group.members.get(call.member_id)
        follows = call.member_id != group.leader and call.generation == group.generation
        if follows and member is not None and member.assignment and group.state == State.COMPLETING:
            return Decision([], sync_reply(group, call.member_id))
        return original(self, call, now_ms)

    with patch.object(Classic, "_sync", sync):
        yield


@contextmanager
def syncs_answered_early() -> Iterator[None]:
    """Members are given partitions before the assignment is committed: another coordinator gives them again."""
    original = Replicated._replies

    def replies(self: Any, operation: Any, decision: Any, respond: Any) -> Any:
        waiting = original(self, operation, decision, respond)
        if isinstance(operation, SyncGroup):
            for answer, reply in waiting:
                answer(reply)
            return []
        return waiting

    with patch.object(Replicated, "_replies", replies):
        yield


@contextmanager
def former_classic_members_commit() -> Iterator[None]:
    """Neither the member nor its generation is looked at in a commit (a zombie's offsets)."""
    with patch.object(ClassicGroup, "check_commit", lambda self, *arguments: None):
        yield
