"""DescribeAcls, CreateAcls and DeleteAcls: refused as by a Kafka without an authorizer.

Rights are those of tokens, which have no counterpart among Kafka's principals and patterns: `headrace token` manages
them, for all protocols.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.protocols.kafka.apis.call import Call

_REFUSED: Final = {
    "error_code": ErrorCode.security_disabled,
    "error_message": "there are no ACLs here: rights belong to tokens, see headrace token --help",
}


async def describe_acls(call: Call, request: Any) -> dict[str, Any]:
    """There are none."""
    call.principal.require("whoami")
    return {**_REFUSED, "resources": []}


async def create_acls(call: Call, request: Any) -> dict[str, Any]:
    """None can be created."""
    call.principal.require("whoami")
    await call.hold(len(request.creations))
    return {"results": [_REFUSED] * len(request.creations)}


async def delete_acls(call: Call, request: Any) -> dict[str, Any]:
    """None can be deleted."""
    call.principal.require("whoami")
    await call.hold(len(request.filters))
    return {"filter_results": [{**_REFUSED, "matching_acls": []}] * len(request.filters)}
