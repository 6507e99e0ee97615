"""Every operation of every protocol and the right it needs: one table that all protocols use.

HTTP routes name their operation, actions of Flight are called by it, and streams of Flight have the name of their
ticket. What is not in the table is denied. `register_group` creates a group; setting its size or importance needs
`change_group`, because both affect other readers and retention.

Pure: the caller is already authenticated.
"""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import Forbidden, InvalidInput
from headrace.core.rights import Caller, Right


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation needs.

    right: on its topic, or on all topics if it has none; without a right any authenticated caller may call.
    for_group: the right must hold for the group that is named.
    for_producer: the right must hold for the producer id, or the writer of commit keys, that is named.
    is_public: no authentication.
    is_audited: recorded in the audit log when done.
    """

    right: Right | None = None
    for_group: bool = False
    for_producer: bool = False
    is_public: bool = False
    is_audited: bool = False


_PUBLIC: Final = Need(is_public=True)
_KNOWN: Final = Need()
_READ: Final = Need(right=Right.READ)
_READ_AS_GROUP: Final = Need(right=Right.READ, for_group=True)
_PUBLISH: Final = Need(right=Right.PUBLISH, for_producer=True)
# No producer id is involved: the numbers of the queue API deduplicate nothing.
_PUBLISH_NAMELESS: Final = Need(right=Right.PUBLISH)
_MANAGE: Final = Need(right=Right.MANAGE, is_audited=True)
_MANAGE_GROUP: Final = Need(right=Right.MANAGE, for_group=True, is_audited=True)

OPERATIONS: Final[dict[str, Need]] = {
    # The server
    "health": _PUBLIC,
    "docs": _PUBLIC,
    "home": _PUBLIC,
    "metrics": _READ,
    "whoami": _KNOWN,
    "list_servers": _KNOWN,
    "list_actions": _KNOWN,
    # Topics. Only those are listed on which the caller has any right.
    "list_topics": _KNOWN,
    "create_topic": _MANAGE,
    "alter_topic": _MANAGE,
    "delete_topic": _MANAGE,
    "describe_topic": _READ,
    "offsets": _READ,
    "await_offsets": _READ,
    "offset_at": _READ,
    # Messages out
    "read": _READ,
    "follow": _READ,
    "read_as_member": _READ_AS_GROUP,
    # Messages in
    "publish": _PUBLISH,
    "stage": _PUBLISH,
    "publish_staged": _PUBLISH,
    "drop_stages": _PUBLISH_NAMELESS,
    "last_seqno": _PUBLISH,
    "open_producer": _PUBLISH,
    "last_commit": _PUBLISH,
    "list_sources": _PUBLISH_NAMELESS,
    "reset_source": Need(right=Right.MANAGE, for_producer=True, is_audited=True),
    # Groups
    "list_groups": _READ,
    "describe_group": _READ,
    "committed": _READ,
    "register_group": Need(right=Right.READ, for_group=True, is_audited=True),
    "change_group": _MANAGE_GROUP,
    "delete_group": _MANAGE_GROUP,
    "seek": _MANAGE_GROUP,
    "join": _READ_AS_GROUP,
    "heartbeat": _READ_AS_GROUP,
    "leave": _READ_AS_GROUP,
    "commit": _READ_AS_GROUP,
    # The queue API: a consumer is a group of its own, whose name the server gives
    "register_consumer": _READ,
    "register_producer": _PUBLISH_NAMELESS,
    "produce": _PUBLISH_NAMELESS,
    "consume": _READ_AS_GROUP,
    "size": _READ_AS_GROUP,
    "set_offset": _READ_AS_GROUP,
    "status": _PUBLIC,
    "login": _KNOWN,
    "client_size": _KNOWN,
}


def check(
    caller: Caller, operation: str, topic: str = "*", group: str | None = None, producer: str | None = None
) -> None:
    """Raise for an operation that the caller may not do, or that is not in the table."""
    need = OPERATIONS.get(operation)
    if need is None:
        raise Forbidden(caller.name, "call", operation)
    if need.right is not None:
        # Without a group name a limited grant cannot match.
        named = (group or "") if need.for_group else None
        caller.require(need.right, topic, named, producer if need.for_producer else None)


def check_producers(caller: Caller, topic: str, batch: pa.RecordBatch) -> None:
    """Raise for a batch with a producer id that the caller may not use; the batch has been validated."""
    if "producer_id" not in batch.schema.names or caller.may_publish_as_anyone(topic):
        return
    if batch.schema.names.count("producer_id") > 1:
        raise InvalidInput("producer_id", "2 columns", "each column may be given once")
    try:
        producers = pc.unique(batch.column("producer_id").cast(pa.string()))
    except pa.ArrowException as error:
        raise InvalidInput("producer_id", str(batch.schema.field("producer_id").type), str(error)[:200]) from None
    for producer in producers.to_pylist():
        caller.require(Right.PUBLISH, topic, producer=producer or None)


def registration(consumers: int | None, important: bool | None) -> str:
    """The operation behind registering a group: creating one, or changing what affects others."""
    return "register_group" if consumers is None and important is None else "change_group"
