"""Brokers that cannot commit several transactions together, as those of Apache Kafka."""

import pytest

from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import Unsupported
from skidway.wire.schema.commit_transactions import CommitTransactionsRequest


def without_joint_commit(patch: pytest.MonkeyPatch) -> None:
    """For clients in this process: the broker's list of APIs has no CommitTransactions."""
    right = Connection.version

    def version(connection: Connection, key: int) -> int:
        if key == CommitTransactionsRequest.__key__:
            raise Unsupported("the broker does not have this API")
        return right(connection, key)

    patch.setattr(Connection, "version", version)
