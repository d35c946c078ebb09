"""What a caller may be allowed to do, in Kafka's words: an operation on a kind of resource.

The numbers are Kafka's, as they travel in requests about access lists. Nothing enforces a right yet.
"""

from enum import IntEnum
from typing import NamedTuple


class Operation(IntEnum):
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = (
    Operation
)


class Resource(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Right(NamedTuple):
    operation: Operation
    resource: Resource


def topic(operation: Operation) -> Right:
    return Right(operation, Resource.TOPIC)


def group(operation: Operation) -> Right:
    return Right(operation, Resource.GROUP)


def cluster(operation: Operation) -> Right:
    return Right(operation, Resource.CLUSTER)


def transactional_id(operation: Operation) -> Right:
    return Right(operation, Resource.TRANSACTIONAL_ID)
