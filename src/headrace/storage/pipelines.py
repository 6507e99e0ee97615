"""The last report of each pipeline, as rows of the catalog, the same on every engine.

A row belongs to a topic and is deleted with it. A topic keeps a bounded number of rows: above it those that reported
longest ago are removed, so that nobody who reports to one topic can remove the rows of another. Thread-safe.

Why rows and not a topic: a listing needs the last report of each pipeline and nothing older, which is one query here,
and would be a scan of an internal topic that has to be hidden, granted and kept short. Why not the group of a pipeline:
one that loads files has no group, and a group's row is locked by every commit and heartbeat.
"""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import Connection, delete, select
from sqlalchemy.exc import IntegrityError

from headrace.core.errors import TopicDeleted
from headrace.core.limits import PIPELINES_PER_TOPIC_MAX
from headrace.core.reports.pipelines import PipelineReport
from headrace.storage.tables import all_pipelines
from headrace.storage.transactions import Transactions

_REPORT: Final = msgspec.json.Decoder(PipelineReport)
_KEYS: Final = ["topicid", "pipelinename"]


class Pipelines:
    """The pipelines that report to the topics of a store."""

    def __init__(self, transactions: Transactions) -> None:
        self._do = transactions.do
        self._upsert = transactions.upsert

    def put(self, topic_id: int, topic: str, name: str, report: PipelineReport, now_us: int) -> None:
        """Store the last report of a pipeline."""
        values = {"report": msgspec.json.encode(report).decode(), "reported_us": now_us}
        row = self._upsert(all_pipelines).values(topicid=topic_id, pipelinename=name, **values)
        row = row.on_conflict_do_update(index_elements=_KEYS, set_=values)
        columns = all_pipelines.c
        kept = (
            select(columns.pipelinename)
            .where(columns.topicid == topic_id)
            .order_by(columns.reported_us.desc(), columns.pipelinename)
            .limit(PIPELINES_PER_TOPIC_MAX)
        )
        trim = delete(all_pipelines).where(columns.topicid == topic_id, columns.pipelinename.not_in(kept))

        def put(connection: Connection) -> None:
            try:
                connection.execute(row)
            except IntegrityError:
                raise TopicDeleted(topic) from None
            connection.execute(trim)

        self._do(put)

    def all(self) -> list[tuple[int, str, PipelineReport, int]]:
        """Topic id, name, last report and its time of every pipeline, by topic and name."""
        query = select(all_pipelines).order_by(all_pipelines.c.topicid, all_pipelines.c.pipelinename)
        rows = self._do(lambda connection: connection.execute(query).all())
        return [(row.topicid, row.pipelinename, _REPORT.decode(row.report), row.reported_us) for row in rows]

    def forget(self, silent_since_us: int) -> int:
        """Remove the pipelines that have not reported since; how many."""
        statement = delete(all_pipelines).where(all_pipelines.c.reported_us < silent_since_us)
        return self._do(lambda connection: connection.execute(statement).rowcount)
