"""The laws of groups.

| law | meaning |
|---|---|
| committed-offsets | what a coordinator has and tells may have been committed last: nothing is lost or comes too late |
| coordinators | only the leader of its partition has a coordinator |
| one-owner | no partition is given to two members at once; in a classic group, in one generation |
| assignments | a member of a classic group is given what the leader of its generation said, and not after a later one |
| member-epochs | a member is never told an older epoch than before; none is ahead of its group |
| group-progress | after the faults a group reads everything |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from skidway.broker.coordinators.groups import OFFSETS_TOPIC
from skidway.broker.node import Node
from skidway.errors import ErrorCode
from skidway.groups.consumer.group import ConsumerGroup
from skidway.groups.placement import partition_of
from skidway.sim.clients.readers import Partition
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import Violation, World

if TYPE_CHECKING:
    from skidway.groups.classic.group import ClassicGroup

NEVER = 1 << 62
KEPT = 200
NOT_DONE = frozenset(
    {
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""A commit that was refused like this has left nothing behind, unless the coordinator lost its lead meanwhile."""


@dataclass(slots=True, eq=False)
class Commit:
    who: str
    offset: int
    sent_us: int
    done_us: int = NEVER
    """By when it has happened, if it ever does."""
    acked: bool = False
    late: bool = False
    """Sent by a member after another was given the partition."""


