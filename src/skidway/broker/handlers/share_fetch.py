"""ShareFetch (key 78), v1–v2.

Leases records to a member of a share group, in a session (KIP-932), and takes acknowledgements that ride along. It is
answered as soon as there are records for the member, or something went wrong in a partition, or its time is over; and
not before its acknowledgements are stored. Records are whole batches as they are stored; `acquired_records` says which
offsets of them are leased. The smallest number of bytes that a request may ask for counts as one: records are not
leased while more are waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.broker.reads.leader_hints import ELSEWHERE, address_of, leader_of
from skidway.broker.shares.share_fetch import Found, ShareFetch
from skidway.errors import ProtocolError
from skidway.shares.sessions import Place
from skidway.steps import Steps
from skidway.wire.schema.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

NO_RECORDS = b""
PLACES_PER_STEP = 50
NOTHING = Found()


def handle(node: Services, call: Call, request: ShareFetchRequest) -> Steps[None]:
    def reply(outcome: ShareFetch | ProtocolError) -> None:
        if isinstance(outcome, ProtocolError):
            call.reply(ShareFetchResponse(error_code=outcome.code, error_message=outcome.message))
        else:
            answer_later(node.world.slices, call, _response(node, call, outcome))

    return node.share_fetches.fetch(call, request, reply)


def _response(node: Services, call: Call, fetched: ShareFetch) -> Steps[ShareFetchResponse]:
    lock_ms = node.share_fetches.rules(fetched.session.group).delivery.lock_ms
    response = ShareFetchResponse(acquisition_lock_timeout_ms=lock_ms)
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for number, place in enumerate(fetched.told(), 1):
        if not number % PLACES_PER_STEP:
            yield None
        topic_id = place[0]
        if topic_id not in topics:
            topics[topic_id] = ShareFetchableTopicResponse(topic_id)
        data = _partition(place, fetched)
        topics[topic_id].partitions.append(data)
        if data.error_code in ELSEWHERE or data.acknowledge_error_code in ELSEWHERE:
            _point_to_leader(node, call, place, data, response)
    response.responses = list(topics.values())
    return response


def _partition(place: Place, fetched: ShareFetch) -> PartitionData:
    found, refused = fetched.found.get(place, NOTHING), fetched.answers.errors.get(place)
    data = PartitionData(place[1], records=found.records if found.records is not None else NO_RECORDS)
    if found.error is not None:
        data.error_code = found.error.code
    if refused is not None:
        data.acknowledge_error_code, data.acknowledge_error_message = refused.code, refused.message
    data.acquired_records = [AcquiredRecords(each.first, each.end - 1, each.count) for each in found.acquired]
    return data


def _point_to_leader(
    node: Services, call: Call, place: Place, data: PartitionData, response: ShareFetchResponse
) -> None:
    leader, epoch = leader_of(node.image, *place)
    data.current_leader = LeaderIdAndEpoch(leader, epoch)
    found = address_of(node.image, leader, call.caller.listener)
    if found is not None and all(endpoint.node_id != leader for endpoint in response.node_endpoints):
        response.node_endpoints.append(NodeEndpoint(*found))
