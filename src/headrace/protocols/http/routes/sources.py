"""Where producers go on: the last seqno of a source, and the last commit of a writer of commit keys."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from headrace.core.errors import InvalidInput
from headrace.core.limits import ID_CHARACTERS_MAX
from headrace.edge.bridge import Bridge
from headrace.protocols.http.openapi.document import Docs
from headrace.protocols.http.requests.raw_paths import unquoted


class SourceOut(msgspec.Struct):
    """A source, and the highest seqno that was written for it; null if there is none."""

    producer_id: str
    message_group_id: str
    last_seqno: int | None


class WriterOut(msgspec.Struct):
    """A writer of commit keys, and the number of its last commit; null if there is none."""

    writer: str
    last_commit: int | None


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
    topic: FromPath[str],
    producer: FromPath[str],
    bridge: NamedDependency[Bridge],
    message_group_id: Annotated[
        str, QueryParameter(description="the source's message group, if it has one", max_length=ID_CHARACTERS_MAX)
    ] = "",
) -> SourceOut:
    """The highest seqno written for a producer: messages up to it would be dropped as duplicates."""
    producer_id = unquoted(producer)
    if len(producer_id) > ID_CHARACTERS_MAX:
        rule = f"at most {ID_CHARACTERS_MAX} characters"
        raise InvalidInput("producer_id", f"{len(producer_id)} characters long", rule)
    last = await bridge.call(bridge.broker.last_seqno, unquoted(topic), producer_id, message_group_id)
    return SourceOut(producer_id, message_group_id, last)


@get(
    "/topics/{topic:str}/writers/{writer:str}",
    opt={"operation": "last_commit", "docs": Docs(answer=WriterOut, example=WriterOut("nightly", 12), errors=(404,))},
    tags=["sources"],
    summary="Last commit of a writer",
)
async def describe_writer(topic: FromPath[str], writer: FromPath[str], bridge: NamedDependency[Bridge]) -> WriterOut:
    """The number of the last commit with a commit key: one at or below it publishes nothing."""
    name = unquoted(writer)
    return WriterOut(name, await bridge.call(bridge.broker.last_commit, unquoted(topic), name))


HANDLERS = [describe_source, describe_writer]
