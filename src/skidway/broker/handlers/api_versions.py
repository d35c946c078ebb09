"""ApiVersions (key 18), v0–v4: what this broker serves, and nothing else.

A version that is not known is answered in the form of v0 with UNSUPPORTED_VERSION and the list, so that the client
can come back with one that is. Produce is listed from v0, although v0–v2 are gone: older librdkafka stops
compressing when it does not see them (KAFKA-18659).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.wire.schema.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

PRODUCE_KEY = 0
SOFTWARE_SINCE = 3
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
METADATA_VERSION_MIN = 7
TRANSACTIONS = "transaction.version"
TRANSACTIONS_VERSION = 2
"""Clients that know it let brokers add partitions, and take a new epoch at every end."""


def handle(node: Services, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= SOFTWARE_SINCE and not (
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    response = ApiVersionsResponse(0, served(node))
    level = node.image.features.get("metadata.version")
    if level is None:
        return response  # a node that has just begun to follow the metadata
    response.supported_features = [SupportedFeatureKey("metadata.version", METADATA_VERSION_MIN, level)]
    response.finalized_features_epoch = node.quorum.published_offset
    response.finalized_features = [FinalizedFeatureKey("metadata.version", level, level)]
    if node.world.settings.experimental_transactions:
        response.supported_features.append(SupportedFeatureKey(TRANSACTIONS, 0, TRANSACTIONS_VERSION))
        response.finalized_features.append(
            FinalizedFeatureKey(TRANSACTIONS, TRANSACTIONS_VERSION, TRANSACTIONS_VERSION)
        )
    return response


def handle_unknown_version(node: Services, call: Call, request: object) -> ApiVersionsResponse:
    return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, served(node))


def served(node: Services) -> list[ApiVersion]:
    return [
        ApiVersion(key, 0 if key == PRODUCE_KEY else first, last)
        for key, (first, last) in node.routes.advertised.items()
    ]
