"""Mistakes that a coordinator of schedules could make, planted and found by the laws: the tests can fail.

Each is found within a bounded number of random histories, always the same ones.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from schedule_world import World
from schedules_against_model import SchedulesAgainstModel

from skidway.errors import DuplicateResource
from skidway.runtime.replicated import Decision, Now, Operation
from skidway.schedules.machine import Named, ScheduleCoordinator
from skidway.schedules.operations import Cancel, Cancelled, Create, Deliver, Delivered, NotTaken, Tick, TopicsChanged
from skidway.schedules.records import Defined, PlanMade, Progressed, ScheduleRecord
from skidway.schedules.schedule import LAST
from values import replace

HISTORIES_MAX = 400
COMPARING = ("schedules_against_model.py", "schedule_world.py")


class Mutant(ScheduleCoordinator):
    """Decides as it should; what follows is wrong in one way each."""

    def right(self, operation: Operation[Any], now: Now) -> Any:
        return ScheduleCoordinator.decide(self, operation, now)


class LoadsSendNothing(Mutant):
    """After a load nobody sends what was planned."""

    def unfinished(self) -> list[Any]:
        return []


class LoadsPlanAgain(Mutant):
    """After a load what was planned is planned again, under another name."""

    def unfinished(self) -> list[Any]:
        for line in self.lines.values():
            line.end()
        return []


class RefusalsCountAsDelivered(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, NotTaken):
            operation = Delivered(operation.topic_id, operation.plan)
        return self.right(operation, now)


class AnyAnswerIsOfThisPlan(Mutant):
    """An answer about the plan before ends this one."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        line = self.lines.get(operation.topic_id) if isinstance(operation, Delivered) else None
        if line is not None and line.plan is not None:
            operation = replace(operation, plan=line.plan)
        return self.right(operation, now)


class CancelsWhatIsOnItsWay(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        known = self._known(operation.topic_id, operation.id) if isinstance(operation, Cancel) else None
        if known is not None and known.planned and not known.cron:
            # Its definition stays, for the plan.
            return Decision([], Cancelled(on_its_way=False))
        return self.right(operation, now)


class CancelledOnesGoOn(Mutant):
    """A recurring schedule that was cancelled while its message was on its way is due again."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, Cancel):
            decision.records = [
                each for each in decision.records if not (isinstance(each, Progressed) and each.due_ms == LAST)
            ]
        return decision


class DueTooEarly(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, Tick):
            now = now._replace(wall_ms=now.wall_ms + 1_000)
        return self.right(operation, now)


class SequencesDoNotCount(Mutant):
    """The next plan has the name of the one before."""

    def note(self, note: Any) -> None:
        super().note(replace(note, next_sequence=0) if isinstance(note, Named) else note)


class AnotherSequenceAfterALoad(Mutant):
    """A plan that is sent again is sent behind what came before."""

    def unfinished(self) -> list[Any]:
        effects = super().unfinished()
        for effect in effects:
            line = self.lines[effect.topic_id]
            line.plan = replace(effect.plan, sequence=effect.plan.sequence + len(effect.plan.messages))
        return [Deliver(topic_id, line.plan) for topic_id, line in self.lines.items() if line.plan is not None]


class ForgetsProgress(Mutant):
    """The next time of a recurring schedule is not stored."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, Delivered):
            decision.records = [each for each in decision.records if not isinstance(each, Progressed)]
        return decision


class TakesAnyContentForTheSame(Mutant):
    """Another message under an id that is taken replaces the first."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        try:
            return self.right(operation, now)
        except DuplicateResource:
            assert isinstance(operation, Create)
            line = self.lines[operation.topic_id]
            known = line.schedules.pop(operation.id)
            try:
                return self.right(operation, now)
            finally:
                line.schedules[operation.id] = known


class PlansEndFirst(Mutant):
    """A crash between the end of a plan and the end of its schedules."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, Delivered):
            decision.records = [each for each in decision.records if isinstance(each, PlanMade)]
        return decision


class KeepsWhatWasDeleted(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        return Decision([], None) if isinstance(operation, TopicsChanged) else self.right(operation, now)


class ForgetsWhereItLies(Mutant):
    """The place of the first definition of an id is kept."""

    def apply(self, record: ScheduleRecord) -> None:
        if isinstance(record, Defined) and record.definition is not None:
            record = replace(record, offset=max(record.offset - 1, 0))
        super().apply(record)


MUTANTS = list(Mutant.__subclasses__())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_is_found(mutant: type[Mutant]) -> None:
    class Planted(World):
        machine_class = mutant

    class Machine(SchedulesAgainstModel):
        world_class = Planted

    with pytest.raises((AssertionError, KeyError)) as found:
        run(Machine)
    assert Path(str(found.traceback[-1].path)).name in COMPARING, found.value


def run(machine: type[SchedulesAgainstModel]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=HISTORIES_MAX,
            deadline=None,
            stateful_step_count=50,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
        ),
    )
