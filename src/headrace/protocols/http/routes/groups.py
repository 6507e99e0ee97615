"""Groups over HTTP: register, list, describe with lag, delete; their offsets: commit, seek."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath

from headrace.core.errors import InvalidInput
from headrace.core.limits import GROUP_CONSUMERS_MAX, ID_CHARACTERS_MAX, TIME_US_MAX
from headrace.edge.bridge import Bridge
from headrace.protocols.http.answers import answer, perform
from headrace.protocols.http.formats import JSON
from headrace.protocols.http.openapi.document import Docs
from headrace.protocols.http.requests.positions import Position, Positions, listed, mapped
from headrace.protocols.http.requests.raw_paths import unquoted
from headrace.protocols.http.requests.strict_json import read
from headrace.wire.descriptions import ConsumerOut, GroupOut, ProgressOut
from headrace.wire.operations import (
    CommitOffsets,
    Committed,
    DeleteGroup,
    DescribeGroup,
    ListGroups,
    RegisterGroup,
    Seek,
)

TimeMicroseconds = Annotated[int, msgspec.Meta(ge=0, le=TIME_US_MAX, description="microseconds since 1970, UTC")]
Place = Literal["earliest", "latest"] | TimeMicroseconds
# The partitions that a partial commit left out, separated by commas.
REFUSED_HEADER = "headrace-refused"
# The generation of the group when it was asked.
GENERATION_HEADER = "headrace-generation"


class GroupIn(msgspec.Struct, forbid_unknown_fields=True):
    """A group to register; omitted fields stay unchanged.

    consumers: fixed number of consumers; if omitted, members join and leave dynamically.
    important: retention keeps messages until this group has read them.
    read_from: where a new group starts: earliest, latest, or a time in microseconds.
    """

    consumers: Annotated[int, msgspec.Meta(ge=1, le=GROUP_CONSUMERS_MAX)] | None = None
    important: bool | None = None
    read_from: Place = "earliest"


class GroupList(msgspec.Struct):
    """The names of a topic's groups."""

    groups: list[str]


class CommittedOut(msgspec.Struct):
    """The committed offset of each partition that has one: the next offset to read."""

    offsets: list[Position]


class CommitIn(msgspec.Struct, forbid_unknown_fields=True):
    """Offsets to commit: everything below them was read.

    member: the committing member, or the index of a consumer of a fixed group; if omitted, the group itself commits.
    generation: reject the commit if a seek moved the group since, or a partition had another owner; if a member omits
        it, the commit is rejected only if a seek moved the group since the member last fetched or joined.
    partial: leave out partitions that the member no longer owns, instead of rejecting the commit; the header
        `headrace-refused` of the answer lists them.
    """

    offsets: Positions
    member: Annotated[str, msgspec.Meta(min_length=1, max_length=ID_CHARACTERS_MAX)] | None = None
    generation: Annotated[int, msgspec.Meta(ge=0)] | None = None
    partial: bool = False


class SeekIn(msgspec.Struct, forbid_unknown_fields=True):
    """Where to move a group: `to` one position for all partitions, or to `offsets` of some; exactly one of the two.

    to: earliest (the oldest message kept), latest (the end), or a time in microseconds.
    """

    to: Place | None = None
    offsets: Positions | None = None


_GROUP = GroupOut(
    topic="orders",
    name="billing",
    consumers=None,
    important=False,
    read_from="earliest",
    generation=3,
    lag_messages=2,
    lag_seconds=0.8,
    members=[ConsumerOut("worker-1", [0]), ConsumerOut("worker-2", [1])],
    partitions=[ProgressOut(0, 40, 40, 42, 2, 0.8, "worker-1"), ProgressOut(1, 17, 17, 17, 0, 0.0, "worker-2")],
)
_OFFSETS = CommittedOut([Position(0, 40), Position(1, 17)])


@get(
    "/topics/{topic:str}/groups",
    opt={
        "operation": "list_groups",
        "docs": Docs(answer=GroupList, example=GroupList(["audit", "billing"]), errors=(404,)),
    },
    tags=["groups"],
    summary="List groups",
)
async def list_groups(
    request: Request[Any, Any, Any], topic: FromPath[str], bridge: NamedDependency[Bridge]
) -> GroupList:
    """List the names of a topic's groups."""
    return GroupList(await perform(request, bridge, ListGroups(unquoted(topic))))


