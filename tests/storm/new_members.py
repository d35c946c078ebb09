"""Light members of groups of the newer protocol (KIP-848), and the law that no partition ever has two owners.

A member gives up what it is told to before the heartbeat that says so, and owns what it is given from the moment it
hears of it. All members of a crowd live in one process, so that `Owners` sees every moment.
"""

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

from crowd import Line
from group_calls import (
    FENCED_MEMBER_EPOCH,
    LEAVE_EPOCH,
    NONE,
    STATIC_LEAVE_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
)
from raw import Body

HEARTBEAT = 1
COMMIT_WITH_EPOCH = 9
REBALANCE_MS = 30_000


@dataclass
class Owners:
    bootstrap: str
    group: str
    topic: str
    partitions: int
    of: dict[int, "NewLight"] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def claim(self, partition: int, member: "NewLight") -> None:
        owner = self.of.setdefault(partition, member)
        if owner is not member:
            if not owner.haunts:
                self.wrong.append(f"partition {partition} was given to {member.id} while {owner.id} owns it")
            self.of[partition] = member

    def release(self, partition: int, member: "NewLight") -> None:
        if self.of.get(partition) is member:
            del self.of[partition]

    def is_settled(self, members: "list[NewLight]") -> bool:
        """One epoch, and every partition belongs to somebody who is alive."""
        epochs = {member.epoch for member in members}
        owned = sum(len(member.owned) for member in members)
        return len(epochs) == 1 and min(epochs) > 0 and owned == self.partitions == len(self.of)


class NewLight:
    def __init__(self, owners: Owners, instance: str | None = None) -> None:
        self.owners = owners
        self.instance = instance
        self.id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: set[int] = set()
        self.haunts = False
        self._topic_id = b""
        self.line = Line(owners.bootstrap)
        self.task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        await self.line.open()
        try:
            while True:
                wait_ms = await self._beat()
                await asyncio.sleep(wait_ms / 1000)
        finally:
            self.line.drop()

    async def _beat(self) -> int:
        """Returns how long to wait for the next."""
        holds = [{"topic_id": self._topic_id, "partitions": sorted(self.owned)}] if self.owned else []
        full: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": [self.owners.topic]}
        answer = await self._call(**(full if self.epoch == 0 else {}), topic_partitions=holds)
        code = answer["error_code"]
        if code in (FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID):
            self._drop(set(self.owned))
            self.epoch = 0
            return 0
        if code == UNRELEASED_INSTANCE_ID:
            return 500
        if code != NONE:
            self.owners.wrong.append(f"heartbeat of {self.id}: error {code}")
            return 500
        self.epoch = answer["member_epoch"]
        if answer["assignment"] is None:
            return int(answer["heartbeat_interval_ms"])
        given = {p for one in answer["assignment"]["topic_partitions"] for p in one["partitions"]}
        for one in answer["assignment"]["topic_partitions"]:
            self._topic_id = one["topic_id"]
        self._drop(self.owned - given)
        for partition in given - self.owned:
            self.owners.claim(partition, self)
        self.owned = given
        return 0  # it has something to say

    def _drop(self, partitions: set[int]) -> None:
        for partition in partitions:
            self.owners.release(partition, self)
        self.owned -= partitions

    async def _call(self, epoch: int | None = None, **more: object) -> Body:
        me = {"group_id": self.owners.group, "member_id": self.id, "instance_id": self.instance}
        return await self.line.call(
            "ConsumerGroupHeartbeat", HEARTBEAT, {**me, "member_epoch": self.epoch if epoch is None else epoch, **more}
        )

    async def commit(self, offsets: dict[int, int]) -> set[int]:
        places = [
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
            for partition, offset in offsets.items()
        ]
        line = Line(self.owners.bootstrap)
        await line.open()
        me = {"group_id": self.owners.group, "member_id": self.id, "generation_id_or_member_epoch": self.epoch}
        topics = [{"name": self.owners.topic, "partitions": places}]
        answer = await line.call("OffsetCommit", COMMIT_WITH_EPOCH, {**me, "topics": topics})
        line.drop()
        return {one["error_code"] for one in answer["topics"][0]["partitions"]}

    async def die_and_haunt(self) -> None:
        """It stands still, and believes that it owns what it owned."""
        self.haunts = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def leave(self) -> None:
        """A static one says that it will be back."""
        await self.die_and_haunt()
        self.line = Line(self.owners.bootstrap)
        await self.line.open()
        self._drop(set(self.owned))
        await self._call(LEAVE_EPOCH if self.instance is None else STATIC_LEAVE_EPOCH)
        self.line.drop()
