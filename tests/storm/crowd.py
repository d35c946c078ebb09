"""Light members of classic groups: one coroutine and one socket each, so that hundreds fit into a process.

A member does what a client library does: asks for an id, joins, leads if it is told to, syncs, sends heartbeats, joins
again when it hears of a rebalance, and starts anew when nobody knows it any more.
"""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from group_calls import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    subscription,
)
from raw import Body, decode_response, encode_request

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT = 5, 3, 3, 3, 7


class Line:
    """One connection, one request at a time."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.address = (host, int(port))
        self.number = 0

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(*self.address)

    async def call(self, api: str, version: int, body: Body) -> Body:
        self.number += 1
        frame = encode_request(api, version, body, self.number)
        self.writer.write(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        number, answer = decode_response(api, version, await self.reader.readexactly(length))
        assert number == self.number
        return answer

    def drop(self) -> None:
        self.writer.transport.abort()


@dataclass
class Shared:
    """What the members of one crowd have in common."""

    bootstrap: str
    group: str
    topic: str
    partitions: int
    session_ms: int = 6_000
    rebalance_ms: int = 12_000
    heartbeat_s: float = 0.5
    unexpected: list[str] = field(default_factory=list)
    rebalances: int = 0


class Light:
    def __init__(self, shared: Shared, instance: str | None = None) -> None:
        self.shared = shared
        self.instance = instance
        self.fenced = False
        """Another one has its instance id: it ends, as clients do."""
        self.id = ""
        self.generation = -1
        self.share: list[int] | None = None
        """Its partitions while it is in a generation that is not being replaced."""
        self.line = Line(shared.bootstrap)
        self.task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        await self.line.open()
        try:
            while not self.fenced:
                if await self._join():
                    await self._stay()
        finally:
            self.share = None
            self.line.drop()

    async def _join(self) -> bool:
        shared = self.shared
        body = {
            "group_id": shared.group,
            "session_timeout_ms": shared.session_ms,
            "rebalance_timeout_ms": shared.rebalance_ms,
            "member_id": self.id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription([shared.topic])}],
            "group_instance_id": self.instance,
        }
        self.share = None
        answer = await self.line.call("JoinGroup", JOIN, body)
        if answer["error_code"] == MEMBER_ID_REQUIRED:
            self.id = answer["member_id"]
            answer = await self.line.call("JoinGroup", JOIN, {**body, "member_id": self.id})
        if answer["error_code"] != NONE:
            self._recover("join", answer["error_code"])
            return False
        self.id, self.generation = answer["member_id"], answer["generation_id"]
        made = self._assign([one["member_id"] for one in answer["members"]]) if answer["leader"] == self.id else []
        answer = await self.line.call("SyncGroup", SYNC, {**self._me(), "assignments": made})
        if answer["error_code"] != NONE:
            self._recover("sync", answer["error_code"])
            return False
        data = answer["assignment"]
        self.share = list(struct.unpack(f">{len(data) // 4}i", data))
        return True

    def _assign(self, ids: list[str]) -> list[Body]:
        self.shared.rebalances += 1
        made = []
        for index, id_ in enumerate(sorted(ids)):
            share = range(index, self.shared.partitions, len(ids))
            made.append({"member_id": id_, "assignment": struct.pack(f">{len(share)}i", *share)})
        return made

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(self.shared.heartbeat_s)
            code = (await self.line.call("Heartbeat", HEARTBEAT, self._me()))["error_code"]
            if code != NONE:
                self._recover("heartbeat", code)
                return

    def _me(self) -> Body:
        me = {"group_id": self.shared.group, "generation_id": self.generation, "member_id": self.id}
        return {**me, "group_instance_id": self.instance}

    def _recover(self, call: str, code: int) -> None:
        if code == UNKNOWN_MEMBER_ID:
            self.id = ""
        elif code == FENCED_INSTANCE_ID:
            self.fenced = True
        elif code not in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
            self.shared.unexpected.append(f"{call}: error {code}")

    async def kill(self) -> None:
        """Its socket goes, and nobody is told."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def commit(self, offsets: dict[int, int]) -> set[int]:
        """The error codes; also when it is dead, as whoever it believed to be."""
        line = Line(self.shared.bootstrap)
        await line.open()
        places = [
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
            for partition, offset in offsets.items()
        ]
        me = {**self._me(), "topics": [{"name": self.shared.topic, "partitions": places}]}
        me["generation_id_or_member_epoch"] = me.pop("generation_id")
        answer = await line.call("OffsetCommit", COMMIT, me)
        line.drop()
        return {one["error_code"] for one in answer["topics"][0]["partitions"]}

    async def leave(self) -> None:
        id_ = self.id
        await self.kill()
        if id_:
            line = Line(self.shared.bootstrap)
            await line.open()
            await line.call("LeaveGroup", LEAVE, {"group_id": self.shared.group, "members": [{"member_id": id_}]})
            line.drop()


def settled(members: list[Light]) -> bool:
    """All in one generation, and every partition has exactly one owner."""
    if any(member.share is None for member in members) or len({member.generation for member in members}) != 1:
        return False
    owned = sorted(partition for member in members for partition in member.share or ())
    return owned == list(range(members[0].shared.partitions))


async def until(check: Callable[[], Any], timeout_s: float, what: str) -> float:
    """How long it took."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while not check():
        assert loop.time() - started < timeout_s, f"{what}: not after {timeout_s} s"
        await asyncio.sleep(0.05)
    return loop.time() - started
