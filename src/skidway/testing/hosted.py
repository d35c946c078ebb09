"""The process behind `skidway.testing.Broker`: the ordinary broker, tied to the life of the test that started it.

The test holds the other end of this process's standard input. When the test ends, even by SIGKILL, the pipe closes and
the broker goes down with it. A pipe works on every system and from every thread, which PR_SET_PDEATHSIG does not:
that one fires when the *thread* that started the process ends.
"""

import os
import signal
import sys
import threading

from skidway.server import flags


def _die_with_parent(descriptor: int) -> None:
    while os.read(descriptor, 1024):
        pass
    # Nobody is left to look at the data: no reason to be graceful.
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    # A descriptor of its own, so that nothing that reads or closes standard input can take it away.
    descriptor = os.dup(sys.stdin.fileno())
    threading.Thread(target=_die_with_parent, args=(descriptor,), daemon=True, name="parent-watch").start()
    return flags.main(program="skidway.testing")


if __name__ == "__main__":
    sys.exit(main())
