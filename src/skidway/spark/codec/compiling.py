"""numba as the kernels use it: functions compiled once per machine, and the one operation numba has no words for.

Compiled code is kept beside the module or, where that cannot be written, in the user's cache; where there is no place
at all it is compiled again by each process.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function itself, to its callers and to mypy. It may not allocate: arrays are not counted inside."""
    return _compile(function, inline="never")


def inlined(function: F) -> F:
    """For what kernels call for every record: an array as an argument is seven."""
    return _compile(function, inline="always")


def _compile(function: F, inline: str) -> F:
    # Counting references to arrays takes as long as reading a record.
    options: dict[str, Any] = {"nogil": True, "inline": inline, "_nrt": False}
    try:
        return cast(F, njit(cache=True, **options)(function))
    except RuntimeError:
        # numba found no folder it may write to.
        return cast(F, njit(**options)(function))


@intrinsic
def _memcpy(_context: Any, destination: Any, destination_at: Any, source: Any, source_at: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        addresses = []
        for array, at in ((0, 1), (2, 3)):
            held = context.make_array(signature.args[array])(context, builder, arguments[array])
            addresses.append(builder.gep(held.data, [arguments[at]]))
        cgutils.raw_memcpy(builder, addresses[0], addresses[1], arguments[4], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(destination, types.int64, source, types.int64, types.int64), generate


@inlined
def copy_bytes(destination: Any, destination_at: int, source: Any, source_at: int, count: int) -> bool:
    """False, and nothing copied, when the bytes are not within both arrays."""
    within = (
        count >= 0
        and destination_at >= 0
        and source_at >= 0
        and count <= len(destination) - destination_at
        and count <= len(source) - source_at
    )
    if within:
        _memcpy(destination, destination_at, source, source_at, count)  # type: ignore[call-arg]
    return within
