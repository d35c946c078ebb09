"""ApiVersions (key 18), v0–v4: what this broker serves, and nothing else.

A version that is not known is answered in the form of v0 with UNSUPPORTED_VERSION and the list, so that the client
can come back with one that is. Produce is listed from v0, although v0–v2 are gone: older librdkafka stops
compressing when it does not see them (KAFKA-18659). Features are what this broker supports and what the cluster uses.
APIs that Kafka does not have are told to our own clients only: kafka-python stumbles over a key that it does not know.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.metadata.features import SUPPORTED
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
OWN_KEYS_FROM = 30_000
OWN_SOFTWARE_NAME = "skidway"
SOFTWARE_SINCE = 3
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
LEVEL_0_SINCE = 4
"""Older clients cannot read that a feature begins with level 0 (KAFKA-17492)."""


def handle(node: Services, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= SOFTWARE_SINCE and not (
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    response = ApiVersionsResponse(0, served(node, own=request.client_software_name == OWN_SOFTWARE_NAME))
    levels = node.image.features
    if not levels:
        return response  # a node that has just begun to follow the metadata
    response.supported_features = [
        SupportedFeatureKey(name, low, high)
        for name, (low, high) in SUPPORTED.items()
        if low > 0 or call.version >= LEVEL_0_SINCE
    ]
    # Grows with every change: clients believe the highest that they have heard.
    response.finalized_features_epoch = node.quorum.published_offset
    response.finalized_features = [FinalizedFeatureKey(name, level, level) for name, level in levels.items() if level]
    return response


def handle_unknown_version(node: Services, call: Call, request: object) -> ApiVersionsResponse:
    return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, served(node))


def served(node: Services, *, own: bool = False) -> list[ApiVersion]:
    """The same list each time: every client asks for it first."""
    routes = node.routes
    listed: list[ApiVersion] | None = routes.listed.get(own)
    if listed is None:
        listed = routes.listed[own] = [
            ApiVersion(key, 0 if key == PRODUCE_KEY else first, last)
            for key, (first, last) in routes.advertised.items()
            if own or key < OWN_KEYS_FROM
        ]
    return listed
