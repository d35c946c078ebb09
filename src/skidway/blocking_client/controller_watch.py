"""Waiting for an answer that only the controller can give, beside a watch on whether there is one.

A node that was asked looks for a controller for as long as we wait, and says nothing meanwhile. Who leads, as nodes
tell it, is who led last. So the node is asked on another connection for something that takes its controller no time,
again and again: if that stays without an answer too, there is none.
"""

import select
import time

from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import ClientError, NoController
from skidway.errors import ErrorCode
from skidway.wire.schema.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)

METADATA_TOPIC = "__cluster_metadata"
LOOK_EVERY_MS = 500
NODE_TIMEOUT_MS = 2_000
"""For a node to take a second connection."""


def describe_quorum_request() -> DescribeQuorumRequest:
    asked = RequestTopicData(topic_name=METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])
    return DescribeQuorumRequest(topics=[asked])


def await_controller(connection: Connection, wait_ms: int, deadline: float) -> None:
    """Return when there is something to receive, or at the deadline; `NoController` if there was none for `wait_ms`.

    While one takes over from another there is none, and if that takes less it is no reason to give up.
    """
    heard = time.monotonic()
    if connection.readable(LOOK_EVERY_MS / 1000):
        return
    try:
        with Connection(
            connection.address,
            client_id=connection.client_id,
            connect_timeout_ms=NODE_TIMEOUT_MS,
            reply_timeout_ms=NODE_TIMEOUT_MS,
        ) as beside:
            _watch(connection, beside, wait_ms, heard, deadline)
    except NoController:
        raise
    except ClientError:
        # The node itself does not answer, or knows nothing of quorums: then this tells nothing.
        return


def _watch(connection: Connection, beside: Connection, wait_ms: int, heard: float, deadline: float) -> None:
    beside.send(describe_quorum_request())
    while True:
        until = min(deadline, heard + wait_ms / 1000)
        ready = select.select([connection, beside], [], [], max(0.0, until - time.monotonic()))[0]
        if connection in ready:
            return
        if beside in ready:
            if _is_of_leader(beside.receive(DescribeQuorumResponse)):
                heard = time.monotonic()
            if connection.readable(LOOK_EVERY_MS / 1000):
                return
            beside.send(describe_quorum_request())
        elif time.monotonic() >= deadline:
            return
        elif time.monotonic() >= until:
            raise NoController(wait_ms, connection.address)


def _is_of_leader(reply: DescribeQuorumResponse) -> bool:
    """Otherwise the node has looked for it in vain, or has just ceased to be it."""
    partitions = [partition for topic in reply.topics for partition in topic.partitions]
    return reply.error_code == ErrorCode.NONE and all(each.error_code == ErrorCode.NONE for each in partitions)
