"""DescribeAcls (key 29), v1–v3: there is no authoriser yet, so SECURITY_DISABLED, as Kafka answers without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.wire.schema.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

NO_AUTHORISER = "No Authorizer is configured."
"""In Kafka's words: people search for them."""


def handle(node: Services, call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORISER)
