"""The commits of a table without a log of its own: one manifest each, numbered, created once and for all.

`log/<number>.json` has the files of a batch and the state that it leaves: the last batch of each query, and how far the
table has come in each partition. Who creates it has committed the batch. Older manifests are removed where files are
renamed into the table, the newest never is. So a number that is free may have been used and removed: whoever created a
manifest looks again whether it is the newest, and has committed nothing if it is not.

Older versions kept the batches of a query apart, without positions: `<query>/batches/<number>.json`, and before that
one `<query>/batch.json`. `Older` reads them.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from skidway.spark.lake.positions import Advance, Positions, from_json, to_json
from skidway.spark.lake.target import BadTable
from skidway.spark.stores import Store

MANIFEST_BYTES_MAX = 256 * 1024 * 1024
FOLDER = "log"
SUFFIX = ".json"
SINGLE = "batch.json"


@dataclass(slots=True)
class Manifest:
    number: int = 0
    """From 1 on."""
    files: list[tuple[str, str]] = field(default_factory=list)
    """Where each was staged, and where it belongs; relative to the table."""
    batches: dict[str, int] = field(default_factory=dict)
    """The last batch of each query."""
    positions: Positions = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Of the topics, by their ids."""
    schema: dict[str, Any] | None = None
    """The columns of the table, as Spark writes them; None: an older version made it."""

    def next(
        self,
        query: str,
        batch: int,
        files: list[tuple[str, str]],
        advance: Advance | None,
        schema: dict[str, Any] | None = None,
    ) -> "Manifest":
        batches = self.batches | {query: batch}
        positions, names = dict(self.positions), dict(self.names)
        if advance is not None:
            positions |= advance.after
            names |= advance.names
        return Manifest(self.number + 1, files, batches, positions, names, schema or self.schema)

    def content(self) -> bytes:
        told = {"files": self.files, "batches": self.batches, "positions": to_json(self.positions, self.names)}
        return json.dumps(told | {"schema": self.schema}).encode()


class Manifests:
    def __init__(self, store: Store) -> None:
        self._store = store

    def newest(self) -> Manifest | None:
        while numbers := self._numbers():
            name = self._name(numbers[-1])
            content = self._store.read(name)
            if content is not None:
                return _manifest(numbers[-1], name, content)
        return None

    def all(self) -> list[Manifest]:
        """Of every commit, where none was forgotten."""
        named = [(number, self._name(number)) for number in self._numbers()]
        return [
            _manifest(number, name, content)
            for number, name in named
            if (content := self._store.read(name)) is not None
        ]

    def decide(self, manifest: Manifest) -> bool:
        """Whether this is the one and only manifest of its number."""
        if not self._store.create(self._name(manifest.number), manifest.content()):
            return False
        if self._numbers()[-1:] != [manifest.number]:
            self._store.remove(self._name(manifest.number))
            return False
        return True

    def forget_older(self, number: int) -> None:
        """The manifest of this number is there, and so are all files of those before it."""
        for one in self._numbers():
            if one < number:
                self._store.remove(self._name(one))

    def _numbers(self) -> list[int]:
        return _numbers(self._store, FOLDER)

    def _name(self, number: int) -> str:
        return f"{FOLDER}/{number:012d}{SUFFIX}"


@dataclass(slots=True)
class Batch:
    number: int
    files: list[tuple[str, str]]


class Older:
    """The batches of one query, as older versions wrote them."""

    def __init__(self, store: Store, query: str) -> None:
        self._store = store
        self._query = query

    def newest(self) -> Batch | None:
        numbers = _numbers(self._store, f"{self._query}/batches")
        name = self._name(numbers[-1]) if numbers else f"{self._query}/{SINGLE}"
        content = self._store.read(name)
        return None if content is None else _batch(name, content)

    def all(self) -> list[Batch]:
        names = [self._name(number) for number in _numbers(self._store, f"{self._query}/batches")]
        return [_batch(name, content) for name in names if (content := self._store.read(name)) is not None]

    def _name(self, number: int) -> str:
        return f"{self._query}/batches/{number:012d}{SUFFIX}"


def _numbers(store: Store, folder: str) -> list[int]:
    names = (name.removesuffix(SUFFIX) for name in store.names(folder))
    return sorted(int(name) for name in names if name.isdecimal())


def _manifest(number: int, name: str, content: bytes) -> Manifest:
    told = _document(name, content)
    try:
        positions, names = from_json(told["positions"])
        batches = {str(query): int(batch) for query, batch in told["batches"].items()}
        return Manifest(number, _files(told), batches, positions, names, told.get("schema"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _torn(name) from None


def _batch(name: str, content: bytes) -> Batch:
    told = _document(name, content)
    try:
        return Batch(int(told["batch"]), _files(told))
    except (ValueError, KeyError, TypeError):
        raise _torn(name) from None


def _files(told: Any) -> list[tuple[str, str]]:
    return [(str(staged), str(final)) for staged, final in told["files"]]


def _document(name: str, content: bytes) -> Any:
    if len(content) > MANIFEST_BYTES_MAX:
        raise BadTable(f"{name} is larger than any manifest; the table is not one of this pipeline")
    try:
        return json.loads(content)
    except ValueError:
        raise _torn(name) from None


def _torn(name: str) -> BadTable:
    return BadTable(
        f"{name} in _skidway is torn: its batch was not committed; remove the file, and the batch is written again"
    )
