"""The console blocks of a page, run as a person would type them: one after the other, in one shell.

    for typed in Story(Path("README.md").read_text(), folder).run():
        print(typed.command, typed.printed)

A line that begins with `$ ` is a command, what follows it is what it prints (`…` stands for anything; nothing shown
means that anything may be printed). `skidway serve` and `skidway cluster start` run beside the shell until the page
starts another one or ends; they get free ports, and 9092, 9093, 9094 and 8082 (HTTP, if the
page names it) in the page mean those. Comments steer what a
reader does by hand:

    <!-- not run: why -->     the next block is not run
    <!-- output varies -->    the next block is run, and what it prints is not compared
    <!-- run: command -->     a command that is not shown
    <!-- stop the broker -->  as Ctrl-C does
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from skidway.testing.free_ports import free_ports

PIECE = re.compile(
    r"^```console\n(?P<block>.*?)^```$|^```\w*\n.*?^```$|^<!-- (?P<word>not run|run): (?P<rest>.*?) -->$"
    r"|^<!-- (?P<sign>stop the broker|output varies) -->$",
    re.MULTILINE | re.DOTALL,
)
SERVERS = ("skidway serve", "skidway cluster start")
HTTP_PORT = 8082
PORTS = (9092, 9093, 9094, HTTP_PORT)
FAILURES = ("error:", "degraded", "unavailable", "skidway:")
"""What is shown for a command that ends with another exit code than 0 begins with one of these."""
START_TIMEOUT_S = 60.0
SHELL_TIMEOUT_S = 240.0


class Typed(NamedTuple):
    command: str
    shown: str | None
    printed: str
    code: int


class Step(NamedTuple):
    command: str
    shown: str | None
    hidden: bool = False


STOP = Step("", None)


class NotRun(NamedTuple):
    command: str
    why: str


def steps(page: str) -> Iterator[Step | NotRun]:
    """All commands of a page, also those that are not run."""
    why, varies = None, False
    for piece in PIECE.finditer(page):
        if piece["sign"] == "stop the broker":
            yield STOP
        elif piece["sign"] == "output varies":
            varies = True
        elif piece["word"] == "run":
            yield Step(piece["rest"], None, hidden=True)
        elif piece["word"] == "not run":
            why = piece["rest"]
        elif piece["block"] is not None:
            for step in commands(piece["block"]):
                shown = None if varies else step.shown
                yield NotRun(step.command, why) if why else Step(step.command, shown)
            why, varies = None, False


def commands(block: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = f"{command}\n{more}"
        if "<<'END'" in command:
            given, _, shown = shown.partition("\nEND\n")
            command = f"{command}\n{given}\nEND"
        yield Step(re.sub(r"\s+# .*$", "", command), shown or None)


@dataclass(slots=True)
class Story:
    page: str
    folder: Path
    _server: subprocess.Popen[bytes] | None = None
    _ports: dict[int, int] = field(default_factory=dict)

    def run(self) -> list[Typed]:
        """Everything the page has run, in order; ends whatever it started."""
        typed: list[Typed] = []
        waiting: list[Step] = []
        try:
            for step in steps(self.page):
                if isinstance(step, NotRun):
                    continue
                if step is STOP or step.command.startswith(SERVERS):
                    typed += self._type(waiting)
                    waiting = []
                    self._stop()
                    if step is not STOP:
                        typed.append(self._serve(step))
                else:
                    waiting.append(step)
            typed += self._type(waiting)
        finally:
            self._stop()
        return typed

    def _serve(self, step: Step) -> Typed:
        words = shlex.split(step.command)[1:]
        first = self._ports.get(PORTS[0]) or free_ports(len(PORTS))
        self._ports = {port: first + number for number, port in enumerate(PORTS)}
        if words[0] == "serve":
            ready = [self.folder / "story.ready"]
            if "--listen" in words:
                del words[words.index("--listen") : words.index("--listen") + 2]
            words += ["--ready-file", str(ready[0]), "--listen", f"127.0.0.1:{first}"]
            if str(HTTP_PORT) in self.page:
                words += ["--http", f"127.0.0.1:{self._ports[HTTP_PORT]}"]
        else:
            directory = self.folder / words[words.index("--data-dir") + 1]
            ready = [directory / f"node-{number}.ready" for number in (1, 2, 3)]
            if "--base-port" in words:
                del words[words.index("--base-port") : words.index("--base-port") + 2]
            words += ["--base-port", str(first)]
        for file in ready:
            file.unlink(missing_ok=True)
        with open(self.folder / "story.log", "ab") as log:
            before = log.tell()
            self._server = subprocess.Popen(
                [sys.executable, "-m", "skidway", *words], cwd=self.folder, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        said = ""
        while not all(file.exists() for file in ready) or (words[0] == "serve" and " ready on " not in said):
            said = (self.folder / "story.log").read_text(errors="replace")[before:]
            assert self._server.poll() is None, f"{step.command} ended: {said[-2000:]}"
            assert time.monotonic() < deadline, f"{step.command} is not ready: {said[-2000:]}"
            time.sleep(0.05)
        lines = self._in_the_page((self.folder / "story.log").read_text(errors="replace")).splitlines()
        ready_lines = [line for line in lines if " ready on " in line]
        return Typed(step.command, step.shown, ready_lines[-1] if ready_lines else "", 0)

    def _in_the_page(self, printed: str) -> str:
        """With the page's ports."""
        for port, own in self._ports.items():
            printed = printed.replace(f"127.0.0.1:{own}", f"127.0.0.1:{port}")
        return printed

    def _stop(self) -> None:
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGTERM)
            try:
                self._server.wait(60)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        self._server = None

    def _type(self, shell_steps: list[Step]) -> list[Typed]:
        """In one shell, so that variables and jobs last."""
        if not shell_steps:
            return []
        mark = "\x1e"
        script = "".join(f"{step.command}\nprintf '\\n{mark}%s\\n' $?\n" for step in shell_steps)
        for port, own in self._ports.items():
            script = script.replace(f"127.0.0.1:{port}", f"127.0.0.1:{own}")
        ended = subprocess.run(
            ["bash", "-c", f"set -o pipefail\n{script}"],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SHELL_TIMEOUT_S,
        )
        printed = self._in_the_page(ended.stdout)
        parts = re.split(rf"\n?{mark}(\d+)\n", printed)
        assert len(parts) == 2 * len(shell_steps) + 1, printed
        return [
            Typed(step.command, step.shown, parts[2 * number], int(parts[2 * number + 1]))
            for number, step in enumerate(shell_steps)
            if not step.hidden or int(parts[2 * number + 1]) != 0
        ]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SKIDWAY_")}
        tools = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        bootstrap = {"SKIDWAY_BOOTSTRAP": f"127.0.0.1:{self._ports[PORTS[0]]}"} if self._ports else {}
        return {**kept, **bootstrap, "PATH": tools, "NO_COLOR": "1", "LC_ALL": "C.UTF-8", "COLUMNS": "200"}


def fits(typed: Typed) -> bool:
    """Whether a command did what the page shows. Order of lines does not count: partitions are read side by side."""
    may_fail = typed.shown is not None and typed.shown.startswith(FAILURES)
    if (typed.code != 0) != may_fail:
        return False
    if typed.shown is None:
        return True
    shown, printed = tidied(typed.shown), tidied(typed.printed)
    pattern = ".*".join(re.escape(piece) for piece in "\n".join(shown).split("…"))
    return re.fullmatch(pattern, "\n".join(printed), re.DOTALL) is not None or sorted(shown) == sorted(printed)


def tidied(text: str) -> list[str]:
    """Runs of blanks count as one: columns are as wide as what is in them."""
    return [re.sub(r" +", " ", line.rstrip()) for line in text.strip().splitlines()]
