"""Mistakes that coordinators of classic groups have been known to make."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.groups.classic.group import ClassicGroup
from skidway.groups.classic.protocol import ClassicProtocol
from skidway.groups.classic.rebalance import sync_reply
from skidway.groups.classic.states import Completing
from skidway.groups.operations import SyncGroup
from skidway.runtime.replicated import Decision, Now, Replicated


@contextmanager
def old_assignments_synced() -> Iterator[None]:
    """A coordinator answers a sync with what the member had in the generation before, while the leader assigns."""
    original = ClassicProtocol._sync

    def sync(self: ClassicProtocol, call: SyncGroup, now: Now) -> Any:
        group = self._known(call.group_id)
        current = group.live.current
        member = current.members.get(call.member_id)
        follows = call.member_id != current.leader and call.generation == current.number
        if follows and member is not None and member.assignment and isinstance(group.live.state, Completing):
            return Decision([], sync_reply(current, call.member_id))
        return original(self, call, now)

    with patch.object(ClassicProtocol, "_sync", sync):
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
