"""The unacknowledged batches of one partition, and when the next of them may go.

What a broker does with a producer's batches decides the rules. It takes them by sequence only, so order is kept by
never having two connections carry them and by sending what was refused, and all behind it, again in order. It takes
any sequence from a producer it does not know yet, so the first batch goes alone. It knows the last five batches again,
so one that is sent once more goes alone too, or those behind it could push it out of the five.
"""

from collections import deque
from dataclasses import dataclass, field

from skidway.blocking_client.addresses import Address
from skidway.ports import Buffer

RETRY_PAUSE_S = 0.02
RETRY_PAUSE_S_MAX = 0.5


@dataclass(slots=True)
class Outgoing:
    batch: Buffer
    records: int
    deadline: float
    again: bool = False
    """It was refused, or nobody said what became of it."""


@dataclass(slots=True)
class Lane:
    """Oldest first: refused, then flying, then waiting."""

    topic: str
    partition: int
    address: Address | None = None
    """Where the flying ones went."""
    opened: bool = False
    """The partition has stored a batch of this producer's."""
    sequence: int = 0
    waiting: deque[Outgoing] = field(default_factory=deque)
    flying: deque[Outgoing] = field(default_factory=deque)
    refused: list[Outgoing] = field(default_factory=list)
    reason: str = ""
    pause_s: float = RETRY_PAUSE_S
    retry_at: float = 0.0

    def launch(self, address: Address) -> Outgoing:
        """The next batch leaves for that broker."""
        outgoing = self.waiting.popleft()
        self.flying.append(outgoing)
        self.address = address
        return outgoing

    def refuse(self, outgoing: Outgoing, reason: str) -> None:
        outgoing.again = True
        self.refused.append(outgoing)
        self.reason = reason

    def ready(self, address: Address, now: float) -> bool:
        """Whether its next batch may go to that broker."""
        if self.refused or self.retry_at > now:
            return False
        if not self.flying:
            return True
        alone = not self.opened or self.flying[-1].again or self.waiting[0].again
        return not alone and self.address == address

    def settle(self, now: float) -> None:
        """Once nothing is on the way any more, what was refused goes back to the front of the queue."""
        if self.refused and not self.flying:
            self.waiting.extendleft(reversed(self.refused))
            self.refused.clear()
            self.rest(now)

    def rest(self, now: float) -> None:
        """Leave the brokers alone for a moment, longer each time until something is stored."""
        self.retry_at = now + self.pause_s
        self.pause_s = min(self.pause_s * 2, RETRY_PAUSE_S_MAX)

    def on_stored(self) -> None:
        self.opened = True
        self.pause_s = RETRY_PAUSE_S

    def oldest(self) -> Outgoing | None:
        for queue in (self.refused, self.flying, self.waiting):
            if queue:
                return queue[0]
        return None
