"""Every operation of every protocol and the right it needs: one table that all protocols use.

An operation that has a struct in `wire.operations` says there what it needs; the others are listed here. HTTP routes
name their operation, actions of Flight are called by it, and streams of Flight have the name of their ticket. What is
not in the table is denied.

Pure: the caller is already authenticated.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import Forbidden, InvalidInput
from headrace.core.rights import Caller, Need, Right
from headrace.wire import operations as wire

_PUBLIC: Final = Need(is_public=True)
_AUTHENTICATED: Final = Need()
_READ: Final = Need(right=Right.READ)
_READ_AS_GROUP: Final = Need(right=Right.READ, for_group=True)
_PUBLISH: Final = Need(right=Right.PUBLISH)
_PUBLISH_AS_PRODUCER: Final = Need(right=Right.PUBLISH, for_producer=True)

OPERATIONS: Final[dict[str, Need]] = {
    **{name: kind.need for name, kind in wire.OPERATIONS.items()},
    # The server
    "health": _PUBLIC,
    "docs": _PUBLIC,
    "home": _PUBLIC,
    "metrics": _READ,
    "list_actions": _AUTHENTICATED,
    # Streams of messages
    "read": _READ,
    "follow": _READ,
    "read_as_member": _READ_AS_GROUP,
    "follow_as_member": _READ_AS_GROUP,
    "publish": _PUBLISH_AS_PRODUCER,
    "stage": _PUBLISH_AS_PRODUCER,
    # Registering a group with a size or importance, see `RegisterGroup.needed`
    "change_group": Need(right=Right.MANAGE, for_group=True, is_audited=True),
    # A commit of Kafka's clients to an offset below the committed one
    "commit_back": Need(right=Right.READ, for_group=True, moves_back=True, is_audited=True),
    # The queue API: a consumer is a group of its own, which the server names; its numbers deduplicate nothing
    "register_consumer": _READ_AS_GROUP,
    "register_producer": _PUBLISH,
    "produce": _PUBLISH,
    "consume": _READ_AS_GROUP,
    "size": _READ_AS_GROUP,
    "set_offset": _READ_AS_GROUP,
    "status": _PUBLIC,
    "login": _AUTHENTICATED,
    "client_size": _AUTHENTICATED,
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
    if need.moves_back and not caller.may_move_back(topic, group or ""):
        raise Forbidden(caller.name, Right.MANAGE, topic, group or "")
    if need.any_right:
        caller.require_any(topic)
    if need.full_access:
        caller.require_full_access()


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
