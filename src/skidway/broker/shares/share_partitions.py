"""All share-partitions of this node: found, loaded on first use, closed when their time is over.

A group's are forgotten when the last of its sessions here is over: an operator who then moves the group's offsets finds
nobody who still delivers from the old ones.
"""

from __future__ import annotations

from typing import NamedTuple

from skidway.broker.partitions.catalog import Partitions
from skidway.broker.partitions.partition import Partition
from skidway.broker.shares.group_rules import RulesOf
from skidway.broker.shares.letter_office import LetterOffice
from skidway.broker.shares.share_partition import SharePartition, Store
from skidway.broker.world import World
from skidway.errors import CoordinatorNotAvailable, NotLeaderOrFollower, ProtocolError
from skidway.limits import SHARE_PARTITIONS_MAX
from skidway.runtime.turn import TurnNotes
from skidway.shares.sessions import Place


class ShareKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int


class SharePartitions:
    __slots__ = (
        "_changed",
        "_here",
        "_partitions",
        "_rules",
        "_store",
        "_to_pump",
        "_turn",
        "_unused",
        "_world",
        "count",
        "groups",
        "office",
    )

    def __init__(
        self,
        world: World,
        turn: TurnNotes[Partition],
        partitions: Partitions,
        store: Store,
        rules: RulesOf,
        office: LetterOffice,
    ) -> None:
        self._world = world
        self._turn = turn
        self._partitions = partitions
        self._store = store
        self._rules = rules
        self.office = office
        self.groups: dict[str, dict[Place, SharePartition]] = {}
        self._here: dict[Partition, dict[str, SharePartition]] = {}
        self._changed: dict[SharePartition, None] = {}
        self._to_pump: dict[SharePartition, None] = {}
        self._unused: set[str] = set()
        """Groups that nobody of is here any more."""
        self.count = 0

    def find(self, group: str, place: Place) -> SharePartition | None:
        """If it is here already."""
        return self.groups.get(group, {}).get(place)

    def open(self, group: str, place: Place, now_ms: int) -> SharePartition:
        """Loads it, if need be. Raises why this node has none."""
        self._unused.discard(group)
        partition = self._led(place)
        found = self.find(group, place)
        if found is not None and found.partition is partition:
            return found
        if self.count >= SHARE_PARTITIONS_MAX:
            raise CoordinatorNotAvailable(f"{self.count} share-partitions are in use on this broker")
        opened = SharePartition(
            self._world,
            self._store,
            self._rules,
            ShareKey(group, *place),
            partition,
            self._on_change,
            self.office,
            self._pump_soon,
        )
        self.groups.setdefault(group, {})[place] = opened
        self._here.setdefault(partition, {})[group] = opened
        self.count += 1
        opened.load(now_ms)
        return opened

    def check(self, place: Place) -> None:
        """Raises why this node has nothing to say about it."""
        self._led(place)

    def _led(self, place: Place) -> Partition:
        partition = self._partitions.find_by_id(*place)
        if not partition.leads:
            raise NotLeaderOrFollower(f"{partition} is led by node {partition.role.leader}")
        return partition

    def forget_group(self, group: str) -> None:
        """Nobody of it is here any more. What is still to be stored is stored first."""
        self._unused.add(group)
        for share in self.of_group(group):
            self._note(share)

    def close_all(self, why: ProtocolError) -> None:
        for group in list(self.groups):
            for share in self.of_group(group):
                share.close(why)

    def of_group(self, group: str) -> list[SharePartition]:
        return list(self.groups.get(group, {}).values())

    # --- what happens to partitions ---

    def on_moved(self, partition: Partition) -> None:
        """More of it may be read."""
        for share in self._here.get(partition, {}).values():
            if share.waiters:
                self._note(share)

    def on_start_moved(self, partition: Partition) -> None:
        """Its log begins later: nobody has to settle what is gone, and there may be room for more. The store and who
        waits hear of it now, because perhaps nobody fetches for long."""
        for share in list(self._here.get(partition, {}).values()):
            if share.current() is not None:
                self._note(share)
                share.pump()

    def on_disturbed(self, partition: Partition) -> None:
        """Those that are over are closed. Who waits for another is answered with what there is: the node may stop."""
        why: ProtocolError | None = None
        try:
            self._led((partition.topic_id, partition.index))
        except ProtocolError as error:
            why = error.with_traceback(None)
        for share in list(self._here.get(partition, {}).values()):
            if why is not None or partition.removed or share.leader_epoch != partition.role.leader_epoch:
                share.close(why or NotLeaderOrFollower(f"{partition} has a new leader epoch"))
                continue
            for waiter in list(share.waiters):
                waiter.finish()

    # --- the end of a turn ---

    def _pump_soon(self, share: SharePartition) -> None:
        self._to_pump[share] = None
        self._turn.call_at_end(self._pump)

    def _pump(self, _: int) -> None:
        shares, self._to_pump = self._to_pump, {}
        for share in shares:
            share.pump()

    def _on_change(self, share: SharePartition) -> None:
        if share.closed:
            self._drop(share)
        self._note(share)

    def _note(self, share: SharePartition) -> None:
        # At the end of the turn: nobody may be in the middle of what the waiters look at.
        self._changed[share] = None
        self._turn.call_at_end(self._wake)

    def _wake(self, now_ms: int) -> None:
        changed, self._changed = list(self._changed), {}
        for share in changed:
            for waiter in list(share.waiters):
                if not share.can_take():
                    break
                if waiter in share.waiters:
                    waiter.look_again(now_ms)
            if share.key.group_id in self._unused and share.is_idle:
                share.close(NotLeaderOrFollower("nobody fetches it any more"))

    def _drop(self, share: SharePartition) -> None:
        place = (share.key.topic_id, share.key.partition)
        shares = self.groups.get(share.key.group_id, {})
        if shares.get(place) is share:
            del shares[place]
            self.count -= 1
            if not shares:
                self._unused.discard(share.key.group_id)
                del self.groups[share.key.group_id]
        here = self._here.get(share.partition, {})
        if here.get(share.key.group_id) is share:
            del here[share.key.group_id]
            if not here:
                del self._here[share.partition]
