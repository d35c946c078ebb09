"""Which message an API key means, and its codecs. Schemas are imported and compiled on first use."""

from importlib import import_module
from typing import Any, TypeVar

from skidway.ports import Buffer, FileSlice
from skidway.wire.apis import FACTS, ApiFacts
from skidway.wire.compile import Codec, Encoder
from skidway.wire.framing import joined
from skidway.wire.message import Message

M = TypeVar("M", bound=Message)

APIS: dict[int, str] = {facts.key: facts.name for facts in FACTS}
"""Key -> name of every API of the protocol, served by this broker or not."""


_CODECS: dict[type[Message], Codec[Any]] = {}


def codec(message: type[M]) -> Codec[M]:
    """The codec of any top-level message class, e.g. of a metadata record."""
    known = _CODECS.get(message)
    if known is None:
        known = _CODECS[message] = Codec(message)
    return known


_WRITERS: dict[tuple[type[Message], int], Encoder[Any]] = {}


def encoded(message: Message, version: int, before: bytes = b"") -> bytes:
    """A message that is no request or response, e.g. a record, behind what comes before it."""
    kind = type(message), version
    encode = _WRITERS.get(kind)
    if encode is None:
        encode = _WRITERS[kind] = codec(type(message)).encoder(version)
    parts: list[Buffer | FileSlice] = [before]
    encode(message, parts)
    return joined(parts)


class Api:
    __slots__ = ("_module", "_request", "_response", "flexible_from", "key", "name", "versions")

    def __init__(self, facts: ApiFacts) -> None:
        self.key = facts.key
        self.name = facts.name
        self.versions = (facts.version_min, facts.version_max)
        self.flexible_from = facts.flexible_from
        self._module = f"skidway.wire.schema.{facts.module}"
        self._request: Codec[Any] | None = None
        self._response: Codec[Any] | None = None

    @property
    def request(self) -> Codec[Any]:
        if self._request is None:
            self._request = codec(getattr(import_module(self._module), f"{self.name}Request"))
        return self._request

    @property
    def response(self) -> Codec[Any]:
        if self._response is None:
            self._response = codec(getattr(import_module(self._module), f"{self.name}Response"))
        return self._response

    def supports(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, v{self.versions[0]}-v{self.versions[1]})"


_APIS = {facts.key: Api(facts) for facts in FACTS}


def api(key: int) -> Api:
    """KeyError when the protocol has no such key."""
    return _APIS[key]
