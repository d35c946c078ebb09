"""Which fields are masked and how, as options say it; all of it is checked before Spark starts. No Spark in it.

A field is named by its path in the value (`user.email`, also within arrays of structs); `key` and `headers` are those
of the record, and a field of the value that is called so is `value.key`. The salt of hashes comes from the environment
or a file: options are seen in process lists. It is in no text that anything here writes.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skidway.spark.pipelines.options import BadPipeline
from skidway.spark.pipelines.values.schemas import Kind

SALT_VARIABLE = "SKIDWAY_MASK_SALT"
SALT_BYTES_MIN, SALT_BYTES_MAX = 16, 4096
TRUNCATE = re.compile(r"\s*(\S+)\s*=\s*(\d{1,7})\s*")
HASHED = ("string", "binary", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long")
TEXTS = ("string", "binary")
KEY, HEADERS, VALUE = "key", "headers", "value"
RECORD = Kind("struct", {KEY: Kind("binary"), HEADERS: Kind("array", inner=[Kind("struct")])})


@dataclass(slots=True)
class Hash:
    """SHA-256 of the salt and the text, as hexadecimal digits."""


@dataclass(slots=True)
class Drop:
    pass


@dataclass(slots=True)
class Truncate:
    length: int


Mask = Hash | Drop | Truncate
Rules = dict[str, "Mask | Rules"]
"""By field; a struct, or an array of them, has rules for its own fields."""


@dataclass(slots=True)
class Masks:
    record: Rules = field(default_factory=dict)
    """Of key and headers."""
    value: Rules = field(default_factory=dict)
    salt: bytes = field(default=b"", repr=False)

    def __bool__(self) -> bool:
        return bool(self.record or self.value)

    def drops(self, path: str) -> bool:
        """Whether a field of the value, or one that it is in, is dropped."""
        rule: Mask | Rules | None = self.value
        for step in path.split("."):
            if not isinstance(rule, dict):
                break
            rule = rule.get(step)
        return isinstance(rule, Drop)


def masks_of(
    hashed: Iterable[str], dropped: Iterable[str], truncated: Iterable[str], value: Kind | None, salt: bytes
) -> Masks:
    """BadPipeline if a field does not exist, or cannot be masked so. `value`: its fields, if a schema tells them."""
    masks = Masks(salt=salt)
    for path in hashed:
        _add(masks, path, Hash(), value)
    for path in dropped:
        _add(masks, path, Drop(), value)
    for text in truncated:
        match = TRUNCATE.fullmatch(text)
        if match is None or int(match[2]) < 1:
            raise BadPipeline(f"truncate: {text!r} is not FIELD=LENGTH; write for example --truncate zip=3")
        _add(masks, match[1], Truncate(int(match[2])), value)
    if value is not None:
        _check_left(value, masks.value, "the value")
    return masks


def read_salt(path: str | None, environment: Mapping[str, str] = os.environ) -> bytes:
    """Of the file, or else of the environment; nothing if neither has one."""
    if path is None:
        salt, where = environment.get(SALT_VARIABLE, "").encode(), f"the variable {SALT_VARIABLE}"
        if not salt:
            return b""
    else:
        salt, where = _read_bounded(path).removesuffix(b"\n").removesuffix(b"\r"), f"the file {path}"
    if not SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
        raise BadPipeline(
            f"{where} has a salt of {len(salt)} bytes; it must have {SALT_BYTES_MIN} to {SALT_BYTES_MAX}, for example"
            " what `openssl rand -hex 32` prints"
        )
    return salt


def _read_bounded(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(SALT_BYTES_MAX + 3)
    except OSError as error:
        raise BadPipeline(f"the file {path} with the salt cannot be read: {error.strerror}") from None


def _add(masks: Masks, path: str, mask: Mask, value: Kind | None) -> None:
    path = path.strip()
    if isinstance(mask, Hash) and not masks.salt:
        raise BadPipeline(
            f"a salt is needed to hash {path}: set the variable {SALT_VARIABLE}, or name a file with --salt-file;"
            " without one, trying all likely values finds the right one"
        )
    if path in RECORD.fields:
        kind, rules, steps = RECORD, masks.record, [path]
        if path == HEADERS and not isinstance(mask, Drop):
            raise BadPipeline("headers can be dropped, and not hashed or truncated")
    else:
        if value is None:
            raise BadPipeline(f"to mask {path}, give a schema, with the fields that the value has")
        kind, rules = value, masks.value
        steps = path.split(".")
        if steps[0] == VALUE and VALUE not in kind.fields and len(steps) > 1:
            steps = steps[1:]
    _add_to(rules, kind, steps, mask, path)


def _add_to(rules: Rules, kind: Kind, steps: list[str], mask: Mask, path: str) -> None:
    for n, step in enumerate(steps):
        kind = kind.of_elements
        if step not in kind.fields:
            there = ", ".join(kind.fields) or "none, it is not a struct"
            parent = ".".join(steps[:n]) or "the value"
            raise BadPipeline(f"there is no field {path} to mask; the fields of {parent} are: {there}")
        kind = kind.fields[step]
        if n < len(steps) - 1:
            inner = rules.setdefault(step, {})
            if not isinstance(inner, dict):
                raise _twice(path)
            rules = inner
    if steps[-1] in rules:
        raise _twice(path)
    _check_kind(kind.of_elements, mask, path)
    rules[steps[-1]] = mask


def _twice(path: str) -> BadPipeline:
    return BadPipeline(f"{path} is masked twice, or lies in a field that is masked; mask it once")


def _check_kind(kind: Kind, mask: Mask, path: str) -> None:
    if isinstance(mask, Hash) and kind.name not in HASHED:
        raise BadPipeline(f"{path} is {kind.name}; texts, whole numbers and binary can be hashed: drop it instead")
    if isinstance(mask, Truncate) and kind.name not in TEXTS:
        raise BadPipeline(f"{path} is {kind.name}; texts and binary can be truncated: drop it instead")


def _check_left(kind: Kind, rules: Rules, told: str) -> None:
    """A struct without fields is nothing a table could have."""
    if kind.fields and all(isinstance(rules.get(name), Drop) for name in kind.fields):
        raise BadPipeline(f"all fields of {told} would be dropped; drop {told} itself, or leave one")
    for name, rule in rules.items():
        if isinstance(rule, dict):
            _check_left(kind.fields[name].of_elements, rule, name)
