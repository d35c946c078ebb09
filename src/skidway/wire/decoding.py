"""Description -> source of a decoder for one version.

The decoder is one function without calls for the common case: neighbouring fixed-size values, together with the first
byte of the length that follows them, are taken by one struct. `b` is the buffer, `p` the position, `end` its length.
Before anything is allocated, every length is compared with the bytes that remain and every count is taken from the
budget of elements.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import calcsize

from skidway.wire.message import Field, Message
from skidway.wire.primitives import (
    ARRAYS,
    FORMATS,
    MALFORMED,
    STRING_BYTES_MAX,
    TAGS_MAX,
    DecodeError,
    read_uuids,
    skip_tags,
    tag_header,
    uvarint_rest,
)
from skidway.wire.source import Layout, Source


def decoder_source(cls: type[Message], version: int, budget: int, *, stepwise: bool = False) -> Source:
    """`stepwise`: of a generator that yields after every STEP_ELEMENTS elements and returns what the function would.
    It puts the message into the list `held` when it begins: the caller has what was decoded before a refusal."""
    source = Source(
        new=object.__new__,
        rest=uvarint_rest,
        skip_tags=skip_tags,
        tag_header=tag_header,
        read_uuids=read_uuids,
        DecodeError=DecodeError,
        MALFORMED=MALFORMED,
        BUDGET=budget,
    )
    with source.block(f"def decode(b, p=0, budget=BUDGET{', held=None' if stepwise else ''}):"):
        with source.block("try:"):
            source.line("end = len(b)")
            source.line("view = memoryview(b)")
            if stepwise:
                source.line("step = 0")
            writer = _DecoderWriter(source, cls, version, stepwise)
            message = writer.struct(cls, "held" if stepwise else None)
            writer.flush()
            if stepwise:
                source.line("yield")
            source.line(f"return {message}, p")
        with source.block("except MALFORMED as error:"):
            source.line(f"raise DecodeError(f'{cls.__name__} v{version}: {{error}}') from error")
    return source


class _DecoderWriter:
    def __init__(self, source: Source, cls: type[Message], version: int, stepwise: bool) -> None:
        self._source = source
        self._stepwise = stepwise
        self._name = f"{cls.__name__} v{version}"
        self._version = version
        self._flexible = version in cls.__flexible__
        self._run: list[tuple[str, str]] = []

    # Fixed-size values wait in the run until something of another kind needs the position.

    def flush(self) -> None:
        if not self._run:
            return
        targets = [target for target, _ in self._run]
        codes = "".join(code for _, code in self._run)
        self._run = []
        if codes == "B":
            self._source.line(f"{targets[0]} = b[p]; p += 1")
            return
        unpack = self._source.struct_method(codes, "unpack_from")
        self._source.line(f"{', '.join(targets)}, = {unpack}(b, p); p += {calcsize('>' + codes)}")

    def _refuse(self, condition: str, what: str) -> None:
        self._source.line(f"if {condition}: raise DecodeError({f'{self._name}: {what}'!r})")

    def struct(self, cls: type[Message], into: str | None = None) -> str:
        """`into`: the list that gets it, before it has any value."""
        source = self._source
        layout = Layout(cls, self._version)
        value = source.fresh("x")
        source.line(f"{value} = new({source.bind('class', cls)})")
        if into is not None:
            source.line(f"{into}.append({value})")
        for field in layout.plain:
            self._value(field, f"{value}.{field.name}", field.kind, self._version in field.nullable)
        for field in layout.absent + layout.tagged:
            source.line(f"{value}.{field.name} = {self._default(field)}")
        if self._flexible:
            self._tags(value, layout.tagged)
        return value

    def _default(self, field: Field) -> str:
        if field.default == () and field.kind == "array":
            return "[]"
        if field.kind == "struct" and field.default is not None:
            return self._source.bind("default", field.default)
        return repr(field.default)

    def _tags(self, value: str, tagged: list[Field]) -> None:
        source = self._source
        count = source.fresh("n")
        self._run.append((count, "B"))
        self.flush()
        if not tagged:
            source.line(f"if {count}: p, budget = skip_tags(b, p, end, {count}, budget)")
            return
        with source.block(f"if {count}:"):
            source.line(f"if {count} > 127: {count}, p = rest(b, p, {count})")
            source.line(f"budget -= {count}")
            self._refuse(f"budget < 0 or {count} > {TAGS_MAX}", "too many tagged fields")
            with source.block(f"for _ in range({count}):"):
                tag, stop = source.fresh("tag"), source.fresh("stop")
                source.line(f"{tag}, p, {stop} = tag_header(b, p, end)")
                for number, field in enumerate(tagged):
                    with source.block(f"{'el' if number else ''}if {tag} == {field.tag}:"):
                        self._value(field, f"{value}.{field.name}", field.kind, self._version in field.nullable)
                        self.flush()
                        self._refuse(f"p != {stop}", f"{field.name} has another length than its tag says")
                source.line(f"else: p = {stop}")

    def _value(self, field: Field, target: str, kind: str, nullable: bool) -> None:
        if kind in FORMATS:
            self._run.append((target, FORMATS[kind]))
        elif kind == "string":
            self._string(field, target, nullable)
        elif kind in ("bytes", "records"):
            self._bytes(field, target, nullable)
        elif kind == "array":
            self._array(field, target, nullable)
        else:
            self._struct_field(field, target, nullable)

    def _length(self, code: str) -> str:
        """Read a length; afterwards the name returned holds it, with -1 for null."""
        size = self._source.fresh("n")
        self._run.append((size, "B" if self._flexible else code))
        self.flush()
        if self._flexible:
            self._source.line(f"if {size} > 127: {size}, p = rest(b, p, {size})")
            self._source.line(f"{size} -= 1")
        return size

    @contextmanager
    def _unless_null(self, field: Field, target: str, size: str, nullable: bool) -> Iterator[None]:
        """The lines written inside run for a value that is there."""
        if not nullable:
            self._refuse(f"{size} < 0", f"{field.name} is null")
            yield
            return
        self._source.line(f"if {size} < 0: {target} = None")
        with self._source.block("else:"):
            yield

    def _string(self, field: Field, target: str, nullable: bool) -> None:
        size = self._length("h")
        stop = self._source.fresh("q")
        with self._unless_null(field, target, size, nullable):
            self._source.line(f"{stop} = p + {size}")
            too_long = f" or {size} > {STRING_BYTES_MAX}" if self._flexible else ""
            self._refuse(f"{stop} > end{too_long}", f"{field.name} is too long")
            self._source.line(f"{target} = view[p:{stop}].tobytes().decode(); p = {stop}")

    def _bytes(self, field: Field, target: str, nullable: bool) -> None:
        size = self._length("i")
        stop = self._source.fresh("q")
        with self._unless_null(field, target, size, nullable):
            self._source.line(f"{stop} = p + {size}")
            self._refuse(f"{stop} > end", f"{field.name} is too long")
            self._source.line(f"{target} = view[p:{stop}]; p = {stop}")

    def _array(self, field: Field, target: str, nullable: bool) -> None:
        source = self._source
        size = self._length("i")
        with self._unless_null(field, target, size, nullable):
            source.line(f"budget -= {size}")
            least = self._least_bytes(field.element, field.struct)
            self._refuse(f"{size} * {least} > end - p or budget < 0", f"{field.name} has too many elements")
            if field.element == "uuid":
                source.line(f"{target} = read_uuids(b, p, {size}); p += {size} * {least}")
            elif field.element in FORMATS:
                structs = source.bind("many", ARRAYS[field.element])
                source.line(f"{target} = list({structs}[{size}].unpack_from(b, p)); p += {size} * {least}")
            else:
                self._elements(field, target, size)

    def _elements(self, field: Field, target: str, size: str) -> None:
        source = self._source
        items = source.fresh("items")
        source.line(f"{target} = {items} = []")
        with source.block(f"for _ in range({size}):"):
            if field.struct is not None:
                self.struct(field.struct, items)
                self.flush()
            else:
                item = source.fresh("s")
                self._value(field, item, field.element, nullable=False)
                self.flush()
                source.line(f"{items}.append({item})")
            if self._stepwise:
                source.count_step()

    def _struct_field(self, field: Field, target: str, nullable: bool) -> None:
        assert field.struct is not None
        if not nullable:
            # No flush: values of the nested struct may still wait in the run, as its own object is their target.
            self._source.line(f"{target} = {self.struct(field.struct)}")
            return
        present = self._source.fresh("n")
        self._run.append((present, "b"))
        self.flush()
        self._source.line(f"if {present} < 0: {target} = None")
        with self._source.block("else:"):
            value = self.struct(field.struct)
            self.flush()
            self._source.line(f"{target} = {value}")

    def _least_bytes(self, kind: str, struct: type[Message] | None) -> int:
        """The fewest bytes a value can take. Never 0: a count must be bounded by the bytes that remain."""
        if kind in FORMATS:
            return calcsize(">" + FORMATS[kind])
        if kind == "struct" and struct is not None:
            layout = Layout(struct, self._version)
            total = sum(self._least_field_bytes(field) for field in layout.plain)
            return max(1, total + self._flexible)
        if self._flexible:
            return 1
        return 2 if kind == "string" else 4

    def _least_field_bytes(self, field: Field) -> int:
        if field.kind == "struct" and self._version in field.nullable:
            return 1
        return self._least_bytes(field.kind, field.struct)
