"""The schedules of one queue: by id, and those that wait in the order in which they are due."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from skidway.schedules.schedule import LAST, Plan, Schedule


class Line:
    __slots__ = ("plan", "schedules", "singly", "waiting")

    def __init__(self) -> None:
        self.schedules: dict[str, Schedule] = {}
        self.waiting: list[tuple[int, str]] = []
        """When, and which. Those that are being delivered are not among them."""
        self.plan: Plan | None = None
        self.singly = 0
        """So many plans have one message each: one of several was not taken."""

    @property
    def is_empty(self) -> bool:
        return not self.schedules and self.plan is None

    def due(self, wall_ms: int, count_max: int) -> Iterator[Schedule]:
        for at_ms, id_ in self.waiting[:count_max]:
            if at_ms > wall_ms:
                return
            yield self.schedules[id_]

    def put(self, schedule: Schedule) -> None:
        self.remove(schedule.id)
        self.schedules[schedule.id] = schedule
        self._wait(schedule)

    def remove(self, id_: str) -> Schedule | None:
        known = self.schedules.pop(id_, None)
        if known is not None:
            self._leave(known)
        return known

    def move(self, id_: str, due_ms: int) -> None:
        if (known := self.schedules.get(id_)) is not None:
            self._leave(known)
            known.due_ms, known.waits_ms = due_ms, 0
            self._wait(known)

    def put_off(self, id_: str, until_ms: int) -> None:
        if (known := self.schedules.get(id_)) is not None:
            self._leave(known)
            known.waits_ms = until_ms
            self._wait(known)

    def begin(self, plan: Plan) -> None:
        self.end()
        self.plan = plan
        for each in plan.messages:
            if (known := self.schedules.get(each.id)) is not None:
                self._leave(known)
                known.planned = True

    def end(self) -> None:
        plan, self.plan = self.plan, None
        for each in plan.messages if plan is not None else ():
            if (known := self.schedules.get(each.id)) is not None and known.planned:
                known.planned = False
                self._wait(known)

    def _wait(self, schedule: Schedule) -> None:
        if not schedule.planned and schedule.due_ms != LAST:
            insort(self.waiting, (schedule.at_ms, schedule.id))

    def _leave(self, schedule: Schedule) -> None:
        place = schedule.at_ms, schedule.id
        index = bisect_left(self.waiting, place)
        if index < len(self.waiting) and self.waiting[index] == place:
            del self.waiting[index]
