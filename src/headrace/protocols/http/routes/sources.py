"""Sources over HTTP: list, last seqno, reset; and the last commit of a commit key writer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from headrace.core.errors import InvalidInput
from headrace.core.limits import ID_CHARACTERS_MAX, SOURCES_LISTED, SOURCES_LISTED_MAX
from headrace.edge.bridge import Bridge
from headrace.protocols.http.answers import perform
from headrace.protocols.http.openapi.document import Docs
from headrace.protocols.http.requests.raw_paths import unquoted
from headrace.wire.operations import LastCommit, LastSeqno, ListSources, ResetSource


class SourceOut(msgspec.Struct):
    """A source and its highest written seqno; null if there is none."""

    producer_id: str
    message_group_id: str
    last_seqno: int | None


class SourceListed(msgspec.Struct):
    """A source: its last seqno, the partition it is linked to, and when it last wrote, in microseconds."""

    producer_id: str
    message_group_id: str
    last_seqno: int | None
    partition: int | None
    last_seen_us: int


class SourcesOut(msgspec.Struct):
    """The sources that wrote last, newest first."""

    sources: list[SourceListed]


class SourceReset(msgspec.Struct):
    """A source that was reset, and its former last seqno; null if there was none."""

    producer_id: str
    message_group_id: str
    forgotten_seqno: int | None


class WriterOut(msgspec.Struct):
    """A commit key writer, and the number of its last commit; null if there is none."""

    writer: str
    last_commit: int | None


GroupId = Annotated[
    str, QueryParameter(description="the source's message group, if it has one", max_length=ID_CHARACTERS_MAX)
]


@get(
    "/topics/{topic:str}/sources",
    opt={
        "operation": "list_sources",
        "docs": Docs(
            answer=SourcesOut,
            example=SourcesOut([SourceListed("till-7", "", 4711, 3, 1_789_000_000_000_000)]),
            errors=(404,),
        ),
    },
    tags=["sources"],
    summary="List sources",
)
async def list_sources(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    bridge: NamedDependency[Bridge],
    producer_id: Annotated[
        str | None, QueryParameter(description="only the sources of this producer", max_length=ID_CHARACTERS_MAX)
    ] = None,
    max_sources: Annotated[
        int, QueryParameter(description="maximum number of sources", ge=1, le=SOURCES_LISTED_MAX)
    ] = (SOURCES_LISTED),
) -> SourcesOut:
    """List the sources that wrote last, newest first, with last seqno, linked partition and time."""
    found = await perform(request, bridge, ListSources(unquoted(topic), producer_id, max_sources))
    return SourcesOut([SourceListed(**asdict(source)) for source in found])


@delete(
    "/topics/{topic:str}/sources/{producer:str}",
    opt={
        "operation": "reset_source",
        "docs": Docs(answer=SourceReset, example=SourceReset("till-7", "", 4711), errors=(404,)),
    },
    tags=["sources"],
    summary="Reset a source",
    status_code=200,
)
async def reset_source(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    producer: FromPath[str],
    bridge: NamedDependency[Bridge],
    message_group_id: GroupId = "",
) -> SourceReset:
    """Reset the last seqno, so that the next message may have any. Messages sent again are written again."""
    producer_id = _producer_id(producer)
    forgotten = await perform(request, bridge, ResetSource(unquoted(topic), producer_id, message_group_id))
    return SourceReset(producer_id, message_group_id, forgotten)


@get(
    "/topics/{topic:str}/sources/{producer:str}",
    opt={
        "operation": "last_seqno",
        "docs": Docs(answer=SourceOut, example=SourceOut("till-7", "", 4711), errors=(404,)),
    },
    tags=["sources"],
    summary="Last seqno of a source",
)
async def describe_source(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    producer: FromPath[str],
    bridge: NamedDependency[Bridge],
    message_group_id: GroupId = "",
) -> SourceOut:
    """Get the highest seqno written for a producer: messages up to it are dropped as duplicates."""
    producer_id = _producer_id(producer)
    last = await perform(request, bridge, LastSeqno(unquoted(topic), producer_id, message_group_id))
    return SourceOut(producer_id, message_group_id, last)


@get(
    "/topics/{topic:str}/writers/{writer:str}",
    opt={"operation": "last_commit", "docs": Docs(answer=WriterOut, example=WriterOut("nightly", 12), errors=(404,))},
    tags=["sources"],
    summary="Last commit of a writer",
)
async def describe_writer(
    request: Request[Any, Any, Any], topic: FromPath[str], writer: FromPath[str], bridge: NamedDependency[Bridge]
) -> WriterOut:
    """Get the number of the last commit with a commit key: a commit at or below it publishes nothing."""
    name = unquoted(writer)
    return WriterOut(name, await perform(request, bridge, LastCommit(unquoted(topic), name)))


def _producer_id(given: str) -> str:
    producer_id = unquoted(given)
    if len(producer_id) > ID_CHARACTERS_MAX:
        rule = f"at most {ID_CHARACTERS_MAX} characters"
        raise InvalidInput("producer_id", f"{len(producer_id)} characters long", rule)
    return producer_id


HANDLERS = [list_sources, describe_source, reset_source, describe_writer]
