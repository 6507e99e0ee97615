"""An outbox: messages that a program writes in a transaction of its own database, and a relay that publishes them.

    outbox = outbox_table(metadata)                                     once, beside your own tables
    session.execute(outbox.insert().values(topic="orders", key=b"ann", value=b"42"))
    Relay(engine, client).run_once()                                    somewhere else, again and again

Ids of a sequence are given when a row is inserted, and rows become visible when they are committed: a lower id may
become visible after a higher one was published. As a seqno such an id is taken for a duplicate, and its message is
lost. So the relay numbers the rows itself, once they are visible:

    number     rows without a number get the next ones of their topic, in a transaction of your database
    publish    rows with a number, which is their seqno: sent again after a failure, they are duplicates
    delete     rows that the topic has

Whatever fails between two steps, the next run continues: each row is published exactly once, and rows of transactions
that follow one another stay in that order. The last number of each topic is in a table too, so that a relay that was
replaced, and does not know it yet, gives no number twice. One relay runs at a time: another takes over its producer id,
and the first ends with `ProducerFenced`. Not thread-safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.core.errors import InvalidInput
from headrace.extras import needing

if TYPE_CHECKING:
    from headrace.client import Client, Producer

with needing("broker"):
    import sqlalchemy as sa

TABLE: Final = "headrace_outbox"
PRODUCER_ID: Final = "outbox"
_ROWS_AT_ONCE: Final = 1_000


def outbox_table(metadata: sa.MetaData | None = None, name: str = TABLE) -> sa.Table:
    """The table of an outbox, for `metadata.create_all` or a migration; you insert topic, value, key and attributes.

    A second one beside it, `NAME_numbers`, has the last number of each topic.
    """
    metadata = sa.MetaData() if metadata is None else metadata
    sa.Table(
        f"{name}_numbers",
        metadata,
        sa.Column("topic", sa.String(255), primary_key=True),
        sa.Column("last", sa.BigInteger, nullable=False),
    )
    return sa.Table(
        name,
        metadata,
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("topic", sa.String(255), nullable=False),
        sa.Column("key", sa.LargeBinary),
        sa.Column("value", sa.LargeBinary),
        # Names and texts.
        sa.Column("attributes", sa.JSON(none_as_null=True)),
        # Of the relay.
        sa.Column("seqno", sa.BigInteger),
        sa.UniqueConstraint("topic", "seqno", name=f"{name}_seqno"),
    )


class Relay:
    """Publishes the rows of an outbox. `client` and `engine` stay yours to close."""

    def __init__(
        self, engine: sa.Engine, client: Client, *, table: sa.Table | None = None, producer_id: str = PRODUCER_ID
    ) -> None:
        self._engine = engine
        self._client = client
        self._table = outbox_table() if table is None else table
        self._numbers = self._table.metadata.tables[f"{self._table.name}_numbers"]
        self._producer_id = producer_id
        self._producers: dict[str, Producer] = {}

    def run_once(self, max_rows: int = _ROWS_AT_ONCE) -> int:
        """Publish what is committed, at most so many rows; returns how many."""
        self._number(max_rows)
        rows = self._numbered(max_rows)
        for topic in dict.fromkeys(row.topic for row in rows):
            self._publish(topic, [row for row in rows if row.topic == topic])
        return len(rows)

    def close(self) -> None:
        """Close the producers."""
        for producer in self._producers.values():
            producer.close()
        self._producers.clear()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _number(self, max_rows: int) -> None:
        table = self._table
        waiting = sa.select(table.c.id, table.c.topic).where(table.c.seqno.is_(None)).order_by(table.c.id)
        with self._engine.begin() as connection:
            rows = connection.execute(waiting.limit(max_rows)).all()
            counts = Counter(row.topic for row in rows)
            # In one order, so that two relays do not wait for each other.
            numbers = {topic: self._take_numbers(connection, topic, counts[topic]) for topic in sorted(counts)}
            numbered = [{"row": row.id, "number": next(numbers[row.topic])} for row in rows]
            if numbered:
                # Another relay may have numbered a row since, and published it.
                given = sa.update(table).where(table.c.id == sa.bindparam("row"), table.c.seqno.is_(None))
                connection.execute(given.values(seqno=sa.bindparam("number")), numbered)

    def _take_numbers(self, connection: sa.Connection, topic: str, count: int) -> Iterator[int]:
        """The next numbers of a topic, which no other relay gets; its row stays locked until they are stored."""
        numbers = self._numbers
        of_topic = numbers.c.topic == topic
        taken = sa.update(numbers).where(of_topic).values(last=numbers.c.last + count)
        if not connection.execute(taken).rowcount:
            connection.execute(numbers.insert().values(topic=topic, last=count))
        last = connection.execute(sa.select(numbers.c.last).where(of_topic)).scalar_one()
        # A database that was restored may be behind the topic.
        written = self._producer(topic).last_seqno or 0
        if last - count < written:
            last = written + count
            connection.execute(sa.update(numbers).where(of_topic).values(last=last))
        return iter(range(last - count + 1, last + 1))

    def _numbered(self, max_rows: int) -> Sequence[Any]:
        table = self._table
        chosen = sa.select(table).where(table.c.seqno.is_not(None)).order_by(table.c.topic, table.c.seqno)
        with self._engine.connect() as connection:
            return connection.execute(chosen.limit(max_rows)).all()

    def _publish(self, topic: str, rows: Sequence[Any]) -> None:
        producer = self._producer(topic)
        sent = [
            producer.send(
                row.value,
                row.key,
                None if row.attributes is None else {name: text.encode() for name, text in row.attributes.items()},
                seqno=row.seqno,
            )
            for row in rows
        ]
        producer.flush()
        for row, future in zip(rows, sent, strict=True):
            if future.result().status == "conflict":
                rule = f"seqno {row.seqno} of topic {topic!r} was used for another message: only one relay may use it"
                raise InvalidInput("producer_id", repr(self._producer_id), rule)
        with self._engine.begin() as connection:
            gone = sa.delete(self._table).where(self._table.c.id == sa.bindparam("row"))
            connection.execute(gone, [{"row": row.id} for row in rows])

    def _producer(self, topic: str) -> Producer:
        if topic not in self._producers:
            self._producers[topic] = self._client.producer(topic, self._producer_id)
        return self._producers[topic]
