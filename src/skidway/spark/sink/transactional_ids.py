"""Names of transactional ids, chosen so that one coordinator keeps all ids of a write.

The driver's id is the write's own name. A task attempt's is that name, its partition, its attempt, and a number that is
tried out until the id falls into the driver's partition of `__transaction_state`. No batch id is in them: the next
batch takes the same ids and so fences what an earlier one left open, and there are never more ids than task attempts.
"""

from itertools import count

from skidway.groups.placement import partition_of

STATE_TOPIC = "__transaction_state"


class TransactionalIds:
    def __init__(self, name: str, state_partitions: int) -> None:
        self.driver = name
        self._state_partitions = state_partitions
        self.state_partition = partition_of(name, state_partitions)

    def attempt(self, partition: int, attempt: int) -> str:
        prefix = f"{self.driver}/{partition}/{attempt}"
        for number in count():
            found = f"{prefix}/{number}"
            if partition_of(found, self._state_partitions) == self.state_partition:
                return found
        raise AssertionError("count() does not end")
