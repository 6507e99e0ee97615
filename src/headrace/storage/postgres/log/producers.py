"""The epochs of producers: of several that were opened for one source only the newest may write, through any server.

They are read and written inside a commit of their topic, under its row lock: none is opened while another writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from headrace.storage.postgres.pool import Connection

Source = tuple[str, str]

_PUT = """
INSERT INTO all_producers (topicid, sourcehash, epoch)
SELECT %s, sourcehash, epoch FROM unnest(%s::bytea[], %s::bigint[]) AS given(sourcehash, epoch)
ON CONFLICT (topicid, sourcehash) DO UPDATE SET epoch = greatest(all_producers.epoch, excluded.epoch)"""


class TransactionFences:
    """The epochs of a topic's producers, as one transaction sees and changes them."""

    def __init__(self, connection: Connection, topic_id: int) -> None:
        self._connection = connection
        self._topic_id = topic_id
        self._changed: dict[Source, int] = {}

    def epochs(self, sources: Sequence[Source]) -> dict[Source, int]:
        """The newest epoch of each source that has one."""
        return find_epochs(self._connection, self._topic_id, sources)

    def put(self, source: Source, epoch: int) -> None:
        """Fence producers with older epochs, once the transaction commits."""
        self._changed[source] = epoch

    def save(self) -> None:
        """Store what was put."""
        put_epochs(self._connection, self._topic_id, self._changed)


def find_epochs(connection: Connection, topic_id: int, sources: Sequence[Source]) -> dict[Source, int]:
    """The newest epoch of each source that has one."""
    by_hash = {_hash(source): source for source in sources}
    query = "SELECT sourcehash, epoch FROM all_producers WHERE topicid = %s AND sourcehash = ANY(%s)"
    rows = connection.execute(query, [topic_id, list(by_hash)]).fetchall()
    return {by_hash[bytes(hashed)]: int(epoch) for hashed, epoch in rows}


def put_epochs(connection: Connection, topic_id: int, epochs: Mapping[Source, int]) -> None:
    """Store epochs; they never decrease."""
    if epochs:
        connection.execute(_PUT, [topic_id, [_hash(source) for source in epochs], list(epochs.values())])


def _hash(source: Source) -> bytes:
    """The two ids as one key of fixed length."""
    producer, group = (part.encode(errors="surrogatepass") for part in source)
    return hashlib.sha256(b"%d:%b%b" % (len(producer), producer, group)).digest()
