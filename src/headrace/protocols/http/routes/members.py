"""Group members over HTTP: join, heartbeat, leave, and fetch from their partitions."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from headrace.broker.read.topic_reader import MemberRead
from headrace.core.limits import (
    FETCH_BYTES_DEFAULT,
    FETCH_MESSAGES_DEFAULT,
    MAX_POLL_SECONDS,
    MAX_POLL_SECONDS_MAX,
    SESSION_TIMEOUT_SECONDS,
    SESSION_TIMEOUT_SECONDS_MAX,
    SESSION_TIMEOUT_SECONDS_MIN,
)
from headrace.core.messages import READ_SCHEMA
from headrace.core.positions import parse_pairs
from headrace.core.reports.descriptions import Membership
from headrace.edge.access import Leases
from headrace.edge.bridge import Bridge
from headrace.edge.event_loop.long_poll import LongPoll, LoopWakeups
from headrace.protocols.http.answers import perform
from headrace.protocols.http.disconnects import attend
from headrace.protocols.http.formats import ARROW, JSON, encode_messages, stream_of_all
from headrace.protocols.http.middleware.access import lease_of, principal_of
from headrace.protocols.http.middleware.limits import allow_seconds
from headrace.protocols.http.openapi.document import MESSAGE, Docs
from headrace.protocols.http.requests.negotiation import wants_arrow
from headrace.protocols.http.requests.parameters import EncodingParameter, MaxBytes, MaxMessages, WaitSeconds
from headrace.protocols.http.requests.positions import Position, listed
from headrace.protocols.http.requests.raw_paths import unquoted
from headrace.protocols.http.requests.strict_json import read
from headrace.protocols.http.routes.groups import GENERATION_HEADER
from headrace.wire.json import Encoding, MessageOut
from headrace.wire.operations import Heartbeat, JoinGroup, LeaveGroup


class JoinIn(msgspec.Struct, forbid_unknown_fields=True):
    """How a member joins: one without a heartbeat for its session timeout is removed.

    max_poll_seconds: how long it may take to let go a partition that is being revoked; 0 takes it at once.
    topic_index: the index of the topic among those that the member reads, if it reads several: the partitions of all of
        them are then divided evenly.
    """

    session_timeout_seconds: Annotated[
        float, msgspec.Meta(ge=SESSION_TIMEOUT_SECONDS_MIN, le=SESSION_TIMEOUT_SECONDS_MAX)
    ] = SESSION_TIMEOUT_SECONDS
    max_poll_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_POLL_SECONDS_MAX)] = MAX_POLL_SECONDS
    topic_index: Annotated[int, msgspec.Meta(ge=0)] | None = None


class HeartbeatIn(msgspec.Struct, forbid_unknown_fields=True):
    """What a member acknowledges, if anything: the partitions that it holds, as of a generation that it knows."""

    generation: int | None = None
    partitions: list[int] | None = None


class MemberOut(msgspec.Struct):
    """The state of a member: the group's generation and the partitions to read.

    revoking: partitions that the member still owns and should let go: commit, then fetch, or acknowledge with a
        heartbeat that names only the others.
    seek_generation: the generation that the last seek started; a member with an earlier one drops its positions and
        continues at the committed offsets.
    """

    group: str
    member: str
    generation: int
    partitions: list[int]
    seek_generation: int = 0
    revoking: list[int] = []

    @classmethod
    def of(cls, membership: Membership) -> MemberOut:
        """A membership of the broker as JSON."""
        of = membership
        return cls(of.group, of.member, of.generation, of.partitions, of.seek_generation, of.revoking)


class MemberMessages(msgspec.Struct):
    """Messages of a member's partitions, the positions to continue at, and the generation of the assignment."""

    messages: list[MessageOut]
    positions: list[Position]
    generation: int


_MEMBER = MemberOut("billing", "worker-1", 3, [0, 2])


@put(
    "/topics/{topic:str}/groups/{group:str}/members/{member:str}",
    opt={
        "operation": "join",
        "docs": Docs(body=JoinIn, given=JoinIn(30.0, 300.0), answer=MemberOut, example=_MEMBER, errors=(404, 409)),
    },
    tags=["members"],
    summary="Join a group",
)
async def join_group(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    member: FromPath[str],
    bridge: NamedDependency[Bridge],
) -> MemberOut:
    """Join a group, or renew the membership; the group is created if it does not exist."""
    data = await read(request, JoinIn)
    names = unquoted(topic), unquoted(group), unquoted(member)
    return MemberOut.of(await perform(request, bridge, JoinGroup(*names, *msgspec.structs.astuple(data))))


