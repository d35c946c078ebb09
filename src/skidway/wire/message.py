"""The language in which `wire/schema/` describes messages.

A message is a class whose body lists its fields in wire order:

    class FetchPartition(Message):
        partition: int = int32("0+")
        current_leader_epoch: int = int32("9+", default=-1)

    class FetchRequest(Message, key=1, versions="4-18", flexible="12+"):
        topics: list[FetchTopic] = array(FetchTopic, "0+")

Every field is optional in the constructor, by keyword or by position. A default that is a list is fresh for each
instance; a default that is a struct is one shared instance that refuses to be changed.
Version ranges are written "3", "3-5" or "3+"; `nullable` is one too. A field with a `tag` is tagged in all versions.
"""

from typing import Any, ClassVar, NamedTuple, Self, cast, dataclass_transform

import msgspec

from skidway.ports import Buffer, FileSlice

Records = Buffer | FileSlice

VERSION_MAX = 2**15 - 1
UUID_BYTES = 16
ZERO_UUID = bytes(UUID_BYTES)


class VersionRange(NamedTuple):
    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str) -> Self:
        first, dash, last = text.partition("-")
        if dash:
            return cls(int(first), int(last))
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_MAX)
        return cls(int(text), int(text))


NEVER = VersionRange(1, 0)


def _range(text: str | None) -> VersionRange:
    return NEVER if text is None else VersionRange.parse(text)


class Field(msgspec.Struct):
    """`kind` is a primitive's name, "struct" or "array"; an array's elements are described by `element`/`struct`."""

    kind: str
    versions: VersionRange
    default: Any
    nullable: VersionRange = NEVER
    tag: int | None = None
    element: str = ""
    struct: "type[Message] | None" = None
    name: str = ""


def _field(
    kind: str,
    versions: str,
    default: Any,
    nullable: str | None = None,
    tag: int | None = None,
    element: str = "",
    struct: "type[Message] | None" = None,
) -> Any:
    # The return type is Any because the class body declares the type a *value* of the field has.
    return Field(kind, _range(versions), default, _range(nullable), tag, element, struct)


def boolean(versions: str, *, default: bool = False, tag: int | None = None) -> Any:
    return _field("bool", versions, default, tag=tag)


def int8(versions: str, *, default: int = 0, tag: int | None = None) -> Any:
    return _field("int8", versions, default, tag=tag)


def int16(versions: str, *, default: int = 0, tag: int | None = None) -> Any:
    return _field("int16", versions, default, tag=tag)


def uint16(versions: str, *, default: int = 0, tag: int | None = None) -> Any:
    return _field("uint16", versions, default, tag=tag)


def int32(versions: str, *, default: int = 0, tag: int | None = None) -> Any:
    return _field("int32", versions, default, tag=tag)


def int64(versions: str, *, default: int = 0, tag: int | None = None) -> Any:
    return _field("int64", versions, default, tag=tag)


def float64(versions: str, *, default: float = 0.0, tag: int | None = None) -> Any:
    return _field("float64", versions, default, tag=tag)


def uuid(versions: str, *, tag: int | None = None) -> Any:
    return _field("uuid", versions, ZERO_UUID, tag=tag)


def string(
    versions: str,
    *,
    default: str | None = "",
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    return _field("string", versions, default, nullable, tag)


def blob(
    versions: str,
    *,
    default: bytes | None = b"",
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    return _field("bytes", versions, default, nullable, tag)


def batches(versions: str, *, default: bytes | None = b"", nullable: str | None = None) -> Any:
    """The protocol's type "records": whole record batches, which the wire layer does not look into."""
    return _field("records", versions, default, nullable)


_EMPTY: tuple[()] = ()


def array(
    of: "str | type[Message]",
    versions: str,
    *,
    default: tuple[()] | None = _EMPTY,
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    if isinstance(of, str):
        return _field("array", versions, default, nullable, tag, element=of)
    return _field("array", versions, default, nullable, tag, element="struct", struct=of)


_FRESH = object()


def nested(
    of: "type[Message]",
    versions: str,
    *,
    default: Any = _FRESH,
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    initial = of.__unchanging__() if default is _FRESH else default
    return _field("struct", versions, initial, nullable, tag, struct=of)


class MessageType(type):
    """Turns the fields of a class body into slots."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int | None = None,
        versions: str | None = None,
        flexible: str | None = None,
    ) -> "MessageType":
        fields = {attribute: value for attribute, value in namespace.items() if isinstance(value, Field)}
        body = {attribute: value for attribute, value in namespace.items() if attribute not in fields}
        for attribute, field in fields.items():
            field.name = attribute
        body["__slots__"] = body["__match_args__"] = tuple(fields)
        body.setdefault("__fields__", tuple(fields.values()))
        body.setdefault("__key__", key)
        body.setdefault("__versions__", _range(versions))
        body.setdefault("__flexible__", _range(flexible))
        return super().__new__(mcs, name, bases, body)


def _write_constructor(cls: "type[Message]") -> Any:
    namespace: dict[str, Any] = {"EMPTY": _EMPTY}
    parameters, lines = [], []
    for field in cls.__fields__:
        namespace[f"default_{field.name}"] = field.default
        parameters.append(f", {field.name}=default_{field.name}")
        fresh = f"[] if {field.name} is EMPTY else " if field.default is _EMPTY else ""
        lines.append(f"    self.{field.name} = {fresh}{field.name}\n")
    exec(f"def __init__(self{''.join(parameters)}):\n{''.join(lines) or '    pass'}", namespace)
    return namespace["__init__"]


@dataclass_transform(eq_default=True)
class Message(metaclass=MessageType):
    """Base of every request, response, record and struct."""

    __fields__: ClassVar[tuple[Field, ...]] = ()
    __key__: ClassVar[int | None] = None
    __versions__: ClassVar[VersionRange] = NEVER
    __flexible__: ClassVar[VersionRange] = NEVER

    def __init__(self, *values: Any, **named: Any) -> None:
        # Written on the first instance, not at import: a broker starts without the constructors it never calls.
        cls = type(self)
        constructor = _write_constructor(cls)
        cls.__init__ = constructor  # type: ignore[method-assign]
        constructor(self, *values, **named)

    @classmethod
    def __unchanging__(cls) -> Self:
        """An instance with every default that refuses assignment, to stand as the default of a struct field."""
        body = {"__setattr__": _refuse, "__fields__": cls.__fields__}
        frozen = cast(type[Self], MessageType(cls.__name__, (cls,), body))
        instance = object.__new__(frozen)
        for field in cls.__fields__:
            object.__setattr__(instance, field.name, [] if field.default is _EMPTY else field.default)
        return instance

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message) or self.__fields__ is not other.__fields__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.__fields__)

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.__fields__)
        return f"{type(self).__name__}({values})"


def _refuse(instance: Message, attribute: str, value: Any) -> None:
    raise AttributeError(f"{type(instance).__name__} is a shared default: assign a new one instead of changing it")
