"""Python source under construction: lines, indentation, fresh names and bound constants."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from skidway.wire.message import Field, Message

STEP_ELEMENTS = 256
"""Array elements between two yields of a codec that works in steps: a fraction of a millisecond."""


class Source:
    def __init__(self, **constants: Any) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0
        self._constants: dict[str, Any] = dict(constants)

    def line(self, text: str) -> None:
        self._lines.append(" " * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def count_step(self) -> None:
        """At the end of an element: give the caller a chance to do something else."""
        self.line("step += 1")
        self.line(f"if step >= {STEP_ELEMENTS}: step = 0; yield")

    def fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def bind(self, prefix: str, value: Any) -> str:
        """A name under which the source sees this object."""
        for name, known in self._constants.items():
            if known is value:
                return name
        name = self.fresh(prefix.upper())
        self._constants[name] = value
        return name

    def struct_method(self, codes: str, method: str) -> str:
        name = f"{method}_{codes.replace('?', 'o')}"
        if name not in self._constants:
            self._constants[name] = getattr(Struct(">" + codes), method)
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def function(self, name: str, filename: str) -> Callable[..., Any]:
        namespace = dict(self._constants)
        exec(compile(self.text(), filename, "exec"), namespace)
        function: Callable[..., Any] = namespace[name]
        return function


class Layout:
    """Which fields of a struct are where in one version."""

    __slots__ = ("absent", "plain", "tagged")

    def __init__(self, cls: type[Message], version: int) -> None:
        self.plain: list[Field] = []
        self.tagged: list[Field] = []
        self.absent: list[Field] = []
        for field in cls.__fields__:
            if version not in field.versions:
                self.absent.append(field)
            elif field.tag is not None:
                self.tagged.append(field)
            else:
                self.plain.append(field)
        self.tagged.sort(key=lambda field: field.tag or 0)
