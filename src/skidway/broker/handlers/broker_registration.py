"""BrokerRegistration (key 62), v0–v4: a broker begins a run and is given a broker epoch. Served by the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, ProtocolError
from skidway.metadata.image import Endpoint
from skidway.metadata.operations import BrokerRegistered, RegisterBroker
from skidway.wire.schema.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

PARTS_MAX = 100
"""Listeners, directories and features of one broker: all of them are kept, by every node, for ever."""
CHARACTERS_MAX = 255


def handle(node: Services, call: Call, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse | None:
    if request.cluster_id != node.cluster_id:
        return BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if request.broker_id < 0 or not _is_plausible(request):
        return BrokerRegistrationResponse(error_code=ErrorCode.INVALID_REQUEST)

    def answer(reply: BrokerRegistered | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(BrokerRegistrationResponse(error_code=reply.code))
        else:
            call.reply(BrokerRegistrationResponse(broker_epoch=reply.epoch))

    node.controller.commit(
        RegisterBroker(
            request.broker_id,
            request.incarnation_id,
            [Endpoint(point.name, point.host, point.port, point.security_protocol) for point in request.listeners],
            request.rack,
            [bytes(directory) for directory in request.log_dirs],
            {
                feature.name: (feature.min_supported_version, feature.max_supported_version)
                for feature in request.features
            },
            fenced=True,
            previous_broker_epoch=request.previous_broker_epoch,
            log_end_offset=node.quorum.log.end_offset,
        ),
        call.now_ms,
        answer,
    )
    return None


def _is_plausible(request: BrokerRegistrationRequest) -> bool:
    listeners, features = request.listeners, request.features
    names = [request.rack or "", *(point.name for point in listeners), *(feature.name for feature in features)]
    return (
        0 < len(listeners) <= PARTS_MAX
        and max(len(request.log_dirs), len(features)) <= PARTS_MAX
        and all(0 < len(point.host) <= CHARACTERS_MAX for point in listeners)
        and all(len(name) <= CHARACTERS_MAX for name in names)
    )
