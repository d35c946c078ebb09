"""Python workers are not made to look through what the connector has loaded, after every task anew."""

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from pyspark import TaskContext

from skidway.spark.workers import settle, settled


@pytest.fixture(autouse=True)
def nothing_set_aside() -> Iterator[None]:
    """Other tests of the same process may have set things aside, a simulated cluster for one."""
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.fixture
def task() -> Iterator[None]:
    TaskContext._setTaskContext(TaskContext())
    yield
    TaskContext._setTaskContext(None)


def test_all_that_is_loaded_is_set_aside_with_the_last_row_of_a_task(
    task: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skidway.spark.workers._modules_settled", 0)
    loaded = len(gc.get_objects())
    rows = settled(iter([1, 2]))
    assert (next(rows), next(rows), gc.get_freeze_count()) == (1, 2, 0)
    assert next(rows, None) is None
    assert gc.get_freeze_count() > loaded // 2


def test_a_task_that_loaded_nothing_new_has_nothing_to_set_aside(task: None, monkeypatch: pytest.MonkeyPatch) -> None:
    settle()
    gc.unfreeze()
    settle()
    assert gc.get_freeze_count() == 0
    monkeypatch.setitem(sys.modules, "loaded_since", ModuleType("loaded_since"))
    settle()
    assert gc.get_freeze_count() > 0


def test_outside_of_a_task_the_garbage_collector_is_left_alone() -> None:
    settle()
    assert gc.get_freeze_count() == 0
