"""A dict under change: what a draft of a group has in place of each of the group's dicts.

It reads through to the dict below and keeps the changes to itself until they are settled, so a draft costs what it
changes, not what the group has. It is ordered as the dict itself would be. The dict below must not change meanwhile,
but for the same changes.
"""

from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from dataclasses import fields
from typing import Any, Self, TypeVar, get_origin

Key = TypeVar("Key")
Value = TypeVar("Value")


class Overlay(MutableMapping[Key, Value]):
    __slots__ = ("_below", "_gone", "_size", "changed")

    def __init__(self, below: MutableMapping[Key, Value]) -> None:
        assert isinstance(below, dict), "a draft of a draft"
        self._below: dict[Key, Value] = below
        self.changed: dict[Key, Value] = {}
        """What was set."""
        self._gone: dict[Key, None] = {}
        """Keys that were deleted; those set again later are in `changed` as well."""
        self._size = len(below)

    def settle(self) -> dict[Key, Value]:
        """The dict below, with the changes. The overlay is of no use any more."""
        below = self._below
        for key in self._gone:
            below.pop(key, None)
        if self.changed:
            below.update(self.changed)
        return below

    def __getitem__(self, key: Key) -> Value:
        if key in self.changed:
            return self.changed[key]
        if key in self._gone:
            raise KeyError(key)
        return self._below[key]

    def get(self, key: Key, default: Any = None) -> Any:
        if key in self.changed:
            return self.changed[key]
        if key in self._gone:
            return default
        return self._below.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self.changed or (key in self._below and key not in self._gone)

    def __len__(self) -> int:
        return self._size

    def __setitem__(self, key: Key, value: Value) -> None:
        changed = self.changed
        if key not in changed and (key in self._gone or key not in self._below):
            self._size += 1
        changed[key] = value

    def __delitem__(self, key: Key) -> None:
        if key not in self:
            raise KeyError(key)
        self.changed.pop(key, None)
        if key in self._below:
            self._gone[key] = None
        self._size -= 1

    def pop(self, key: Key, default: Any = None) -> Any:
        """Unlike a dict's, it never fails."""
        if key not in self:
            return default
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        self.changed.clear()
        self._gone = dict.fromkeys(self._below)
        self._size = 0

    def merged(self) -> dict[Key, Value]:
        """The changes in a dict of their own; the dict below stays as it is."""
        gone = self._gone
        if gone:
            merged = {key: value for key, value in self._below.items() if key not in gone}
            merged.update(self.changed)
            return merged
        return {**self._below, **self.changed} if self.changed else self._below.copy()

    def __iter__(self) -> Iterator[Key]:
        """Key by key: often only the first is asked for."""
        below, gone = self._below, self._gone
        for key in below:
            if key not in gone:
                yield key
        for key in self.changed:
            if key in gone or key not in below:
                yield key

    def values(self) -> ValuesView[Value]:
        """Of now: what changes later does not show."""
        return self.merged().values()

    def items(self) -> ItemsView[Key, Value]:
        return self.merged().items()


def changes(draft: MutableMapping[Key, Value]) -> dict[Key, Value]:
    """What was set in a draft's dict."""
    assert isinstance(draft, Overlay), "not a draft"
    return draft.changed


class Layered:
    """A slotted dataclass that can be drafted. Its fields are the one list of what a draft has: an overlay in place of
    each `MutableMapping`, and the rest as it is."""

    __slots__ = ()

    def draft(self) -> Self:
        kept, overlaid = _FIELDS.get(type(self)) or _read_fields(type(self))
        draft = object.__new__(type(self))
        for name in kept:
            setattr(draft, name, getattr(self, name))
        for name in overlaid:
            setattr(draft, name, Overlay(getattr(self, name)))
        return draft

    def settle(self) -> None:
        """The draft's changes go to the dicts below, which are now its own."""
        _, overlaid = _FIELDS.get(type(self)) or _read_fields(type(self))
        for name in overlaid:
            overlay = getattr(self, name)
            if type(overlay) is Overlay:
                setattr(self, name, overlay.settle())

    def detach(self) -> None:
        """The draft gets dicts of its own; those below stay as they were."""
        _, overlaid = _FIELDS.get(type(self)) or _read_fields(type(self))
        for name in overlaid:
            overlay = getattr(self, name)
            if type(overlay) is Overlay:
                setattr(self, name, overlay.merged())


_FIELDS: dict[type[Any], tuple[list[str], list[str]]] = {}
"""Of each type that was drafted: the names of the fields that stay as they are, and of those that are overlaid."""


def _read_fields(kind: type[Any]) -> tuple[list[str], list[str]]:
    overlaid = [each.name for each in fields(kind) if get_origin(each.type) is MutableMapping]
    kept = [each.name for each in fields(kind) if each.name not in overlaid]
    _FIELDS[kind] = kept, overlaid
    return kept, overlaid
