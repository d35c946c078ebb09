"""One ShareFetch: it looks at its partitions until one has something, or its time is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from skidway.broker.api.call import Call
from skidway.broker.shares.acknowledging import Answers
from skidway.broker.shares.share_partition import SharePartition
from skidway.broker.shares.share_partitions import SharePartitions
from skidway.broker.world import World
from skidway.errors import ProtocolError
from skidway.ports import FileSlice
from skidway.runtime.timers import Timer
from skidway.shares.acquiring import Acquired, Wanted
from skidway.shares.sessions import Place, ShareSession
from skidway.shares.settling import Keep
from skidway.steps import Steps

PLACES_PER_STEP = 10


class Asked(Struct):
    wanted: Wanted
    bytes_max: int
    bytes_min: int
    wait_ms: int


class Found(Struct):
    """What one partition has for the fetch."""

    records: FileSlice | None = None
    acquired: list[Acquired] = []
    error: ProtocolError | None = None


class ShareFetch:
    __slots__ = (
        "_asked",
        "_call",
        "_done",
        "_gone",
        "_partitions",
        "_places",
        "_reply",
        "_timer",
        "_unkept",
        "_waits_in",
        "_world",
        "answers",
        "found",
        "session",
    )

    def __init__(
        self,
        world: World,
        partitions: SharePartitions,
        session: ShareSession,
        answers: Answers,
        call: Call,
        reply: Callable[[Any], None],
    ) -> None:
        self._world = world
        self._partitions = partitions
        self.session = session
        self.answers = answers
        self._call = call
        self._reply = reply
        self.found: dict[Place, Found] = {}
        self._asked = Asked(Wanted(0), 0, 0, 0)
        self._places: list[Place] = []
        self._waits_in: dict[SharePartition, None] = {}
        self._timer: Timer | None = None
        self._done = False
        self._gone = False
        self._unkept = 0
        """Partitions where leases are on their way to the store."""

    def begin(self, asked: Asked, places: list[Place]) -> Steps[None]:
        """Over when it is answered, or waits."""
        limits = self._world.limits
        self._asked = asked
        self._places = places
        asked.bytes_max = min(asked.bytes_max, limits.fetch_bytes_max)
        try:
            yield from self._wait_in_all(places)
        except GeneratorExit:
            self.give_up()
            raise
        if self._done:
            return
        # The steps are over: nobody else cleans up if the caller leaves while this waits.
        self._call.on_gone = self.give_up
        self._look(self._world.clock.monotonic_ms())
        wait_ms = min(asked.wait_ms, limits.fetch_wait_ms_max)
        if self._done:
            return
        if wait_ms <= 0 or not self._waits_in:
            self.finish()
        else:
            self._timer = self._world.timers.at(self._call.now_ms + wait_ms, self.finish)

    def _wait_in_all(self, places: list[Place]) -> Steps[None]:
        now_ms = self._call.now_ms
        for number, place in enumerate(places, 1):
            if not number % PLACES_PER_STEP:
                yield None
                if self._done:
                    return
                now_ms = self._world.clock.monotonic_ms()
            self._wait_in(place, now_ms)

    def _wait_in(self, place: Place, now_ms: int) -> None:
        try:
            share = self._partitions.open(self.session.group, place, now_ms)
        except ProtocolError as error:
            self.found[place] = Found(error=error.with_traceback(None))
            return
        share.waiters[self] = None
        self._waits_in[share] = None

    def look_again(self, now_ms: int) -> None:
        """Something has changed where it waits."""
        if not self._done:
            self._look(now_ms)

    def _look(self, now_ms: int) -> None:
        """Take what there is; done if that is anything, or if there is something else to say."""
        asked, left = self._asked, len(self._waits_in)
        records_left, bytes_left = asked.wanted.records, asked.bytes_max
        for share in list(self._waits_in):
            if records_left <= 0:
                break
            wanted = Wanted(records_left, asked.wanted.mode, asked.wanted.range_size)
            place = (share.key.topic_id, share.key.partition)
            try:
                taken = share.take(self.session.member, max(0, bytes_left) // left, wanted, now_ms)
            except ProtocolError as error:
                self.found[place] = Found(error=error.with_traceback(None))
                continue
            finally:
                left -= 1
            if taken is not None:
                records, acquired, keep = taken
                self.found[place] = Found(records, acquired)
                if keep is not None:
                    self._await(place, share, keep)
                records_left -= sum(each.end - each.first for each in acquired)
                bytes_left -= records.length
                share.partition.traffic.bytes_out += records.length
        if self.found:
            self.finish()

    def _await(self, place: Place, share: SharePartition, keep: Keep) -> None:
        """The member may hear of it when it is stored, and of nothing that is not."""
        self._unkept += 1

        def known(error: ProtocolError | None) -> None:
            self._unkept -= 1
            if keep.acquired:
                self.found[place].acquired = keep.acquired
            elif share.refusal is not None:
                self.found[place] = Found(error=share.refusal)
            else:
                del self.found[place]
            if self._done and not self._unkept:
                self._reply_when_answered()

        keep.when_known(known)

    def finish(self) -> None:
        """Reply with what there is, as soon as the acknowledgements are answered and the leases stored. It may be
        called while partitions are opened: the rest is for the next fetch."""
        if self._done:
            return
        self._stop_waiting()
        self._call.on_gone = self.give_up
        if not self._unkept:
            self._reply_when_answered()

    def _reply_when_answered(self) -> None:
        if not self._gone:
            self.answers.when_all(lambda: self._reply(self))

    def give_up(self) -> None:
        """Its caller is gone; the session's end releases what was taken."""
        self._gone = True
        self._stop_waiting()
        self.answers.give_up()

    def _stop_waiting(self) -> None:
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
        for share in self._waits_in:
            share.waiters.pop(self, None)
        self._waits_in.clear()

    def told(self) -> list[Place]:
        """What the reply names: partitions with something to say, and those that no reply has named yet."""
        named = dict.fromkeys([*self.answers.errors, *self.found])
        places = self.session.places
        for place in self._places:
            if not places.get(place, True):
                named[place] = None
        for place in named:
            if place in places:
                places[place] = True
        return list(named)