@post(
    "/topics/{topic:str}/groups/{group:str}/members/{member:str}/heartbeat",
    status_code=200,
    opt={
        "operation": "heartbeat",
        "docs": Docs(body=HeartbeatIn, given=HeartbeatIn(3, [0, 2]), answer=MemberOut, example=_MEMBER, errors=(404,)),
    },
    tags=["members"],
    summary="Send a heartbeat",
)
async def heartbeat(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    member: FromPath[str],
    bridge: NamedDependency[Bridge],
) -> MemberOut:
    """Renew the membership and get the current assignment; fetching renews it too.

    The body may be empty. With one, the member acknowledges which partitions it holds, and lets the others go.
    """
    data = await read(request, HeartbeatIn) if await request.body() else HeartbeatIn()
    names = unquoted(topic), unquoted(group), unquoted(member)
    return MemberOut.of(await perform(request, bridge, Heartbeat(*names, data.generation, data.partitions)))


@delete(
    "/topics/{topic:str}/groups/{group:str}/members/{member:str}",
    opt={"operation": "leave", "docs": Docs(errors=(404,))},
    tags=["members"],
    summary="Leave a group",
)
async def leave_group(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    member: FromPath[str],
    bridge: NamedDependency[Bridge],
) -> None:
    """Leave a group; the other members get its partitions at once. Commit before."""
    await perform(request, bridge, LeaveGroup(unquoted(topic), unquoted(group), unquoted(member)))


@get(
    "/topics/{topic:str}/groups/{group:str}/members/{member:str}/messages",
    opt={
        "operation": "read_as_member",
        "docs": Docs(
            answer=MemberMessages,
            example=MemberMessages([MESSAGE], [Position(0, 42), Position(2, 7)], 3),
            answers_arrow=True,
            errors=(404, 406, 409),
        ),
    },
    tags=["members"],
    summary="Fetch as a member",
)
async def fetch_as_member(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    member: FromPath[str],
    bridge: NamedDependency[Bridge],
    wakes: NamedDependency[LoopWakeups],
    leases: NamedDependency[Leases],
    generation: Annotated[
        int | None, QueryParameter(description="fail if the group has another generation; nothing is let go then", ge=0)
    ] = None,
    positions: Annotated[
        str | None,
        QueryParameter(
            description="positions as partition:offset pairs; default: the committed offsets of the group",
            max_length=1 << 18,
        ),
    ] = None,
    max_messages: MaxMessages = FETCH_MESSAGES_DEFAULT,
    max_bytes: MaxBytes = FETCH_BYTES_DEFAULT,
    wait_seconds: WaitSeconds = 0.0,
    encoding: EncodingParameter = "text",
) -> Response[Any]:
    """Read the member's partitions in turns. A consumer of a fixed group uses its index as its name.

    A fetch lets go the partitions that are being revoked, so commit what was fetched before. Positions of partitions
    that are not the member's are left out, and the answer lists those that are.
    """
    is_arrow = wants_arrow(request)
    reader = await bridge.reader(unquoted(topic))
    names = (unquoted(group), unquoted(member))
    at = {} if positions is None else parse_pairs("positions", positions)
    poll = LongPoll(
        partial(reader.read_as_member, *names, generation, at, max_messages, max_bytes),
        lambda found: bool(found.batches),
        lambda found: reader.is_behind(found.positions) or reader.has_moved(names[0], found.generation),
        lambda found: found.renew_seconds,
    )
    allow_seconds(request, wait_seconds)
    work = wakes.poll(poll, reader, wait_seconds)
    lease = lease_of(request, unquoted(topic), unquoted(group))
    if wait_seconds > 0:
        work = attend(request, work, principal_of(request), lease, leases)
    found = await work
    principal_of(request).joined(unquoted(topic), *names, idle_seconds=0.0)
    return await bridge.call(_answer, found, is_arrow, encoding)


def _answer(found: MemberRead, is_arrow: bool, encoding: Encoding) -> Response[Any]:
    headers = {GENERATION_HEADER: str(found.generation)}
    if is_arrow:
        return Response(stream_of_all(READ_SCHEMA, found.batches), media_type=ARROW, headers=headers)
    answer = {
        "messages": encode_messages(found.batches, encoding),
        "positions": listed(found.positions),
        "generation": found.generation,
    }
    return Response(msgspec.json.encode(answer), media_type=JSON, headers=headers)


HANDLERS = [join_group, heartbeat, leave_group, fetch_as_member]
