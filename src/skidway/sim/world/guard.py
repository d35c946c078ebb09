"""Keeps a run inside its simulation: whoever opens a file or a socket or looks at a real clock is stopped.

An audit hook cannot be taken away again, so one is installed on first use and asks whether a run is under way.
What no audit event tells of (clocks, sleeping, the global random numbers) is replaced for the time of a run.
"""

from __future__ import annotations

import os
import random
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

from skidway.broker.api.table import SERVED
from skidway.wire.apis import FACTS

FORBIDDEN_EVENTS = (
    "open",
    "socket.",
    "subprocess.",
    "os.listdir",
    "os.scandir",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.system",
    "os.fork",
    "time.sleep",
)


class Escaped(BaseException):
    """Something in the simulation reached for the real world."""


class _State:
    inside = False
    installed = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _State.inside and event.startswith(FORBIDDEN_EVENTS) and not _is_code(arguments):
        raise Escaped(f"{event} {arguments!r} inside a simulation")


def _is_code(arguments: tuple[Any, ...]) -> bool:
    """Python may load what it runs."""
    return bool(arguments) and isinstance(arguments[0], str) and arguments[0].endswith((".py", ".pyc", ".so"))


def _refuse(name: str) -> Any:
    def refused(*arguments: Any, **options: Any) -> Any:
        raise Escaped(f"{name} was called inside a simulation")

    return refused


_PATCHED = [
    (time, ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep")),
    (random, ("random", "randrange", "randint", "choice", "shuffle", "getrandbits")),
    (os, ("urandom",)),
    (uuid, ("uuid1", "uuid4")),
]


def _prepare() -> None:
    """Whatever is imported on first use is imported before: importing reads files."""
    for facts in FACTS:
        import_module(f"skidway.wire.schema.{facts.module}")
    for served in SERVED.values():
        served.load()
    "".encode("utf-16-be")
    if not _State.installed:
        _State.installed = True
        sys.addaudithook(_audit)


@contextmanager
def forbidden() -> Iterator[None]:
    if _State.inside:
        yield
        return
    _prepare()
    patches = [patch.object(module, name, _refuse(f"{module.__name__}.{name}")) for module, names in _PATCHED
               for name in names]  # fmt: skip
    for each in patches:
        each.start()
    _State.inside = True
    try:
        yield
    finally:
        _State.inside = False
        for each in patches:
            each.stop()
