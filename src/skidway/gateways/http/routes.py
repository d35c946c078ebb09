"""Which handler answers a request, by its method and path.

A template such as `/v1/topics/{topic}/records` matches paths of as many segments; a name in braces takes any segment.
Everything about a route is in its row, and the description of the API derives from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from skidway.gateways.http.bounds import BODY_BYTES_MAX
from skidway.gateways.http.head import Head
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.replies import JSON, Reply, problem_reply
from skidway.runtime.distribution import Distribution
from skidway.steps import Steps

Handle = Callable[[Any], Reply | Steps[Reply] | Steps[Reply | None] | None]
"""Gets an `HttpCall`. Returns the reply, or None: then it keeps the call and replies later. Raises `Problem`. One whose
work grows with its request is a generator."""

SAFE = frozenset(("GET", "HEAD"))
"""Methods that change nothing: such requests of one connection may be worked on side by side."""
FOUND_MAX = 1_000


class Parameter(msgspec.Struct, frozen=True):
    """One of the query, or a header."""

    name: str
    about: str
    type: Any = str
    default: str | None = None


class RefusalForm(NamedTuple):
    """How a route says no."""

    reply: Callable[[Problem], Reply]
    type: Any
    """Of the body. None: that of a problem."""


PROBLEMS = RefusalForm(problem_reply, None)


class BodyForm(NamedTuple):
    """What a request may bring."""

    type: Any
    """None: nothing."""
    content_types: Sequence[bytes]
    bytes_max: int


class Route:
    """One row. What is about documentation is read by `openapi` alone."""

    __slots__ = (
        "about",
        "answer",
        "answers",
        "body",
        "content_type",
        "creates",
        "early",
        "handle",
        "headers",
        "method",
        "packs",
        "parameters",
        "problems",
        "refusal",
        "segments",
        "streams",
        "switches",
        "takes",
        "template",
        "times",
    )

    def __init__(
        self,
        method: str,
        template: str,
        handle: Handle,
        about: str,
        *,
        answer: Any = None,
        content_type: bytes = JSON,
        body: Any = None,
        body_types: Sequence[bytes] = (JSON,),
        parameters: Sequence[Parameter] = (),
        headers: Sequence[Parameter] = (),
        problems: Sequence[int] = (),
        refusal: RefusalForm = PROBLEMS,
        body_bytes_max: int = BODY_BYTES_MAX,
        early: bool = False,
        packs: bool = False,
        streams: bool = False,
        switches: bool = False,
        creates: bool = False,
        takes: bool = False,
    ) -> None:
        """`early` is served while the node starts. `packs`: its answers are large text, worth compressing. `streams`:
        an answer has no end of its own. `switches`: another protocol follows. `creates`: it may answer 201. `takes`:
        what it answers is taken from others. `refusal`: how it says no."""
        self.method = method
        self.template = template
        self.segments = template.split("/")[1:]
        self.handle = handle
        self.about = about
        self.answer = answer
        self.content_type = content_type
        self.body = BodyForm(body, body_types, body_bytes_max)
        self.parameters = parameters
        self.headers = headers
        self.problems = problems
        self.refusal = refusal
        self.early = early
        self.packs = packs
        self.streams = streams
        self.switches = switches
        self.creates = creates
        self.takes = takes
        self.answers: dict[int, int] = {}
        """How often each status was answered, for metrics."""
        self.times = Distribution()
        """From a whole request to its answer."""

    @property
    def names(self) -> list[str]:
        return [segment[1:-1] for segment in self.segments if segment.startswith("{")]

    def match(self, path: list[str]) -> tuple[str, ...] | None:
        """What the names stand for."""
        if len(path) != len(self.segments):
            return None
        found: list[str] = []
        for given, wanted in zip(path, self.segments, strict=True):
            if wanted.startswith("{"):
                found.append(given)
            elif given != wanted:
                return None
        return tuple(found)


Found = tuple[dict[str, Route], tuple[str, ...]]
"""The routes of a path by method, and what the names in it stand for."""


class Routes:
    def __init__(self, rows: Sequence[Route]) -> None:
        self.rows = rows
        self._found: dict[bytes, Found] = {}

    def find(self, head: Head) -> tuple[Route, tuple[str, ...]]:
        """Raises Problem."""
        path = head.target.partition(b"?")[0]
        found = self._found.get(path)
        if found is None:
            found = self._search(head)
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            self._found[path] = found
        by_method, values = found
        route = by_method.get("GET" if head.method == "HEAD" else head.method)
        if route is None:
            allowed = ", ".join(by_method)
            headers = f"allow: {allowed}\r\n".encode()
            raise Problem(405, "bad_method", f"{head.method} is not possible here, but {allowed}", headers=headers)
        return route, values

    def knows(self, head: Head) -> bool:
        """Whether any method has a route at the path."""
        if head.target.partition(b"?")[0] in self._found:
            return True
        try:
            path = head.path()
        except Problem:
            return False
        return any(route.match(path) is not None for route in self.rows)

    def _search(self, head: Head) -> Found:
        path = head.path()
        by_method: dict[str, Route] = {}
        values: tuple[str, ...] = ()
        for route in self.rows:
            if (matched := route.match(path)) is not None:
                by_method[route.method] = route
                values = matched
        if not by_method:
            raise Problem(404, "no_such_path", "there is nothing at this path; /openapi.json lists what there is")
        return by_method, values
