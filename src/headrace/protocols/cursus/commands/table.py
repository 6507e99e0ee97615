"""Every command: its handler, and what its failures are called.

Those of a server of several, and those that administer one, are answered as unknown: each server here serves all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from headrace.protocols.cursus.call import CursusAnswer, CursusCall, Negotiated
from headrace.protocols.cursus.commands import (
    consume,
    discovery,
    events,
    groups,
    offsets,
    publish,
    topics,
    transactions,
)
from headrace.protocols.cursus.messages.command import Command

Handler = Callable[[CursusCall, Command], Awaitable[CursusAnswer]]

# What a batch is called in metrics: it is no command.
BATCH: Final = "BATCH"


def _help(_: Command, __: Negotiated) -> str:
    return f"OK commands={','.join([*SERVED, *PUBLIC, _EXIT])}"


_EXIT: Final = "EXIT"


async def _leave(_: CursusCall, __: Command) -> None:
    """End the connection."""


# Those that need no caller.
PUBLIC: Final[dict[str, Callable[[Command, Negotiated], str]]] = {
    "PROTOCOL_INFO": discovery.protocol_info,
    "NEGOTIATE": discovery.negotiate,
    "AUTH": discovery.authenticated,
    "HELP": _help,
}
SERVED: Final[dict[str, Handler]] = {
    "CREATE": topics.create,
    "DELETE": topics.delete,
    "LIST": discovery.list_topics,
    "PUBLISH": publish.publish_text,
    "CONSUME": consume.consume,
    "STREAM": consume.stream,
    "JOIN_GROUP": groups.join,
    "SYNC_GROUP": groups.sync,
    "LEAVE_GROUP": groups.leave,
    "HEARTBEAT": groups.heartbeat,
    "COMMIT_OFFSET": offsets.commit,
    "BATCH_COMMIT": offsets.commit_many,
    "FETCH_OFFSET": offsets.fetch,
    "LIST_OFFSETS": discovery.list_offsets,
    "REGISTER_GROUP": groups.register,
    "GROUP_STATUS": groups.status,
    "LIST_GROUPS": groups.list_groups,
    "DESCRIBE": discovery.describe,
    "METADATA": discovery.metadata,
    "FIND_COORDINATOR": discovery.find_coordinator,
    "APPEND_STREAM": events.append,
    "READ_STREAM": events.read_stream,
    "STREAM_VERSION": events.version,
    "SAVE_SNAPSHOT": events.save_snapshot,
    "READ_SNAPSHOT": events.read_snapshot,
    "INIT_PRODUCER_ID": transactions.init_producer_id,
    "BEGIN_TXN": transactions.begin,
    "TXN_PUBLISH": transactions.publish,
    "SEND_OFFSETS_TO_TXN": transactions.send_offsets,
    "END_TXN": transactions.end,
    "TXN_STATUS": transactions.status,
}
UNSERVED: Final = ("LIST_CLUSTER", "CLUSTER_STATUS", "ELECT_LEADER")
HANDLERS: Final[dict[str, Handler]] = {**SERVED, **dict.fromkeys(UNSERVED, discovery.not_served), _EXIT: _leave}
COMMANDS: Final = frozenset({*HANDLERS, *PUBLIC})

# What an error that has no code of its own is called.
FAILED: Final = {
    "CREATE": "create_topic_failed",
    "DELETE": "delete_topic_failed",
    "PUBLISH": "broker_error",
    "JOIN_GROUP": "register_group_failed",
    "REGISTER_GROUP": "register_group_failed",
    "GROUP_STATUS": "group_status_failed",
    "APPEND_STREAM": "append_stream_failed",
    "SAVE_SNAPSHOT": "snapshot_save_failed",
    "READ_SNAPSHOT": "snapshot_read_failed",
    "TXN_PUBLISH": "transaction_publish_failed",
    "END_TXN": "transaction_commit_failed",
}
