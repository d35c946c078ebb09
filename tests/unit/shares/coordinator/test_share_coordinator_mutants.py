"""Mistakes that share coordinators have made, planted and found by name: the tests can fail.

Each is found by the model or by a law within a bounded number of random histories, always the same ones.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from share_coordinator_world import World
from share_states_against_model import ShareStatesAgainstModel

from skidway.errors import ProtocolError
from skidway.runtime.replicated import Decision, Now, Operation
from skidway.shares.coordinator import machine as machine_module
from skidway.shares.coordinator import state as state_module
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.machine import ShareCoordinator
from skidway.shares.coordinator.operations import Ask, Initialize, Prune, Read, Write
from skidway.shares.coordinator.records import ShareRecord
from skidway.shares.coordinator.state import Snapshot, Update
from values import replace

HISTORIES_MAX = 300
COMPARING = ("share_states_against_model.py", "share_coordinator_world.py")


class Mutant(ShareCoordinator):
    """Decides as it should; what follows is wrong in one way each."""

    def right(self, operation: Operation[Any], now: Now) -> Any:
        return ShareCoordinator.decide(self, operation, now)


class InitialiseWipes(Mutant):
    """A second Initialise in the same state epoch takes away what was stored (#23190)."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, Ask) and len(operation.questions) == 1:
            asked = operation.questions[0]
            known = self.states.get(asked.key)
            if isinstance(asked, Initialize) and known and known.snapshot.state_epoch == asked.state_epoch:
                wiped = replace(known.snapshot, start_offset=asked.start_offset, batches=[])
                return Decision([ShareRecord(asked.key, wiped)], decision.reply)
        return decision


class AlterKeepsTheCountUnknown(Mutant):
    """A state that begins at a known offset has a complete count of -1 (20034)."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        for record in decision.records:
            value = record.value
            if isinstance(value, Snapshot) and not value.batches and value.complete_count == 0:
                record.value = replace(value, complete_count=-1)
        return decision


class SnapshotOneLate(Mutant):
    """The counter of updates is off by one (#21426)."""

    def _change(self, draft: Any, key: ShareKey, state: Any, update: Update, wall_ms: int) -> None:
        ShareCoordinator._change(self, draft, key, replace(state, updates=state.updates - 1), update, wall_ms)


class PrunesANeededSnapshot(Mutant):
    """The newest snapshot decides how much is cut off, not the oldest that counts."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        newest = max(self._snapshot_offsets.values(), default=0)
        decision.effects = [Prune(max(each.offset, newest)) for each in decision.effects]
        return decision


class NeverTakesAgain(Mutant):
    """What nobody writes to holds the log back for ever."""

    def _take_again(self, decision: Any, wall_ms: int) -> bool:
        return False


class ReadFencesNobody(Mutant):
    """A new leader's epoch is not stored when it reads, so the old one writes on."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, Ask) and all(isinstance(each, Read) for each in operation.questions):
            decision.records.clear()
        return decision


class WritesOfAnyStateEpoch(Mutant):
    """Who has read before the offsets were altered may write (20910)."""

    def _write(self, draft: Any, asked: Write, wall_ms: int) -> Any:
        known = draft.get(asked.key)
        if known is not None and asked.state_epoch < known.snapshot.state_epoch:
            asked = replace(asked, state_epoch=known.snapshot.state_epoch)
        return ShareCoordinator._write(self, draft, asked, wall_ms)


class WritesWithoutReading(Mutant):
    """A leader of a group that was deleted and came back writes what it held."""

    def _write(self, draft: Any, asked: Write, wall_ms: int) -> Any:
        known = draft.get(asked.key)
        if known is not None and asked.leader_epoch > known.snapshot.leader_epoch:
            asked = replace(asked, leader_epoch=known.snapshot.leader_epoch)
        return ShareCoordinator._write(self, draft, asked, wall_ms)


class TombstonesForgetTheEpochOnly(Mutant):
    """A deleted share-partition is still there for whoever reads."""

    def apply(self, record: ShareRecord) -> None:
        if record.value is not None or record.key not in self.states:
            ShareCoordinator.apply(self, record)
        else:
            self._end_offset = record.offset + 1


class RefusesHalf(Mutant):
    """What came before a batch that makes no sense is stored all the same."""

    def _write(self, draft: Any, asked: Write, wall_ms: int) -> Any:
        try:
            return ShareCoordinator._write(self, draft, asked, wall_ms)
        except ProtocolError:
            half = list(asked.batches)[:1]
            if len(asked.batches) > 1:
                ShareCoordinator._write(self, draft, replace(asked, batches=half), wall_ms)
            raise


class SecondQuestionSeesNothing(Mutant):
    """Questions of one request do not see each other's effects."""

    def _answer(self, draft: Any, question: Any, wall_ms: int) -> Any:
        own = machine_module.Draft(self.states)
        answer = ShareCoordinator._answer(self, own, question, wall_ms)
        draft.records += own.records
        return answer


CLASSES = list(Mutant.__subclasses__())


def late_count(before: Snapshot, start_offset: int, complete_count: int) -> int:
    """A late write lowers the complete count (#23112)."""
    return complete_count


def state_before_count(self: StateBatch) -> tuple[int, int]:
    """Where batches overlap, the state decides and not the delivery count."""
    return self.state, self.delivery_count


@pytest.mark.parametrize("mutant", CLASSES, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_is_found(mutant: type[Mutant]) -> None:
    class Planted(World):
        machine_class = mutant

    class Machine(ShareStatesAgainstModel):
        world_class = Planted

    find(Machine)


def test_a_count_that_falls_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "complete_count_after", late_count)
    monkeypatch.setattr(state_module, "complete_count_after", late_count)
    find(ShareStatesAgainstModel)


def test_a_start_that_goes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class GoesBack(ShareCoordinator):
        def _write(self, draft: Any, asked: Write, wall_ms: int) -> Any:
            known = draft.get(asked.key)
            answer = ShareCoordinator._write(self, draft, asked, wall_ms)
            value = draft.records[-1].value
            if asked.start_offset >= 0 and isinstance(value, Snapshot):
                draft.records[-1].value = replace(value, start_offset=asked.start_offset)
            elif asked.start_offset >= 0 and asked.start_offset < known.snapshot.start_offset:
                back = replace(known.snapshot, start_offset=asked.start_offset)
                draft.records[-1].value = back
            return answer

    class Planted(World):
        machine_class = GoesBack

    class Machine(ShareStatesAgainstModel):
        world_class = Planted

    find(Machine)


def test_another_order_of_merging_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateBatch, "rank", property(state_before_count))
    find(ShareStatesAgainstModel)


def find(machine: type[ShareStatesAgainstModel]) -> None:
    """By a comparison or a law, not by a crash of the mutant itself."""
    with pytest.raises(AssertionError) as found:
        run(machine)
    assert Path(str(found.traceback[-1].path)).name in COMPARING, found.value


def run(machine: type[ShareStatesAgainstModel]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=HISTORIES_MAX,
            stateful_step_count=30,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
        ),
    )
