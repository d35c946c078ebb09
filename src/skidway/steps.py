"""Work in steps, so that whoever runs it can give the event loop back between them.

A piece of work is a generator, and what it returns is its result. It yields
- None after a small step: the runner goes on at once, or in a later turn when this one has lasted long enough;
- a `Job`: a worker thread runs it, and its result is sent back (its error is raised where it was yielded);
- a `Question`: somebody answers it later, and the answer is sent back.

`runtime.slices.Slices` runs them in a node. Until a piece of work goes on, anything may happen to what it looked at: it
has to look again at whatever can change.
"""

from collections.abc import Callable, Generator, Iterable
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

SORTED_AT_ONCE = 1_000
STEPS_UNTIMED = 4
"""Steps between two looks at the clock."""


class Job:
    """Something that takes long and needs no more than its arguments: a thread runs it beside the event loop."""

    __slots__ = ("_error", "_function", "_result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function
        self._result: Any = None
        self._error: Exception | None = None

    def run(self) -> None:
        assert self._function is not None, "a job is run once"
        try:
            self._result = self._function()
        except Exception as error:
            self._error = _without_frames(error)
        self._function = None

    def send_to(self, steps: "Steps[T]") -> "Wanted":
        """What the work yields next, now that the job has run."""
        if self._error is not None:
            return steps.throw(self._error)
        return steps.send(self._result)


def _without_frames(error: Exception) -> Exception:
    """Its traceback refers to all that the job had unpacked so far: that is freed here, not on the event loop."""
    reason: BaseException | None = error
    while reason is not None:
        reason.__traceback__ = None
        reason = reason.__cause__ or reason.__context__
    return error


class Question:
    """`ask` is given the function that takes the answer; it may be called at once, later, or never."""

    __slots__ = ("ask",)

    def __init__(self, ask: Callable[[Callable[[Any], None]], None]) -> None:
        self.ask = ask


Wanted = Job | Question | None
Steps = Generator[Wanted, Any, T]


def sorted_names(names: Iterable[str]) -> Steps[list[str]]:
    """As `sorted(set(names))`, in steps."""
    unsorted = iter(names)
    runs: list[list[str]] = []
    while run := sorted(islice(unsorted, SORTED_AT_ONCE)):
        runs.append(run)
        yield None
    found: list[str] = []
    for name in merge(*runs):
        if not found or found[-1] != name:
            found.append(name)
        yield None
    return found


def first_steps(steps: Steps[Any]) -> Wanted:
    """Take the first few: what the last of them wants. StopIteration when the work is over, as most of it is then."""
    wanted = None
    for _ in range(STEPS_UNTIMED):
        wanted = next(steps)
        if wanted is not None:
            break
    return wanted


def resumed(steps: Steps[T], wanted: Wanted) -> Steps[T]:
    """Work whose first steps are taken, from the one on that wanted this."""
    try:
        while wanted is not None:
            try:
                found = yield wanted
            except Exception as error:
                wanted = steps.throw(error)
            else:
                wanted = steps.send(found)
        return (yield from steps)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def at_once(steps: Steps[T]) -> T:
    """The result of work that asks nobody, with all its steps and jobs done here and now."""
    try:
        wanted = next(steps)
        while True:
            assert not isinstance(wanted, Question), "nobody is here to answer"
            if wanted is None:
                wanted = next(steps)
            else:
                wanted.run()
                wanted = wanted.send_to(steps)
    except StopIteration as end:
        result: T = end.value
        return result
