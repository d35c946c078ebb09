"""How much transactions may take: all coordinators of the node together, one coordinator, one transaction.

What is counted for ids are estimates of memory, so that few long ones and many short ones meet the same bound. Only
growth is refused: an id that is known, a transaction that ends pass however full the node is. Ids and partitions have
a bound each, so that ids that nobody needs keep nobody from going on.
"""

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from skidway.errors import PolicyViolation
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.transaction import Transaction

ID_BYTES = 600
"""What an id takes in memory beside its name."""
TOGETHER_PLACES_MAX = 200_000
"""Partitions of all transactions that one decision commits: so many take some tenths of a second."""


class Usage(Protocol):
    """What the transactions of the node take now."""

    @property
    def id_bytes(self) -> int: ...

    @property
    def place_count(self) -> int:
        """Partitions of transactions that are open or ending."""
        ...


class Footprint:
    """What the transactions of one coordinator take."""

    __slots__ = ("id_bytes", "place_count")

    def __init__(self) -> None:
        self.id_bytes = self.place_count = 0

    def replace(self, before: Transaction | None, after: Transaction | None) -> None:
        if before is not None:
            self.place_count -= len(before.state.places)
        if after is not None:
            self.place_count += len(after.state.places)
        if before is None and after is not None:
            self.id_bytes += bytes_of(after.id)
        elif before is not None and after is None:
            self.id_bytes -= bytes_of(before.id)


def bytes_of(transactional_id: str) -> int:
    return ID_BYTES + len(transactional_id.encode())


class Bounds(Struct):
    settings: TransactionSettings
    usage: Usage

    def check_new_id(self, transactional_id: str, known_count: int) -> None:
        """`known_count`: of the coordinator that would keep it."""
        settings = self.settings
        if known_count >= settings.ids_max:
            raise PolicyViolation(
                f"this coordinator has {settings.ids_max} transactional ids, and takes no more. Ids that are not "
                "used expire (transactional.id.expiration.ms)"
            )
        if self.usage.id_bytes + bytes_of(transactional_id) > settings.node_id_bytes_max:
            raise PolicyViolation(
                f"the transactional ids of this broker take {settings.node_id_bytes_max} bytes, as much as they may. "
                "Ids that are not used expire (transactional.id.expiration.ms)"
            )

    def check_places(self, before: int, after: int) -> None:
        """How many partitions the transaction has, and would have."""
        settings = self.settings
        if after > settings.partitions_max:
            raise PolicyViolation(f"a transaction has at most {settings.partitions_max} partitions")
        if after > before and self.usage.place_count + after - before > settings.node_partitions_max:
            raise PolicyViolation(
                f"the open transactions of this broker have {settings.node_partitions_max} partitions, as many as they "
                "may: end some first"
            )

    def check_together(self, transactions: Iterable[Transaction]) -> None:
        count = sum(len(each.places) for each in transactions)
        if count > TOGETHER_PLACES_MAX:
            raise PolicyViolation(
                f"transactions over {count} partitions are to be committed together: it must be at most "
                f"{TOGETHER_PLACES_MAX}"
            )
