"""Which broker coordinates a group or a transactional id, and asking it until it answers.

A coordinator moves with the partition that its state is kept in. What was known is forgotten when a broker refuses or
is gone, and the next attempt asks again.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from skidway.blocking_client.addresses import Address
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import BrokerError, ConnectionLost, Unreachable, check
from skidway.wire.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

Result = TypeVar("Result")


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SCHEDULES = 3
    """Of Skidway's own: of the schedules of a queue."""


_NOUNS = {
    CoordinatorType.GROUP: "group",
    CoordinatorType.TRANSACTION: "transactional id",
    CoordinatorType.SCHEDULES: "schedules of",
}


class Coordinators:
    """Of one type. Not for several threads at once."""

    def __init__(self, cluster: Cluster, kind: CoordinatorType) -> None:
        self.cluster = cluster
        self._kind = kind
        self._known: dict[str, Address] = {}

    def find(self, key: str) -> Connection:
        """A connection to the coordinator. Raises what is worth a retry while there is none."""
        address = self._known.get(key)
        if address is None:
            request = FindCoordinatorRequest(key=key, key_type=self._kind, coordinator_keys=[key])
            reply = self.cluster.any_broker().call(request, FindCoordinatorResponse)
            about = f"finding the coordinator of {_NOUNS[self._kind]} {key}"
            if reply.coordinators:
                found = reply.coordinators[0]
                check(found.error_code, about, found.error_message)
                address = Address(found.host, found.port)
            else:
                check(reply.error_code, about, reply.error_message)
                address = Address(reply.host, reply.port)
            self._known[key] = address
        return self.cluster.connect(address)

    def ask(self, key: str, question: Callable[[Connection], Result], *, timeout_ms: int | None = None) -> Result:
        """What the coordinator answers; tried again as `Cluster.retrying` does."""

        def attempt() -> Result:
            try:
                return question(self.find(key))
            except (BrokerError, ConnectionLost, Unreachable):
                self._known.pop(key, None)
                raise

        return self.cluster.retrying(attempt, timeout_ms=timeout_ms)
