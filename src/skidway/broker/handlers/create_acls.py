"""CreateAcls (key 30), v1–v3: there is no authoriser yet, so each is refused with SECURITY_DISABLED."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.handlers.describe_acls import NO_AUTHORISER
from skidway.errors import ErrorCode
from skidway.wire.schema.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORISER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
