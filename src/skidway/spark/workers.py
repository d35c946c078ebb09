"""The Python workers that Spark keeps from task to task.

After each task Spark has its worker look through all objects for garbage. With numba loaded those are so many that
the look takes longer than decoding 100,000 rows. What was loaded stays as long as the process, so it is set aside.
"""

import gc
import sys
from collections.abc import Iterator
from typing import TypeVar

from pyspark import TaskContext

T = TypeVar("T")

_modules_settled = 0


def settled(rows: Iterator[T]) -> Iterator[T]:
    """The same rows; with the last of them the worker settles."""
    yield from rows
    settle()


def settle() -> None:
    """At the end of a task: nothing that is loaded by now is looked through again. Elsewhere nothing happens."""
    global _modules_settled
    # Other tasks may have other kernels to load.
    if TaskContext.get() is None or len(sys.modules) == _modules_settled:
        return
    _modules_settled = len(sys.modules)
    gc.collect()
    gc.freeze()
