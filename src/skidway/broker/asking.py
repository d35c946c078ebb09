"""How leaders and copies ask the active controller about their partitions, wherever it is."""

from collections.abc import Callable

from skidway.wire.message import Message

Ask = Callable[[Message, Callable[[Message | None], None], int], None]
"""(request, respond, now_ms): answered once and later, with None when no controller answers."""
PARTITIONS_PER_REQUEST_MAX = 1_000
RETRY_MS = 100
