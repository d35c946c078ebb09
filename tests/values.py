"""Values with other fields."""

import dataclasses
from typing import Any, TypeVar

import msgspec

Value = TypeVar("Value")


def replace(value: Value, **changes: Any) -> Value:
    """A copy with these changes, of a dataclass as well as of a struct."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]
