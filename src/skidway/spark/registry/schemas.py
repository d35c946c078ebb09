"""A schema as a registry has it, what it refers to, and what may be wrong with it. No Spark in it.

Bounded: the size of a schema, how many others it refers to, how deep it goes and how many fields it has.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
KINDS = (AVRO, PROTOBUF, JSON)
SCHEMA_BYTES_MAX = 1024 * 1024
REFERENCES_MAX = 100
DEPTH_MAX = 64
FIELDS_MAX = 10_000
LATEST = "latest"


class RegistryFailed(RuntimeError):
    """The registry cannot be asked, or answers what cannot be understood. Asking again may help."""


class UnknownSchema(LookupError):
    """The registry has no such schema, subject or version."""


class BadSchema(ValueError):
    """No columns can be made by this schema; the text says what to do."""


class Unreadable(ValueError):
    """No value that was written with this schema can be read into the columns; the text is the reason."""


class Undecodable(ValueError):
    """This value cannot be decoded; the text is the reason. It has nothing in it that the value could choose."""


@dataclass(slots=True, frozen=True)
class Schema:
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """All that it needs, directly or through others: by which name, and the text. What others need comes first."""


class Pointer(msgspec.Struct, frozen=True):
    """A reference as the registry writes it."""

    name: str
    subject: str
    version: int


class Answer(msgspec.Struct, frozen=True):
    """What a registry answers about a schema; what else it says is of no use here."""

    schema: str
    kind: str | None = msgspec.field(name="schemaType", default=None)
    """Without one it is Avro."""
    references: list[Pointer] | None = None


class Registry(Protocol):
    def by_id(self, schema_id: int) -> Answer: ...

    def by_guid(self, guid: str) -> Answer: ...

    def by_version(self, subject: str, version: str) -> Answer: ...


def parse_answer(text: bytes) -> Answer:
    try:
        return msgspec.json.decode(text, type=Answer)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RegistryFailed(f"the registry's answer about a schema cannot be understood: {error}") from None


def resolve(registry: Registry, answer: Answer) -> Schema:
    """With all that it refers to."""
    kind = answer.kind or AVRO
    if kind not in KINDS:
        raise Unreadable("its schema is neither Avro nor Protobuf nor JSON Schema")
    needed: dict[tuple[str, str], None] = {}
    _add_references(registry, answer, needed, {}, ())
    return Schema(kind, answer.schema, tuple(needed))


Place = tuple[str, int]


def _add_references(
    registry: Registry,
    answer: Answer,
    needed: dict[tuple[str, str], None],
    known: dict[Place, Answer],
    path: tuple[Place, ...],
) -> None:
    for one in answer.references or ():
        place = (one.subject, one.version)
        if place in path:
            raise Unreadable("its schema refers to itself through others")
        if place not in known:
            if len(known) >= REFERENCES_MAX:
                raise Unreadable(f"its schema refers to more than {REFERENCES_MAX} others")
            known[place] = registry.by_version(one.subject, str(one.version))
            _add_references(registry, known[place], needed, known, (*path, place))
        needed[one.name, known[place].schema] = None


def parse_json(text: str, what: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadSchema(f"{what} is not JSON: {error}") from None


def check_names(names: list[str], path: str) -> None:
    """Spark takes names that differ in case for the same."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other is not name and other.lower() == name.lower():
            raise BadSchema(f"{path or 'the value'} has fields {other} and {name}, which are one to Spark; rename one")
    if not names:
        raise BadSchema(f"{path or 'the value'} has no fields; a table cannot have that: give it one, or leave it out")
