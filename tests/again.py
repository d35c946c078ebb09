"""`.ci/run` when tests failed: what failed is run again, alone, once. Of ten thousand tests ten may; more is a failure.

The tests are of real processes on whatever machine there is, and a landing should not be lost to one that was starved
in a bad moment. A test that fails twice fails the landing. One that passes is flaky, which is a bug: its name is
printed last, where nobody overlooks it.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

AGAIN_MAX = 10


def noted(folder: Path) -> list[str] | None:
    """The tests that failed in all runs that wrote into `folder`; None if something else failed than tests."""
    files = sorted(folder.glob("*.txt"))
    lines = [file.read_text().splitlines() for file in files]
    if not files or any(not names for names in lines):
        return None
    return [name for names in lines for name in names]


def run_alone(tests: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not chaos", *tests]
    return subprocess.run(command, check=False).returncode == 0


def main(folder: Path) -> int:
    failed = noted(folder)
    if failed is None:
        print("again: no list of failed tests: something else went wrong, so nothing is run again", file=sys.stderr)
        return 1
    if len(failed) > AGAIN_MAX:
        print(f"again: {len(failed)} tests failed, more than {AGAIN_MAX}: nothing is run again", file=sys.stderr)
        return 1
    print(f"again: {len(failed)} failed, run once more alone: {', '.join(failed)}", flush=True)
    if not run_alone(failed):
        return 1
    for name in failed:
        print(f"FLAKY: {name} failed beside the others and passed alone. That is a bug; mend it.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
