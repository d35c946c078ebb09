"""Messages that a queue gets at a later time, or again and again: asked of the coordinator of the queue's schedules."""

from collections.abc import Iterator

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.coordinators import Coordinators, CoordinatorType
from skidway.blocking_client.errors import ClientError, ConnectionLost, check
from skidway.blocking_client.partitioners import murmur2
from skidway.blocking_client.queues.managing import Queue
from skidway.wire.schema.manage_schedules import (
    CancelledSchedule,
    CreatedSchedule,
    ListedSchedule,
    ManageSchedulesRequest,
    ManageSchedulesResponse,
    MessageHeader,
    ScheduleToCreate,
)

LISTED_AT_ONCE = 500
KEY_HASH_MASK = 0x7FFFFFFF


class OutcomeUnknown(ClientError):
    """The connection was lost before the answer: it may have been done or not."""


class Schedules:
    def __init__(self, cluster: Cluster) -> None:
        self._coordinators = Coordinators(cluster, CoordinatorType.SCHEDULES)

    def create(
        self, queue: Queue, wanted: ScheduleToCreate, headers: list[tuple[str, bytes | None]]
    ) -> CreatedSchedule:
        """`wanted` without headers and hash of the key."""
        if wanted.message_key is not None:
            wanted.key_hash = murmur2(wanted.message_key) & KEY_HASH_MASK
        wanted.headers = [MessageHeader(name, value) for name, value in headers]
        response = self._ask(queue, ManageSchedulesRequest(queue.topic_id, create=[wanted]), changes=True)
        created: CreatedSchedule = response.created[0]
        check(created.error_code, f"schedule {wanted.id} of {queue.name}", created.error_message)
        return created

    def cancel(self, queue: Queue, id_: str) -> CancelledSchedule:
        response = self._ask(queue, ManageSchedulesRequest(queue.topic_id, cancel=[id_]), changes=True)
        cancelled: CancelledSchedule = response.cancelled[0]
        check(cancelled.error_code, f"schedule {id_} of {queue.name}", cancelled.error_message)
        return cancelled

    def all(self, queue: Queue) -> Iterator[ListedSchedule]:
        """By id."""
        after = ""
        while True:
            request = ManageSchedulesRequest(queue.topic_id, list_after=after, list_max=LISTED_AT_ONCE)
            found: list[ListedSchedule] = self._ask(queue, request, changes=False).schedules
            yield from found
            if len(found) < LISTED_AT_ONCE:
                return
            after = found[-1].id

    def _ask(self, queue: Queue, request: ManageSchedulesRequest, *, changes: bool) -> ManageSchedulesResponse:
        """What changes something is not asked again where it may have been done."""

        def question(connection: Connection) -> ManageSchedulesResponse:
            try:
                response = connection.call(request, ManageSchedulesResponse)
            except ConnectionLost as error:
                if changes:
                    raise OutcomeUnknown(
                        f"{error}: it may have been done; skidway queue schedule list shows"
                    ) from error
                raise
            check(response.error_code, f"schedules of {queue.name}", response.error_message)
            return response

        return self._coordinators.ask(queue.name, question)