class GroupLaws:
    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self.commits: dict[tuple[str, Partition], list[Commit]] = {}
        self.acknowledged = 0
        self._owners: dict[tuple[str, Partition], tuple[int, str]] = {}
        """Who was given a partition last, and in which epoch."""
        self._checked_offset = -1
        self._said: dict[tuple[str, int], list[dict[str, list[Partition]]]] = {}
        """What leaders of a generation said, by group and generation: one that was never committed is begun again."""
        self._given: dict[tuple[str, int, Partition], str] = {}
        self._settled: dict[str, tuple[int, int]] = {}
        """The newest generation that somebody was given partitions in, and when."""
        self._counts: dict[str, int] = {}
        """The epoch or generation a group was seen in last."""

    # --- what members tell ---

    def committing(
        self, who: str, epoch: int, group: str, key: Partition, offset: int
    ) -> tuple[str, Partition, Commit]:
        self._look_at(group)
        commit = Commit(who, offset, self.world.now_us)
        given_epoch, owner = self._owners.get((group, key), (epoch, who))
        if given_epoch > epoch and owner != who:
            # It does not know yet that it has lost the partition: this must be refused.
            commit.late = True
            self.world.mark("commit by a former owner")
            return group, key, commit
        commits = self.commits.setdefault((group, key), [])
        commits.append(commit)
        if len(commits) > 2 * KEPT:
            self._prune(commits)
        return group, key, commit

    def answered(self, token: tuple[str, Partition, Commit], code: int | None) -> None:
        group, key, commit = token
        if code == ErrorCode.NONE:
            if commit.late:
                raise Violation(
                    "committed-offsets",
                    f"{commit.who} committed {commit.offset} for {group} in {key} after another member got it",
                )
            commit.acked = True
            commit.done_us = min(commit.done_us, self.world.now_us)
            self.acknowledged += 1
        elif code in NOT_DONE and code != ErrorCode.NOT_COORDINATOR and commit in self.commits.get((group, key), []):
            self.commits[group, key].remove(commit)

    def took(self, who: str, epoch: int, group: str, key: Partition) -> None:
        """A member was given a partition. So whoever had it before has lost it by now, and with it its epoch: what it
        sent and was not answered has been committed already, or never will be."""
        self._look_at(group)
        given_epoch, owner = self._owners.get((group, key), (-1, who))
        if owner != who and epoch <= given_epoch:
            return  # it does not know yet that it has lost it again
        self._owners[group, key] = (epoch, who)
        now_us = self.world.now_us
        for commit in self.commits.get((group, key), []):
            if commit.who != who and not commit.acked and commit.done_us == NEVER:
                commit.done_us = now_us
                self.world.mark("commit of a lost partition")

    def fetched(self, who: str, group: str, key: Partition, offset: int, asked_us: int) -> None:
        """What a client was told, or a coordinator has: -1 is nothing."""
        commits = self.commits.get((group, key), [])
        known = [commit for commit in commits if commit.acked and commit.done_us <= asked_us]
        if offset < 0:
            if known:
                raise Violation(
                    "committed-offsets",
                    f"{who}: {group} has committed nothing in {key}; {known[-1].offset} was acknowledged",
                )
            return
        newest = max((commit.sent_us for commit in known), default=-1)
        allowed = {commit.offset for commit in commits if commit.done_us >= newest}
        if offset not in allowed:
            raise Violation("committed-offsets", f"{who}: {offset} for {group} in {key}; it could be {sorted(allowed)}")

    def _prune(self, commits: list[Commit]) -> None:
        newest = max((commit.sent_us for commit in commits if commit.acked), default=-1)
        commits[:] = [commit for commit in commits if commit.done_us >= newest]

    # --- classic groups ---

    def saying(self, group: str, generation: int, assignment: dict[str, list[Partition]]) -> None:
        """The leader of a generation tells the coordinator who shall have what."""
        self._said.setdefault((group, generation), []).append(assignment)

    def synced(
        self, member_id: str, group: str, generation: int, given: list[Partition], asked_us: int, *, led: bool
    ) -> None:
        """A member was told what it has. Not `led`: the coordinator assigned, by the consumer protocol."""
        self._look_at(group)
        newest, since_us = self._settled.get(group, (-1, 0))
        if newest > generation and since_us < asked_us:
            raise Violation(
                "assignments",
                f"{member_id} got {given} in generation {generation} of {group}, which was already in {newest}",
            )
        if newest < generation:
            self._settled[group] = (generation, self.world.now_us)
        if not led:
            return
        said = self._said.get((group, generation), [])
        if not any(sorted(each.get(member_id, [])) == sorted(given) for each in said):
            raise Violation(
                "assignments",
                f"{member_id} got {given} in generation {generation} of {group}; the group's leader assigned {said}",
            )
        for key in given:
            first = self._given.setdefault((group, generation, key), member_id)
            if first != member_id:
                raise Violation(
                    "one-owner", f"{first} and {member_id} both have {key} in generation {generation} of {group}"
                )

    def _look_at(self, group: str) -> None:
        """One that was empty gives way to one of the other protocol, which begins to count anew, as in Kafka: nobody is
        left who was told a number of the first."""
        epoch, count = -1, -1
        for _, node in self.cluster.running:
            for partition, coordinator in node.rooms.services.groups.loaded.items():
                found = coordinator.host.machine.groups.get(group)
                if found is not None and partition.leader.epoch > epoch:
                    epoch = partition.leader.epoch
                    count = (
                        found.epoch
                        if isinstance(found, ConsumerGroup)
                        else cast("ClassicGroup", found).live.current.number
                    )
        if 0 <= count < self._counts.get(group, 0):
            self.world.mark("group changed protocol")
            self._settled.pop(group, None)
            self._given = {key: who for key, who in self._given.items() if key[0] != group}
            self._owners = {key: owner for key, owner in self._owners.items() if key[0] != group}
        if count >= 0:
            self._counts[group] = count

    # --- what coordinators have ---

    def sweep(self) -> None:
        for host, node in self.cluster.running:
            for partition, coordinator in node.rooms.services.groups.loaded.items():
                if not partition.leads:
                    raise Violation(
                        "coordinators", f"{host.name} coordinates groups of {partition} and does not lead it"
                    )
                for group in coordinator.host.machine.groups.values():
                    if isinstance(group, ConsumerGroup):
                        self._check_group(host.name, group)
        nodes = [node for _, node in self.cluster.running]
        newest = max(nodes, key=lambda node: node.quorum.published_offset, default=None)
        if newest is not None and newest.quorum.published_offset >= self._checked_offset:
            # Not when all who know better are down: then nobody can say who coordinates.
            self._checked_offset = newest.quorum.published_offset
            self._check_offsets(newest)

    def _check_offsets(self, newest: Node) -> None:
        topic = newest.image.topics.get(OFFSETS_TOPIC)
        for described in [] if topic is None else topic.partitions:
            host = self.cluster.hosts.get(described.leader)
            if topic is None or host is None or host.node is None or host.paused:
                continue
            partition = host.node.partitions.get(topic.id, described.index)
            loaded = None if partition is None else host.node.rooms.services.groups.loaded.get(partition)
            if partition is None or loaded is None or partition.leader.epoch != described.leader_epoch:
                continue
            offsets = loaded.host.machine.offsets
            for group, key in self.commits:
                if partition_of(group, len(topic.partitions)) == described.index:
                    found = offsets.of(group).get(key)
                    offset = -1 if found is None else found.offset
                    self.fetched(f"the coordinator on {host.name}", group, key, offset, self.world.now_us)

    def _check_group(self, name: str, group: ConsumerGroup) -> None:
        owners: dict[object, str] = {}
        for member_id, member in group.members.items():
            for held in sorted(member.assigned | member.revoking):
                first = owners.setdefault(held, member_id)
                if first != member_id:
                    raise Violation("one-owner", f"{name}: {first} and {member_id} both have {held}")
            if member.epoch > group.epoch:
                raise Violation(
                    "member-epochs",
                    f"{name}: {member_id} is in epoch {member.epoch}, ahead of its group in {group.epoch}",
                )
