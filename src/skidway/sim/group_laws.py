"""The laws of groups.

| law | meaning |
|---|---|
| committed-offsets | who asks for a committed offset is told one that may be the last: none is lost |
| one-owner | no partition is given to two members at once |
| member-epochs | a member is never told an older epoch than before; none is ahead of its group |
| group-progress | after the faults a group reads everything |
"""

from __future__ import annotations

from dataclasses import dataclass

from skidway.errors import ErrorCode
from skidway.groups.consumer_group import ConsumerGroup
from skidway.sim.cluster import Cluster
from skidway.sim.readers import Partition
from skidway.sim.world import Violation, World

NEVER = 1 << 62
KEPT = 200
NOT_DONE = frozenset(
    {
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""A commit that was refused like this has left nothing behind, unless the coordinator lost its lead meanwhile."""


@dataclass(slots=True, eq=False)
class Commit:
    offset: int
    sent_us: int
    done_us: int = NEVER
    acked: bool = False


class GroupLaws:
    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self.commits: dict[tuple[str, Partition], list[Commit]] = {}
        self.acknowledged = 0

    # --- what members tell ---

    def committing(self, group: str, key: Partition, offset: int) -> tuple[str, Partition, Commit]:
        commit = Commit(offset, self.world.now_us)
        commits = self.commits.setdefault((group, key), [])
        commits.append(commit)
        if len(commits) > 2 * KEPT:
            self._prune(commits)
        return group, key, commit

    def answered(self, token: tuple[str, Partition, Commit], code: int | None) -> None:
        group, key, commit = token
        if code == ErrorCode.NONE:
            commit.acked = True
            commit.done_us = self.world.now_us
            self.acknowledged += 1
        elif code in NOT_DONE and code != ErrorCode.NOT_COORDINATOR:
            self.commits[group, key].remove(commit)

    def fetched(self, who: str, group: str, key: Partition, offset: int, asked_us: int) -> None:
        commits = self.commits.get((group, key), [])
        known = [commit for commit in commits if commit.acked and commit.done_us <= asked_us]
        if offset < 0:
            if known:
                raise Violation(
                    "committed-offsets",
                    f"{who} is told that {group} has committed nothing in {key}; {known[-1].offset} was acknowledged",
                )
            return
        newest = max((commit.sent_us for commit in known), default=-1)
        allowed = {commit.offset for commit in commits if commit.done_us >= newest}
        if offset not in allowed:
            raise Violation(
                "committed-offsets", f"{who} is told {offset} for {group} in {key}; it could be {sorted(allowed)}"
            )

    def _prune(self, commits: list[Commit]) -> None:
        newest = max((commit.sent_us for commit in commits if commit.acked), default=-1)
        commits[:] = [commit for commit in commits if commit.done_us >= newest]

    # --- what coordinators have ---

    def sweep(self) -> None:
        for host, node in self.cluster.running:
            for coordinator in node.groups._loaded.values():
                for group in coordinator.host.machine.groups.values():
                    if isinstance(group, ConsumerGroup):
                        self._check_group(host.name, group)

    def _check_group(self, name: str, group: ConsumerGroup) -> None:
        owners: dict[object, str] = {}
        for member_id, member in group.members.items():
            for held in sorted(member.held):
                first = owners.setdefault(held, member_id)
                if first != member_id:
                    raise Violation("one-owner", f"{name}: {first} and {member_id} both have {held}")
            if member.epoch > group.epoch:
                raise Violation("member-epochs", f"{name}: {member_id} is in epoch {member.epoch} of {group.epoch}")
