"""Who a task's batches come from: a producer id of its own, or the one that a transactional id has now."""

from collections.abc import Callable

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import check
from skidway.blocking_client.transactions import Producer
from skidway.limits import INT32_MAX
from skidway.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class Identity:
    """Asked for when the first batch needs it."""

    def __init__(self, cluster: Cluster, take: Callable[[], Producer] | None) -> None:
        """`take` gives the transactional id; None: there is none."""
        self._cluster = cluster
        self._take = take
        self._found: tuple[int, int] | None = None
        self.transactional_id: str | None = None

    @property
    def is_transactional(self) -> bool:
        return self._take is not None

    def find(self) -> tuple[int, int]:
        """Producer id and epoch."""
        if self._found is None and self._take is not None:
            taken = self._take()
            self.transactional_id, self._found = taken.transactional_id, (taken.producer_id, taken.epoch)
        elif self._found is None:
            self._found = self._cluster.retrying(self._ask)
        return self._found

    def _ask(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX)
        reply = self._cluster.any_broker().call(request, InitProducerIdResponse)
        check(reply.error_code, "asking for a producer id")
        return reply.producer_id, reply.producer_epoch
