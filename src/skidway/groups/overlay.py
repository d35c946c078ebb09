"""A dict under change: what a draft of a group has in place of each of the group's dicts.

It reads through to the dict below and keeps the changes to itself until they are settled, so a draft costs what it
changes, not what the group has. It is ordered as the dict itself would be. The dict below must not change meanwhile,
but for the same changes.
"""

from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from typing import Any, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Overlay(MutableMapping[Key, Value]):
    __slots__ = ("_below", "_changed", "_gone", "_size")

    def __init__(self, below: MutableMapping[Key, Value]) -> None:
        assert isinstance(below, dict), "a draft of a draft"
        self._below: dict[Key, Value] = below
        self._changed: dict[Key, Value] = {}
        self._gone: dict[Key, None] = {}
        """Keys that were deleted; those set again later are in `_changed` as well."""
        self._size = len(below)

    @property
    def changed(self) -> dict[Key, Value]:
        """What was set."""
        return self._changed

    def settle(self) -> dict[Key, Value]:
        """The dict below, with the changes. The overlay is of no use any more."""
        below = self._below
        for key in self._gone:
            below.pop(key, None)
        if self._changed:
            below.update(self._changed)
        return below

    def __getitem__(self, key: Key) -> Value:
        if key in self._changed:
            return self._changed[key]
        if key in self._gone:
            raise KeyError(key)
        return self._below[key]

    def get(self, key: Key, default: Any = None) -> Any:
        if key in self._changed:
            return self._changed[key]
        if key in self._gone:
            return default
        return self._below.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._changed or (key in self._below and key not in self._gone)

    def __len__(self) -> int:
        return self._size

    def __setitem__(self, key: Key, value: Value) -> None:
        changed = self._changed
        if key not in changed and (key in self._gone or key not in self._below):
            self._size += 1
        changed[key] = value

    def __delitem__(self, key: Key) -> None:
        if key not in self:
            raise KeyError(key)
        self._changed.pop(key, None)
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
        self._changed.clear()
        self._gone = dict.fromkeys(self._below)
        self._size = 0

    def _merged(self) -> dict[Key, Value]:
        gone = self._gone
        if gone:
            merged = {key: value for key, value in self._below.items() if key not in gone}
            merged.update(self._changed)
            return merged
        return {**self._below, **self._changed} if self._changed else self._below.copy()

    def __iter__(self) -> Iterator[Key]:
        """Key by key: often only the first is asked for."""
        below, gone = self._below, self._gone
        for key in below:
            if key not in gone:
                yield key
        for key in self._changed:
            if key in gone or key not in below:
                yield key

    def values(self) -> ValuesView[Value]:
        """Of now: what changes later does not show."""
        return self._merged().values()

    def items(self) -> ItemsView[Key, Value]:
        return self._merged().items()


def changes(draft: MutableMapping[Key, Value]) -> dict[Key, Value]:
    """What was set in a draft's dict."""
    assert isinstance(draft, Overlay), "not a draft"
    return draft.changed


def settled(draft: MutableMapping[Key, Value]) -> MutableMapping[Key, Value]:
    assert isinstance(draft, Overlay), "not a draft"
    return draft.settle()