@put(
    "/topics/{topic:str}/groups/{group:str}",
    opt={
        "operation": "register_group",
        "checked_inside": True,
        "docs": Docs(body=GroupIn, given=GroupIn(important=True), answer=GroupOut, example=_GROUP, errors=(404, 409)),
    },
    tags=["groups"],
    summary="Register a group",
)
async def register_group(
    request: Request[Any, Any, Any], topic: FromPath[str], group: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[bytes]:
    """Create a group, or change its size or importance; an existing group keeps its offsets."""
    data = await read(request, GroupIn)
    register = RegisterGroup(unquoted(topic), unquoted(group), data.consumers, data.important, data.read_from)
    return await answer(request, bridge, register, GroupOut.of)


@get(
    "/topics/{topic:str}/groups/{group:str}",
    opt={"operation": "describe_group", "docs": Docs(answer=GroupOut, example=_GROUP, errors=(404,))},
    tags=["groups"],
    summary="Describe a group",
)
async def describe_group(
    request: Request[Any, Any, Any], topic: FromPath[str], group: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[bytes]:
    """Show members, positions and lag, in messages and seconds, by partition and in total."""
    return await answer(request, bridge, DescribeGroup(unquoted(topic), unquoted(group)), GroupOut.of)


@delete(
    "/topics/{topic:str}/groups/{group:str}",
    opt={"operation": "delete_group", "docs": Docs(errors=(404,))},
    tags=["groups"],
    summary="Delete a group",
)
async def delete_group(
    request: Request[Any, Any, Any], topic: FromPath[str], group: FromPath[str], bridge: NamedDependency[Bridge]
) -> None:
    """Delete a group with its offsets."""
    await perform(request, bridge, DeleteGroup(unquoted(topic), unquoted(group)))


@get(
    "/topics/{topic:str}/groups/{group:str}/offsets",
    opt={"operation": "committed", "docs": Docs(answer=CommittedOut, example=_OFFSETS, errors=(404,))},
    tags=["groups"],
    summary="Committed offsets",
)
async def committed_offsets(
    request: Request[Any, Any, Any], topic: FromPath[str], group: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[bytes]:
    """The committed offset of each partition that has one."""
    return await answer(request, bridge, Committed(unquoted(topic), unquoted(group)), _committed)


@post(
    "/topics/{topic:str}/groups/{group:str}/offsets",
    status_code=204,
    opt={
        "operation": "commit",
        "docs": Docs(body=CommitIn, given=CommitIn([Position(0, 41)], "worker-1", 3), errors=(404, 409)),
    },
    tags=["groups"],
    summary="Commit offsets",
)
async def commit_offsets(
    request: Request[Any, Any, Any], topic: FromPath[str], group: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[None]:
    """Store the next offset to read of each partition. A commit never moves back; use seek for that."""
    data = await read(request, CommitIn)
    by = data.member, data.generation, data.partial
    commit = CommitOffsets(unquoted(topic), unquoted(group), mapped("offsets", data.offsets), *by)
    outcome = await perform(request, bridge, commit)
    headers = {GENERATION_HEADER: str(outcome.generation)}
    if outcome.refused:
        headers[REFUSED_HEADER] = ",".join(map(str, outcome.refused))
    return Response(None, headers=headers)


@post(
    "/topics/{topic:str}/groups/{group:str}/seek",
    status_code=200,
    opt={
        "operation": "seek",
        "docs": Docs(body=SeekIn, given=SeekIn(to="earliest"), answer=CommittedOut, example=_OFFSETS, errors=(404,)),
    },
    tags=["groups"],
    summary="Seek a group",
)
async def seek(
    request: Request[Any, Any, Any], topic: FromPath[str], group: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[bytes]:
    """Move a group to the oldest message, the end, a time or offsets, forward or back. Starts a new generation.

    Members continue at the new position: what they read before can no longer be committed.
    """
    data = await read(request, SeekIn)
    if (data.to is None) == (data.offsets is None):
        raise InvalidInput("to", repr(data.to), "give either to or offsets")
    name = unquoted(topic)
    if data.to is not None:
        reader = await bridge.reader(name)
        offsets = await bridge.call(reader.positions_at, data.to)
    else:
        offsets = mapped("offsets", data.offsets or [])
    await perform(request, bridge, Seek(name, unquoted(group), offsets))
    body = await bridge.call(lambda: msgspec.json.encode(_committed(bridge.broker.committed(name, unquoted(group)))))
    return Response(body, media_type=JSON)


def _committed(offsets: Mapping[int, int]) -> CommittedOut:
    return CommittedOut(listed(offsets))


HANDLERS = [list_groups, register_group, describe_group, delete_group, committed_offsets, commit_offsets, seek]
