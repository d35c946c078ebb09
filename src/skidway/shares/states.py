"""States of an offset, what can be done with one that was delivered, and the rules that a group sets.

Available, acknowledged, archiving and archived are stored, under Kafka's numbers; the others exist only at the leader.
"""

from enum import Enum, IntEnum

from msgspec import Struct

AVAILABLE = 0
LEASED = 1
ACKNOWLEDGED = 2
ARCHIVING = 3
"""Dead, but its letter is not written yet: neither delivered again nor passed by the start offset."""
ARCHIVED = 4
SETTLING = 5
"""What becomes of it is decided and on its way to the store: not to be acquired, not to be settled again."""
DELAYED = 6
"""Available, but not yet."""
BLOCKED = 7
"""Available, but an earlier record of its key is not."""

TERMINAL = bytes((ACKNOWLEDGED, ARCHIVED))
COUNT_MAX = 32_767
"""Deliveries of one record: what a stored state can say. Whatever comes after it has the same number."""
NO_LIMIT = COUNT_MAX + 1
"""As a limit: a record is delivered until somebody settles it."""
LOCK_MS_MAX = 12 * 3_600_000
"""The longest lease that a single delivery may have."""
NEVER_MS = 2**62


class Verb(IntEnum):
    """What a client says of an offset, under Kafka's numbers."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class HeldUp(IntEnum):
    """Why nothing is delivered, however much waits."""

    NOT = 0
    FULL = 1
    """As many are leased as may be."""
    FAR = 2
    """What waits lies too far behind the first offset that is not settled."""


class AcquireMode(IntEnum):
    BATCH_OPTIMIZED = 0
    """Whole batches, until there are enough records."""
    RECORD_LIMIT = 1
    """Never more records than asked for, cut inside a batch if need be."""


class Order(Enum):
    """Of records with the same key."""

    NONE = "none"
    KEY = "key"
    """No two holders have records of one key, and they come in order."""
    FIFO = "fifo"
    """As Amazon's: a record waits for earlier ones of its key only."""


class Cause(IntEnum):
    """Why a record is never delivered again without anybody having accepted it."""

    REJECTED = 0
    EXHAUSTED = 1
    """It was delivered as often as its group allows."""


class ArchiveAtOnce(Struct, frozen=True, tag=True):
    """A dead record is archived, and that is all."""


class LetterFirst(Struct, frozen=True, tag=True):
    """A dead record waits as `ARCHIVING` until a copy of it is among the dead letters."""


EndOfLife = ArchiveAtOnce | LetterFirst


class DeliveryRules(Struct, frozen=True):
    """What a group says about all its partitions. It may change while records are under way."""

    lock_ms: int = 30_000
    count_limit: int = 5
    leases_max: int = 2_000
    """Offsets that may be leased at a time."""
    span_max: int = 1_000_000
    """How far apart the first offset that is not settled and the last that was delivered may be."""
    end_of_life: EndOfLife = ArchiveAtOnce()
    isolates: bool = True
    """Whether records that were delivered in vain several times go out in smaller parts."""
    receipts_expire: bool = False
    """Whether a delivery that is over by time cannot be settled any more, as in FIFO queues."""

    order: Order = Order.NONE
    delays: bool = False
    """Whether records may say themselves when they are to be delivered."""
    fair: bool = False
    """Whether records of noisy tenants go behind those of others."""

    @property
    def keeps_leases(self) -> bool:
        """Whether leases are stored, and nobody hears of one before."""
        return self.order is not Order.NONE

    @property
    def opens_batches(self) -> bool:
        """Whether what is delivered depends on what is in the records."""
        return self.delays or self.order is not Order.NONE

    def __post_init__(self) -> None:
        assert 1 <= self.count_limit <= NO_LIMIT, f"a limit of {self.count_limit} deliveries"
        assert self.order is Order.NONE or self.receipts_expire, "a late holder would break the order of keys"
        assert not self.fair or (self.delays and not self.isolates), "what is fair opens batches, and isolates nothing"
        assert not self.fair or self.order is Order.NONE, "what is fair has no order"
        assert self.leases_max > 0
        assert self.span_max > 0
        assert self.lock_ms > 0

    @property
    def dead(self) -> int:
        """The state of a record that is never delivered again, and was not accepted."""
        return ARCHIVED if isinstance(self.end_of_life, ArchiveAtOnce) else ARCHIVING

    def outcome(self, verb: Verb, count: int) -> int:
        """What becomes of a record that was delivered so many times."""
        if verb is Verb.ACCEPT:
            return ACKNOWLEDGED
        if verb is Verb.GAP:
            return ARCHIVED
        return AVAILABLE if verb is Verb.RELEASE and count < self.count_limit else self.dead
