"""Running a page of the guide: its blocks in their order, and what they print held against what the page shows.

A `python` block runs in the page's own namespace; a `text` block after it is what it prints. A `console` block has
commands behind `$ `, each followed by what it prints. `…` stands for anything. A command without output shown is run
and may print what it likes. A block below a comment (`<!-- not run: why -->`) is left out. The page's address, folder
and data directory are replaced by those of the test.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

BLOCK = re.compile(r"(?<!-->\n)^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS, FOLDER = "127.0.0.1:9092", "/tmp/skidway-guide"
DATA = f"{FOLDER}/data"
NOT_RUN = ("pip install", "skidway serve", "spark-submit", "spark-pipelines", "export ", "cd ", "make ", "venv-pack")
"""Installs, or needs what a test machine has not: a terminal of its own, a cluster, minutes."""
COMMAND_TIMEOUT_S = 300


class Block(NamedTuple):
    language: str
    text: str
    shown: str | None


@dataclass(slots=True)
class Page:
    text: str
    bootstrap: str
    folder: Path
    data_dir: Path
    run_pipeline: Callable[[list[str]], int]
    """What `skidway pipeline run` is, with these words behind it."""
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "guide"})

    def run(self) -> int:
        """All blocks; answers how many."""
        blocks = list(self._blocks())
        for block in blocks:
            if block.language == "python":
                self._compare(block.text, block.shown, self._run_python(block.text))
            else:
                for command, shown in commands(block.text):
                    if not command.startswith(NOT_RUN):
                        self._compare(command, shown, self._run_command(command))
        return len(blocks)

    def _blocks(self) -> Iterator[Block]:
        text = self.text.replace(ADDRESS, self.bootstrap).replace(DATA, str(self.data_dir))
        found = [(match[1], match[2]) for match in BLOCK.finditer(text.replace(FOLDER, str(self.folder)))]
        for number, (language, body) in enumerate(found):
            following = found[number + 1] if number + 1 < len(found) else ("", "")
            if language == "python":
                yield Block(language, body, following[1] if following[0] == "text" else None)
            elif language == "console":
                yield Block(language, body, None)

    def _run_python(self, code: str) -> str:
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(code, "guide", "exec"), self.namespace)
        return printed.getvalue()

    def _run_command(self, command: str) -> str:
        words = shlex.split(command)
        if words[:3] == ["skidway", "pipeline", "run"]:
            printed = StringIO()
            with redirect_stdout(printed):
                code = self.run_pipeline(words[1:])
            assert code == 0, f"{command}: exit code {code}"
            return printed.getvalue()
        program = f'skidway() {{ "{sys.executable}" -m skidway "$@"; }}\nset -o pipefail\n'
        done = subprocess.run(
            ["bash", "-c", program + command],
            cwd=self.folder,
            env={**os.environ, "SKIDWAY_BOOTSTRAP": self.bootstrap, "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout + done.stderr

    def _compare(self, what: str, shown: str | None, printed: str) -> None:
        if shown is not None:
            assert matches(shown, printed), f"{what}\nshown:\n{shown}\nprinted:\n{printed}"


def commands(block: str) -> Iterator[tuple[str, str | None]]:
    """Each command of a console block with what is shown below it, if anything."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        if "<<'END'" in command:
            given, _, shown = shown.partition("\nEND\n")
            command = f"{command}\n{given}\nEND\n"
        yield command.split("  # ")[0].strip(), shown or None


def matches(shown: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(piece) for piece in _tidied(shown).split("…"))
    return re.fullmatch(pattern, _tidied(printed), re.DOTALL) is not None


def _tidied(text: str) -> str:
    """Runs of blanks count as one: columns are as wide as what is in them."""
    lines = (re.sub(r" +", " ", line.rstrip()) for line in text.strip().splitlines())
    return "\n".join(lines)
