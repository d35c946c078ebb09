"""Description -> source of an encoder for one version.

The encoder appends buffers to a list. Neighbouring fixed-size values, lengths of the non-flexible versions and empty
tag sections are packed by one struct; what is small and lies side by side is added up into one buffer, because every
buffer of the list costs again when the reply is framed. Bytes and records are appended as they are, never copied.

`errors` counts the error codes that are written, wherever in the message they are: here they cost a test each, and no
handler has to count.
"""

from struct import calcsize

from skidway.wire.message import Field, Message
from skidway.wire.primitives import ARRAYS, FORMATS, SHORT_UVARINTS, STRING_BYTES_MAX, encode_uvarint, write_uuids
from skidway.wire.source import Layout, Source

ERROR_CODE = "error_code"
# A zero byte inside a struct format.
_ZERO_BYTE = "x"


def encoder_source(cls: type[Message], version: int, *, stepwise: bool = False) -> Source:
    """`stepwise`: of a generator that yields after every STEP_ELEMENTS elements."""
    source = Source(SHORT=SHORT_UVARINTS, uvarint=encode_uvarint, write_uuids=write_uuids)
    with source.block("def encode(message, parts, errors=None):"):
        source.line("w = parts.append")
        if stepwise:
            source.line("step = 0")
        writer = _EncoderWriter(source, cls, version, stepwise)
        writer.struct("message", cls)
        writer.flush()
        if stepwise:
            source.line("yield")
    return source


