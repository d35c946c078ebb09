"""One ReceiveMessages: it looks at its partitions until one has a message, or its time is over.

One that asks for no message wants to hear when there is one: it takes nothing, so the caller can go away.
Many partitions are opened, and looked at for the first time, in steps.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from skidway.broker.api.call import Call
from skidway.broker.queues.host import Queues, Told
from skidway.broker.shares.share_partition import SharePartition, Taken
from skidway.broker.world import World
from skidway.errors import ProtocolError
from skidway.runtime.timers import Timer
from skidway.shares.states import HeldUp
from skidway.steps import Steps, at_once

PARTITIONS_PER_STEP = 10


class Asked(Struct):
    count: int
    bytes_max: int
    lock_ms: int
    wait_ms: int


class Found(Struct):
    """In one partition."""

    taken: Told | None = None
    error: ProtocolError | None = None
    held_up: HeldUp = HeldUp.NOT
    """Why nothing was found."""
    start_offset: int = 0


class Receive:
    __slots__ = (
        "_asked",
        "_begun",
        "_call",
        "_done",
        "_gone",
        "_missed",
        "_queues",
        "_reply",
        "_timer",
        "_unkept",
        "_waits_in",
        "_world",
        "found",
    )

    def __init__(
        self, world: World, queues: Queues, asked: Asked, call: Call, reply: Callable[[dict[int, Found]], None]
    ) -> None:
        """`reply` gets what was found, by partition, once."""
        self._world = world
        self._queues = queues
        self._asked = asked
        self._call = call
        self._reply = reply
        self.found: dict[int, Found] = {}
        self._waits_in: dict[SharePartition, None] = {}
        self._timer: Timer | None = None
        self._begun = False
        """Whether all partitions were looked at once."""
        self._missed = False
        """Whether something changed before."""
        self._done = False
        self._gone = False
        self._unkept = 0
        """Partitions where leases are on their way to the store."""

    def begin(self, topic: str | None, topic_id: bytes, partitions: list[int]) -> Steps[None]:
        """Over when it is answered, or waits."""
        try:
            yield from self._open(topic, topic_id, partitions)
            if self._done:
                return
            loading = any(share.delivery is None and not share.closed for share in self._waits_in)
            yield from self._look(self._call.now_ms)
        except GeneratorExit:
            self._give_back()
            raise
        self._begun = True
        if self._missed and not self._done:
            self.look_again(self._world.clock.monotonic_ms())
        wait_ms = min(self._asked.wait_ms, self._world.limits.fetch_wait_ms_max)
        if self._done:
            return
        if loading and wait_ms <= 0:
            # It is answered by what is stored, not by how long that takes to load.
            self._when_all_loaded(list(self._waits_in))
        elif wait_ms <= 0 or not self._waits_in:
            self.finish()
        else:
            self._timer = self._world.timers.at(self._call.now_ms + wait_ms, self.finish)

    def _open(self, topic: str | None, topic_id: bytes, partitions: list[int]) -> Steps[None]:
        now_ms = self._call.now_ms
        for number, index in enumerate(dict.fromkeys(partitions), 1):
            if not number % PARTITIONS_PER_STEP:
                yield None
                if self._done:
                    return
                now_ms = self._world.clock.monotonic_ms()
            try:
                share = self._queues.open(topic, (topic_id, index), now_ms)
            except ProtocolError as error:
                self.found[index] = Found(error=error.with_traceback(None))
                continue
            share.waiters[self] = None
            self._waits_in[share] = None

    def _give_back(self) -> None:
        """Its caller left before all partitions were looked at."""
        for share in self._waits_in:
            found = self.found.get(share.key.partition)
            if found is not None and found.taken is not None:
                share.untake(found.taken.acquired)
        self.give_up()

    def _when_all_loaded(self, shares: list[SharePartition]) -> None:
        left = len(shares)

        def loaded() -> None:
            nonlocal left
            left -= 1
            if not left and not self._done:
                at_once(self._look(self._world.clock.monotonic_ms()))
                self.finish()

        for share in shares:
            share.when_loaded(loaded)

    def look_again(self, now_ms: int) -> None:
        if not self._begun:
            self._missed = True
        elif not self._done:
            at_once(self._look(now_ms))

    def _look(self, now_ms: int) -> Steps[None]:
        asked = self._asked
        count_left, bytes_left = asked.count, asked.bytes_max
        for number, share in enumerate(list(self._waits_in), 1):
            if not number % PARTITIONS_PER_STEP:
                yield None
                if self._done:
                    return
                now_ms = self._world.clock.monotonic_ms()
            index = share.key.partition
            try:
                if not asked.count:
                    if share.refusal is not None:
                        raise share.refusal
                    if share.can_take():
                        self.found[index] = Found()
                    continue
                if count_left <= 0:
                    break
                taken = self._queues.take(share, count_left, max(0, bytes_left), asked.lock_ms, now_ms)
            except ProtocolError as error:
                self.found[index] = Found(error=error.with_traceback(None))
                continue
            if taken is not None:
                count_left -= sum(each.end - each.first for each in taken.acquired)
                bytes_left -= taken.records.length
                self._take(share, taken)
        # The steps are over: nobody else cleans up if the caller leaves while this waits.
        self._call.on_gone = self.give_up
        if self.found:
            self.finish()

    def _take(self, share: SharePartition, taken: Taken) -> None:
        index, keep = share.key.partition, taken.keep
        self.found[index] = Found()
        if keep is None:
            self.found[index] = Found(self._queues.told(share, taken))
            return
        self._unkept += 1

        def known(error: ProtocolError | None) -> None:
            self._unkept -= 1
            if self._gone:
                share.untake(keep.acquired)
            elif keep.acquired:
                self.found[index] = Found(self._queues.told(share, taken))
            elif error is not None:
                self.found[index] = Found(error=share.refusal or error)
            if self._done and not self._gone and not self._unkept:
                self._reply(self.found)

        keep.when_known(known)

    def finish(self) -> None:
        """Reply with what there is, as soon as the leases are stored that have to be."""
        if not self._done:
            if not self.found and self._asked.count:
                self._note_why()
            self._stop_waiting()
            if not self._unkept:
                self._reply(self.found)

    def _note_why(self) -> None:
        for share in self._waits_in:
            why = self._queues.held_up(share)
            if why is not HeldUp.NOT and share.delivery is not None:
                self.found[share.key.partition] = Found(held_up=why, start_offset=share.delivery.start_offset)

    def give_up(self) -> None:
        """Its caller is gone. What is taken goes back as soon as the store has answered; else it is replied at once."""
        self._gone = True
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
        for share in self._waits_in:
            share.waiters.pop(self, None)
        self._waits_in.clear()
