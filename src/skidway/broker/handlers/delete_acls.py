"""DeleteAcls (key 31), v1–v3: there is no authoriser yet, so each is refused with SECURITY_DISABLED."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.handlers.describe_acls import NO_AUTHORISER
from skidway.errors import ErrorCode
from skidway.wire.schema.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORISER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
