"""Fetch (key 1), v4–v18.

Whole batches below the high watermark (with read_committed the last stable offset), in the order of the request (of the
session), as slices of the log files. A fetch that finds less than `min_bytes` waits for its partitions to move, up to
`max_wait_ms`. A follower answers readers (v11+) too, with what it knows to be committed.
Fetches of consumers are in `broker.reads.consumers`, those of followers (v15+) in
`broker.replication.follower_fetches`, those of the metadata log in `broker.cluster.quorum_host`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.admission import not_a_node
from skidway.quorum.wire import is_metadata_fetch
from skidway.steps import Steps
from skidway.wire.message import Message
from skidway.wire.schema.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(
    node: Services, call: Call, request: FetchRequest
) -> FetchResponse | Message | Steps[FetchResponse | None] | None:
    if request.replica_state.replica_id < 0:
        return node.consumer_fetches.fetch(call, request)
    if not call.caller.is_node:
        return not_a_node(call)
    if is_metadata_fetch(request):
        return node.quorum.answer(call, request)
    return node.replica_polls.fetch(call, request)
