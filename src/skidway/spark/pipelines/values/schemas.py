"""The fields of a schema as Spark's SQL writes it (`user string, at struct<city: string>`), read without Spark.

Spark's own parser is in its JVM, which takes seconds to start; what an option says about fields is checked before. Only
names, nesting and the words of types are read: whether they are types is for Spark to say.
"""

import re
from dataclasses import dataclass, field

from skidway.spark.pipelines.options import BadPipeline

TOKEN = re.compile(r"\s+|`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[<>(),:]|[^\s`'\"<>(),:]+")
LISTS = {"array": 1, "map": 2}
DEPTH_MAX = 100


@dataclass(slots=True)
class Kind:
    """Of a field. A struct has fields, an array or a map `inner` ones: the element, or key and value."""

    name: str
    fields: dict[str, "Kind"] = field(default_factory=dict)
    inner: list["Kind"] = field(default_factory=list)

    @property
    def of_elements(self) -> "Kind":
        """Of what is in it, through all arrays."""
        return self.inner[0].of_elements if self.name == "array" else self


def fields_of(schema: str) -> Kind:
    """The struct that the schema describes; BadPipeline if it describes none."""
    tokens = _Tokens(schema)
    fields = tokens.fields(end="", depth=0)
    return Kind("struct", fields)


class _Tokens:
    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._tokens: list[str] = []
        place = 0
        while place < len(schema):
            match = TOKEN.match(schema, place)
            if match is None:
                raise self._error(schema[place:])
            place = match.end()
            if not match[0].isspace():
                self._tokens.append(match[0])
        self._tokens.reverse()

    def fields(self, end: str, depth: int) -> dict[str, Kind]:
        """NAME [:] TYPE and what is said about it, with commas between, up to the end."""
        fields: dict[str, Kind] = {}
        while True:
            name = self._take()
            if not name or name in "<>(),:":
                raise self._error(name)
            if self._next == ":":
                self._take()
            fields[name[1:-1].replace("``", "`") if name.startswith("`") else name] = self._kind(depth)
            self._skip_remarks()
            after = self._take()
            if after == end:
                return fields
            if after != ",":
                raise self._error(after)

    def _kind(self, depth: int) -> Kind:
        if depth > DEPTH_MAX:
            raise self._error("more than 100 levels")
        word = self._take()
        if not word or word in "<>(),:" or word[0] in "`'\"":
            raise self._error(word)
        name = word.lower()
        if name == "struct" and self._next == "<":
            self._take()
            if self._next == ">":
                self._take()
                return Kind(name)
            return Kind(name, self.fields(">", depth + 1))
        if name in LISTS and self._next == "<":
            inner = []
            for n in range(LISTS[name]):
                self._expect(",<"[n == 0])
                inner.append(self._kind(depth + 1))
            self._expect(">")
            return Kind(name, inner=inner)
        self._skip_parentheses()
        return Kind(name)

    def _skip_remarks(self) -> None:
        """NOT NULL, COMMENT, the rest of an interval: up to the comma or the end."""
        while self._next not in ("", ",", "<", ">", ")", ":"):
            self._skip_parentheses() if self._next == "(" else self._take()

    def _skip_parentheses(self) -> None:
        if self._next != "(":
            return
        while (token := self._take()) != ")":
            if not token:
                raise self._error("")

    @property
    def _next(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def _take(self) -> str:
        return self._tokens.pop() if self._tokens else ""

    def _expect(self, token: str) -> None:
        taken = self._take()
        if taken != token:
            raise self._error(taken)

    def _error(self, at: str) -> BadPipeline:
        where = f"at {at[:40]!r}" if at else "at its end"
        return BadPipeline(f"the schema {self._schema!r} cannot be read {where}; write NAME TYPE, NAME TYPE")