class _EncoderWriter:
    def __init__(self, source: Source, cls: type[Message], version: int, stepwise: bool) -> None:
        self._source = source
        self._stepwise = stepwise
        self._version = version
        self._flexible = version in cls.__flexible__
        self._run: list[tuple[str, str]] = []
        self._chunk: list[str] = []
        self._sink = "w"

    # Fixed-size values wait in the run to be packed together; packed runs, lengths and strings wait in the chunk
    # to be written together. Both must be flushed before the flow of control forks.

    def flush(self) -> None:
        self._pack_run()
        if self._chunk:
            self._write(" + ".join(self._chunk))
            self._chunk = []

    def _pack_run(self) -> None:
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        values = ", ".join(value for _, value in self._run if value)
        self._run = []
        if values:
            self._chunk.append(f"{self._source.struct_method(codes, 'pack')}({values})")
        else:
            self._chunk.append(repr(bytes(len(codes))))

    def _write(self, expression: str) -> None:
        self._source.line(f"{self._sink}({expression})")

    def struct(self, value: str, cls: type[Message]) -> None:
        layout = Layout(cls, self._version)
        for field in layout.plain:
            if field.name == ERROR_CODE:
                code = f"{value}.{ERROR_CODE}"
                self._source.line(f"if {code} and errors is not None: errors[{code}] = errors.get({code}, 0) + 1")
            self._value(field, f"{value}.{field.name}", field.kind, self._version in field.nullable)
        if not self._flexible:
            return
        if layout.tagged:
            self._tags(value, layout.tagged)
        else:
            self._run.append((_ZERO_BYTE, ""))

    def _tags(self, value: str, tagged: list[Field]) -> None:
        source = self._source
        self.flush()
        tags = source.fresh("tags")
        source.line(f"{tags} = None")
        outer = self._sink
        for field in tagged:
            attribute = f"{value}.{field.name}"
            with source.block(f"if {self._differs(field, attribute)}:"):
                source.line(f"if {tags} is None: {tags} = []")
                if (fixed := FORMATS.get(field.kind)) is not None:
                    head = encode_uvarint(field.tag or 0) + encode_uvarint(calcsize(f">{fixed}"))
                    source.line(f"{tags}.append({head!r} + {source.struct_method(fixed, 'pack')}({attribute}))")
                    continue
                parts, self._sink = source.fresh("parts"), source.fresh("w")
                source.line(f"{parts} = []; {self._sink} = {parts}.append")
                self._value(field, attribute, field.kind, self._version in field.nullable)
                self.flush()
                source.line(f"{parts} = b''.join({parts})")
                head = encode_uvarint(field.tag or 0)
                source.line(f"{tags}.append({head!r} + uvarint(len({parts})) + {parts})")
        self._sink = outer
        source.line(f"if {tags} is None: {outer}(b'\\0')")
        assert len(tagged) < len(SHORT_UVARINTS), "a struct has a handful of tags"
        source.line(f"else: {outer}(SHORT[len({tags})] + b''.join({tags}))")

    def _differs(self, field: Field, attribute: str) -> str:
        """Tagged fields travel only when they differ from their default."""
        if field.default is None:
            return f"{attribute} is not None"
        if field.kind == "array":
            return f"{attribute} is None or {attribute}" if self._version in field.nullable else attribute
        if field.kind == "struct":
            default = self._source.bind("default", field.default)
            return f"{attribute} is not {default} and {attribute} != {default}"
        return f"{attribute} != {field.default!r}"

    def _value(self, field: Field, value: str, kind: str, nullable: bool) -> None:
        if kind in FORMATS:
            self._run.append((FORMATS[kind], value))
        elif kind == "string":
            self._string(value, nullable)
        elif kind in ("bytes", "records"):
            self._bytes(value, nullable)
        elif kind == "array":
            self._array(field, value, nullable)
        else:
            self._struct_field(field, value, nullable)

    def _length(self, size: str, code: str) -> None:
        """`size` names the length, with -1 for null."""
        if self._flexible:
            self._pack_run()
            self._source.line(f"{size} += 1")
            self._chunk.append(f"(SHORT[{size}] if {size} < {len(SHORT_UVARINTS)} else uvarint({size}))")
        else:
            self._run.append((code, size))
            self._pack_run()

    def _measured(self, value: str, nullable: bool, conversion: str = "") -> tuple[str, str]:
        """Names of the value and of its length; a null counts as an empty value of length -1."""
        source = self._source
        item, size = source.fresh("v"), source.fresh("n")
        source.line(f"{item} = {value}")
        if nullable:
            source.line(f"if {item} is None: {item} = b''; {size} = -1")
            with source.block("else:"):
                if conversion:
                    source.line(f"{item} = {item}{conversion}")
                source.line(f"{size} = len({item})")
        else:
            if conversion:
                source.line(f"{item} = {item}{conversion}")
            source.line(f"{size} = len({item})")
        return item, size

    def _string(self, value: str, nullable: bool) -> None:
        text, size = self._measured(value, nullable, ".encode()")
        if self._flexible:
            # In the other versions the struct of the length refuses it.
            self._source.line(f"if {size} > {STRING_BYTES_MAX}: raise ValueError('a string exceeds 32767 bytes')")
        self._length(size, "h")
        self._chunk.append(text)

    def _bytes(self, value: str, nullable: bool) -> None:
        content, size = self._measured(value, nullable)
        self._length(size, "i")
        self.flush()
        self._source.line(f"if {content}: {self._sink}({content})")

    def _array(self, field: Field, value: str, nullable: bool) -> None:
        source = self._source
        items, size = self._measured(value, nullable)
        self._length(size, "i")
        if field.element == "uuid":
            self._chunk.append(f"write_uuids({items})")
        elif field.element in FORMATS:
            structs = source.bind("many", ARRAYS[field.element])
            self._chunk.append(f"{structs}[len({items})].pack(*{items})")
        else:
            self.flush()
            item = source.fresh("x")
            with source.block(f"for {item} in {items}:"):
                if field.struct is not None:
                    self.struct(item, field.struct)
                else:
                    self._value(field, item, field.element, nullable=False)
                self.flush()
                if self._stepwise:
                    source.count_step()

    def _struct_field(self, field: Field, value: str, nullable: bool) -> None:
        assert field.struct is not None
        source = self._source
        item = source.fresh("x")
        source.line(f"{item} = {value}")
        if not nullable:
            self.struct(item, field.struct)
            return
        self.flush()
        source.line(f"if {item} is None: {self._sink}(b'\\xff')")
        with source.block("else:"):
            self._run.append(("b", "1"))
            self.struct(item, field.struct)
            self.flush()
