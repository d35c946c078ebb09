"""Ctrl-C and SIGTERM that wait until what belongs together is done.

Inside of `Interrupts` both raise KeyboardInterrupt, at once or at the end of `held`. One that comes again while the
first waits does not wait: what is held may never end, such as writing into a pipe that nobody reads.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context. In threads other than the main one it changes nothing: Python handles signals in that one."""

    def __init__(self) -> None:
        self._holds = False
        self._waiting = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # Who started the program may want it to ignore one of them, as nohup does.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    @contextmanager
    def held(self) -> Iterator[None]:
        self._holds = True
        try:
            yield
        finally:
            self._holds = False
        if self._waiting:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._holds or self._waiting:
            raise KeyboardInterrupt
        self._waiting = True
