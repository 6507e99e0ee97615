"""DescribeAcls, CreateAcls and DeleteAcls: the rights of tokens as Kafka shows rights, to be read.

    publish    WRITE and DESCRIBE on topics
    read       READ and DESCRIBE on topics, and on groups
    manage     all else that tools do with topics, and DELETE on groups

Limits on producer ids, and patterns with a star that is not at the end, have no counterpart: such a pattern is shown as
it is. `headrace token` creates and revokes tokens, for all protocols, so nothing can be changed here. Whoever may not
list tokens is refused; a server without tokens has none to show.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.core.errors import Forbidden
from headrace.core.rights import Caller, Grant, Right
from headrace.protocols.kafka.apis.call import Call
from headrace.storage.tokens import TokenRecord

_REFUSED: Final = {
    "error_code": ErrorCode.security_disabled,
    "error_message": "ACLs cannot be changed here: rights belong to tokens, see headrace token --help",
}
_NONE: Final = {
    "error_code": ErrorCode.security_disabled,
    "error_message": "there are no tokens here, so everybody may do everything: see headrace token --help",
}
_ANY: Final = 1
_TOPIC, _GROUP = 2, 3
_MATCH, _LITERAL, _PREFIXED = 2, 3, 4
_ALLOW: Final = 3


class AclOperation(IntEnum):
    """Operations by Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_ON_TOPICS: Final = {
    Right.PUBLISH: (AclOperation.WRITE, AclOperation.DESCRIBE),
    Right.READ: (AclOperation.READ, AclOperation.DESCRIBE),
    Right.MANAGE: (
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
}
_ON_GROUPS: Final = {
    Right.PUBLISH: (),
    Right.READ: (AclOperation.READ, AclOperation.DESCRIBE),
    Right.MANAGE: (AclOperation.DELETE, AclOperation.DESCRIBE),
}


class Resource(NamedTuple):
    """What rights are about: topics or groups, by name or by how their names begin."""

    kind: int
    name: str
    pattern: int


def cluster_operations(caller: Caller) -> int:
    """What a caller may do with the cluster, as bits."""
    operations = {AclOperation.DESCRIBE}
    if caller.may(Right.PUBLISH, "*"):
        operations.add(AclOperation.IDEMPOTENT_WRITE)
    if caller.may(Right.MANAGE, "*"):
        operations |= {AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS}
    return sum(1 << operation for operation in operations)


async def describe_acls(call: Call, request: Any) -> dict[str, Any]:
    """The rights of all tokens that fit the filters."""
    call.principal.require("whoami")
    access = call.parts.bridge.broker.access
    if await call.parts.bridge.call(access.is_open):
        return {**_NONE, "resources": []}
    try:
        call.principal.require("list_tokens")
    except Forbidden as error:
        refused = ErrorCode.cluster_authorization_failed
        return {"error_code": refused, "error_message": str(error), "resources": []}
    tokens = await call.parts.bridge.call(access.list)
    count, characters = await call.parts.bridge.call(_size, tokens, request)
    await call.hold(2 * count)
    await call.room.take(8 * characters)
    resources = await call.parts.bridge.call(_resources, tokens, request)
    return {"error_code": ErrorCode.none, "resources": resources}


def _size(tokens: list[TokenRecord], request: Any) -> tuple[int, int]:
    """How many entries an answer has, and how long their names are."""
    count = characters = 0
    for resource, principal, _ in _entries(tokens, request):
        count += 1
        characters += len(resource.name) + len(principal)
    return count, characters


def _resources(tokens: list[TokenRecord], request: Any) -> list[dict[str, Any]]:
    by_resource: dict[Resource, list[dict[str, Any]]] = {}
    for resource, principal, operation in _entries(tokens, request):
        acl = {"principal": principal, "host": "*", "operation": operation, "permission_type": _ALLOW}
        by_resource.setdefault(resource, []).append(acl)
    return [
        {"resource_type": each.kind, "resource_name": each.name, "pattern_type": each.pattern, "acls": acls}
        for each, acls in by_resource.items()
    ]


def _entries(tokens: list[TokenRecord], request: Any) -> Iterator[tuple[Resource, str, AclOperation]]:
    """What tokens that are valid allow, each once, as far as it fits the filters."""
    now_us = time.time_ns() // 1_000
    if request.permission_type not in (_ANY, _ALLOW) or request.host_filter not in (None, "*"):
        return
    for token in tokens:
        principal = f"User:{token.name}"
        if request.principal_filter not in (None, principal) or (token.expires_us or now_us + 1) <= now_us:
            continue
        allowed = {place: None for grant in token.grants for place in _allowed(grant)}
        for resource, operation in allowed:
            if request.operation in (_ANY, operation) and _fits(resource, request):
                yield resource, principal, operation


def _allowed(grant: Grant) -> Iterator[tuple[Resource, AclOperation]]:
    for right in sorted(grant.rights):
        is_limited = right == Right.MANAGE and "*" not in grant.groups
        for operation in () if is_limited else _ON_TOPICS[right]:
            yield _resource(_TOPIC, grant.pattern), operation
        for group in grant.groups:
            for operation in _ON_GROUPS[right]:
                yield _resource(_GROUP, group), operation


def _resource(kind: int, pattern: str) -> Resource:
    begin, star, rest = pattern.partition("*")
    is_prefix = bool(begin) and star == "*" and not rest
    return Resource(kind, begin, _PREFIXED) if is_prefix else Resource(kind, pattern, _LITERAL)


def _fits(resource: Resource, request: Any) -> bool:
    if request.resource_type_filter not in (_ANY, resource.kind):
        return False
    wanted, pattern = request.resource_name_filter, request.pattern_type_filter
    if pattern in (_LITERAL, _PREFIXED) and pattern != resource.pattern:
        return False
    if wanted is None or wanted == resource.name:
        return True
    if pattern != _MATCH:
        return False
    return resource.name == "*" or (resource.pattern == _PREFIXED and wanted.startswith(resource.name))


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
