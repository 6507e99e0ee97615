"""Groups over HTTP: register, list, describe with lag, delete; their offsets: commit, seek."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath

from headrace.core.descriptions import GroupDescription
from headrace.core.errors import InvalidInput
from headrace.core.groups.group import ReadFrom
from headrace.core.limits import GROUP_CONSUMERS_MAX, ID_CHARACTERS_MAX, PARTITIONS_MAX, TIME_US_MAX
from headrace.edge.bridge import Bridge
from headrace.edge.operations import registration
from headrace.protocols.http.answers import answer
from headrace.protocols.http.middleware.access import principal_of
from headrace.protocols.http.openapi.document import Docs
from headrace.protocols.http.requests.positions import Position, listed, mapped
from headrace.protocols.http.requests.raw_paths import unquoted
from headrace.protocols.http.requests.strict_json import read

TimeMicroseconds = Annotated[int, msgspec.Meta(ge=0, le=TIME_US_MAX, description="microseconds since 1970, UTC")]
Place = Literal["earliest", "latest"] | TimeMicroseconds
Positions = Annotated[list[Position], msgspec.Meta(max_length=PARTITIONS_MAX)]


class GroupIn(msgspec.Struct, forbid_unknown_fields=True):
    """A group to register; what is left out stays as it is.

    consumers: its fixed size; without it members join and leave by themselves.
    important: retention waits for it.
    read_from: where a new group begins: earliest, latest, or a time in microseconds.
    """

    consumers: Annotated[int, msgspec.Meta(ge=1, le=GROUP_CONSUMERS_MAX)] | None = None
    important: bool | None = None
    read_from: Place = "earliest"


class ProgressOut(msgspec.Struct):
    """How far a group is in one partition; `lag_seconds` is the age of the oldest message it has yet to read."""

    partition: int
    committed: int | None
    position: int
    end_offset: int
    lag_messages: int
    lag_seconds: float
    consumer: str | None


class ConsumerOut(msgspec.Struct):
    """A member, or a consumer of a fixed group, and the partitions it reads."""

    name: str
    partitions: list[int]


class GroupOut(msgspec.Struct):
    """All about a group; the lag over all partitions is the sum of messages and the greatest age.

    seek_generation: the generation that the last seek began; positions of earlier ones are worth nothing.
    """

    topic: str
    name: str
    consumers: int | None
    important: bool
    read_from: ReadFrom
    generation: int
    lag_messages: int
    lag_seconds: float
    members: list[ConsumerOut]
    partitions: list[ProgressOut]
    seek_generation: int = 0

    @classmethod
    def of(cls, group: GroupDescription) -> GroupOut:
        """A description of the broker as JSON."""
        return cls(
            group.topic,
            group.name,
            group.consumers,
            group.important,
            group.read_from,
            group.generation,
            group.lag_messages,
            group.lag_seconds,
            [ConsumerOut(name, partitions) for name, partitions in group.members.items()],
            [
                ProgressOut(partition, at.committed, at.position, at.end, at.lag_messages, at.lag_seconds, at.consumer)
                for partition, at in group.progress.items()
            ],
            group.seek_generation,
        )


class GroupList(msgspec.Struct):
    """The names of a topic's groups."""

    groups: list[str]


class CommittedOut(msgspec.Struct):
    """The committed offset of each partition that has one: the next offset to read."""

    offsets: list[Position]


class CommitIn(msgspec.Struct, forbid_unknown_fields=True):
    """Everything below these offsets was read.

    member: who commits, or the index of a consumer of a fixed group; without it the group itself.
    generation: refuse the commit if the group has changed since; a member that leaves it out is refused only if the
        group was moved by a seek since it last fetched or joined.
    """

    offsets: Positions
    member: Annotated[str, msgspec.Meta(min_length=1, max_length=ID_CHARACTERS_MAX)] | None = None
    generation: Annotated[int, msgspec.Meta(ge=0)] | None = None


