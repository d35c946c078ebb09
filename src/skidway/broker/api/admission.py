"""The one place where requests are refused whatever they ask: no handler is entered.

An API of nodes is refused to a caller that is not a node, with CLUSTER_AUTHORIZATION_FAILED, as in Kafka. Who counts as
a node is decided where the caller is made (`Caller.is_node`): everybody does, as long as there is no authentication.

The APIs of share groups are refused with UNSUPPORTED_VERSION while the feature `share.version` is at level 0. As in
Kafka, ApiVersions lists them all the same, so that no client has to connect again when the level is raised.
"""

from __future__ import annotations

from typing import Any

from skidway.broker.api.call import Call, Handle
from skidway.broker.api.share_requests import refused
from skidway.broker.services import Services
from skidway.errors import ErrorCode
from skidway.metadata.features import share_version
from skidway.steps import Steps
from skidway.wire.message import Message
from skidway.wire.registry import api
from skidway.wire.schema.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from skidway.wire.schema.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

SHARE_STATES = range(83, 88)
SHARES_OFF = "share groups are off in this cluster: share.version is at level 0"


def nodes_only(handle: Handle) -> Handle:
    """The handler of an API of nodes, for any caller."""

    def handle_or_refuse(node: Services, call: Call, request: Any) -> Any:
        if call.caller.is_node:
            return handle(node, call, request)
        # The responses about share-partitions have codes for each of them, all others have one of their own.
        return refused(request) if call.route.key in SHARE_STATES else not_a_node(call)

    return handle_or_refuse


def with_shares(handle: Handle) -> Handle:
    """The handler of an API of share groups, whether they are on or off."""

    def handle_or_refuse(node: Services, call: Call, request: Any) -> Any:
        return handle(node, call, request) if share_version(node.image) else _without_shares(call, request)

    return handle_or_refuse


def _without_shares(call: Call, request: Any) -> Steps[Message]:
    code = ErrorCode.UNSUPPORTED_VERSION
    # The responses about many groups have a code for each of them, all others have one of their own.
    if isinstance(request, ShareGroupDescribeRequest):
        described = ShareGroupDescribeResponse()
        for name in request.group_ids:
            described.groups.append(DescribedGroup(group_id=name, error_code=code))
            yield None
        return described
    if isinstance(request, DescribeShareGroupOffsetsRequest):
        offsets = DescribeShareGroupOffsetsResponse()
        for asked in request.groups:
            offsets.groups.append(DescribeShareGroupOffsetsResponseGroup(asked.group_id, error_code=code))
            yield None
        return offsets
    response: Message = api(call.route.key).response.message(error_code=code, error_message=SHARES_OFF)
    return response


def not_a_node(call: Call) -> Message:
    """The answer to a request that only a node may send."""
    response: Message = api(call.route.key).response.message(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return response
