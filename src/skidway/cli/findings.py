"""What `skidway doctor` found: one finding per check, with its state and what to do about it.

The worst state of all findings is the exit code: 0 ok, 1 warn, 2 fail.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

import typer

from skidway.cli.output import harmless


class State(IntEnum):
    OK = 0
    WARN = 1
    FAIL = 2


COLOURS = {State.OK: typer.colors.GREEN, State.WARN: typer.colors.YELLOW, State.FAIL: typer.colors.RED}


@dataclass(slots=True)
class Finding:
    check: str
    state: State
    text: str
    todo: str | None = None

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "state": self.state.name.lower()}


@dataclass(slots=True)
class Findings:
    found: list[Finding] = field(default_factory=list)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found)

    @property
    def worst(self) -> State:
        return max((finding.state for finding in self.found), default=State.OK)

    def ok(self, check: str, text: str) -> None:
        self.found.append(Finding(check, State.OK, text))

    def warn(self, check: str, text: str, todo: str) -> None:
        self.found.append(Finding(check, State.WARN, text, todo))

    def fail(self, check: str, text: str, todo: str) -> None:
        self.found.append(Finding(check, State.FAIL, text, todo))

    def document(self) -> dict[str, Any]:
        return {
            "status": self.worst.name.lower(),
            "exit_code": int(self.worst),
            "checks": [finding.document() for finding in self.found],
        }

    def show(self) -> None:
        width = max((len(finding.check) for finding in self.found), default=0)
        for finding in self.found:
            state = typer.style(f"{finding.state.name.lower():<4}", fg=COLOURS[finding.state], bold=True)
            typer.echo(f"{state}  {finding.check:<{width}}  {harmless(finding.text)}")
            if finding.todo is not None:
                typer.echo(f"      {'':<{width}}  to do: {harmless(finding.todo)}")