class SeekIn(msgspec.Struct, forbid_unknown_fields=True):
    """Where to move a group: `to` a place for all its partitions, or to `offsets` of some; one of the two.

    to: earliest (the oldest message kept), latest (the end), or a time in microseconds; `start` and `end` are the words
    of version 0.1.
    """

    to: Literal["earliest", "latest", "start", "end"] | TimeMicroseconds | None = None
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
async def list_groups(topic: FromPath[str], bridge: NamedDependency[Bridge]) -> GroupList:
    """The groups of a topic by name."""
    return GroupList(await bridge.call(bridge.broker.list_groups, unquoted(topic)))


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
    """Make a group, or change its size or importance; one that is there keeps its offsets."""
    data = await read(request, GroupIn)
    operation = registration(data.consumers, data.important)
    principal_of(request).require(operation, unquoted(topic), unquoted(group))
    register = bridge.broker.register_group
    asked = (unquoted(topic), unquoted(group), data.consumers, data.important, data.read_from)
    made = await answer(bridge, GroupOut.of, register, *asked)
    principal_of(request).record_changes()
    return made


@get(
    "/topics/{topic:str}/groups/{group:str}",
    opt={"operation": "describe_group", "docs": Docs(answer=GroupOut, example=_GROUP, errors=(404,))},
    tags=["groups"],
    summary="Describe a group",
)
async def describe_group(
    topic: FromPath[str], group: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[bytes]:
    """Members, positions and lag, in messages and seconds, by partition and over all."""
    return await answer(bridge, GroupOut.of, bridge.broker.describe_group, unquoted(topic), unquoted(group))


@delete(
    "/topics/{topic:str}/groups/{group:str}",
    opt={"operation": "delete_group", "docs": Docs(errors=(404,))},
    tags=["groups"],
    summary="Delete a group",
)
async def delete_group(
    request: Request[Any, Any, Any], topic: FromPath[str], group: FromPath[str], bridge: NamedDependency[Bridge]
) -> None:
    """Remove a group with its offsets."""
    await bridge.call(bridge.broker.delete_group, unquoted(topic), unquoted(group))
    principal_of(request).record_changes()


@get(
    "/topics/{topic:str}/groups/{group:str}/offsets",
    opt={"operation": "committed", "docs": Docs(answer=CommittedOut, example=_OFFSETS, errors=(404,))},
    tags=["groups"],
    summary="CommittedOut offsets",
)
async def committed_offsets(
    topic: FromPath[str], group: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[bytes]:
    """The committed offset of each partition that has one."""
    return await answer(bridge, _committed, bridge.broker.committed, unquoted(topic), unquoted(group))


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
) -> None:
    """Store the next offset to read by partition; it never moves back, that is what seeking is for."""
    data = await read(request, CommitIn)
    offsets = mapped("offsets", data.offsets)
    commit = bridge.broker.commit_offsets
    await bridge.call(commit, unquoted(topic), unquoted(group), offsets, data.member, data.generation)


@post(
    "/topics/{topic:str}/groups/{group:str}/seek",
    status_code=200,
    opt={
        "operation": "seek",
        "docs": Docs(body=SeekIn, given=SeekIn(to="earliest"), answer=CommittedOut, example=_OFFSETS, errors=(404,)),
    },
    tags=["groups"],
    summary="Move a group",
)
async def seek(
    request: Request[Any, Any, Any], topic: FromPath[str], group: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[bytes]:
    """Move to the oldest message, the end, a time or to offsets, forward or back, in a new generation of the group.

    Members continue at the new position: what they read before cannot be committed any more.
    """
    data = await read(request, SeekIn)
    if (data.to is None) == (data.offsets is None):
        raise InvalidInput("to", repr(data.to), "give either to or offsets")
    moved = await answer(bridge, _committed, _seek, bridge, unquoted(topic), unquoted(group), data)
    principal_of(request).record_changes()
    return moved


def _committed(offsets: Mapping[int, int]) -> CommittedOut:
    return CommittedOut(listed(offsets))


def _seek(bridge: Bridge, topic: str, group: str, data: SeekIn) -> dict[int, int]:
    if data.offsets is not None:
        offsets = mapped("offsets", data.offsets)
    else:
        offsets = bridge.broker.reader(topic).positions_at(_place(data.to))
    bridge.broker.seek(topic, group, offsets)
    return bridge.broker.committed(topic, group)


def _place(to: str | int | None) -> ReadFrom:
    if isinstance(to, int):
        return to
    return "earliest" if to in ("earliest", "start") else "latest"


HANDLERS = [list_groups, register_group, describe_group, delete_group, committed_offsets, commit_offsets, seek]
