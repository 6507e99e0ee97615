"""The description of a pipeline: source, deduplication, steps, sink, dead letters, and how it runs.

    [source] ──► typed by a schema ──► [deduplicate] ──► [[steps]] ──► [sink]
                       └── invalid rows ──► [dead_letters]

Values only, as the TOML file has them. `load` makes them, `check` says whether they fit together, and neither knows
Spark. docs/pipelines.md explains every key to users.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from headrace.core.limits import WINDOW_SECONDS_DEFAULT
from headrace.spark.connection import default_url
from headrace.spark.reader.topic_selection import selects

Mode = Literal["stream", "batch"]
# Where to begin or end: for all partitions, by partition, or by topic.
Place = str | int | dict[str, str | int | dict[str, str | int]]
# Files of these formats are put into a table by Headrace itself, each micro-batch once.
FILE_FORMATS: Final = frozenset({"parquet", "orc", "json", "csv", "text"})
TABLE_FORMATS: Final = FILE_FORMATS | {"delta"}
# What a row can be written with besides its value, each as an SQL expression.
MESSAGE_COLUMNS: Final = (
    "value",
    "key",
    "partition",
    "producer_id",
    "message_group_id",
    "seqno",
    "codec",
    "created_at",
)


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class ServerSection(Section, frozen=True, kw_only=True):
    """The broker, for all parts that do not name another.

    If `url` or `token` is omitted, HEADRACE_URL and HEADRACE_TOKEN are used when set.
    """

    url: str | None = None
    token: str | None = None
    ca: str | None = None


class TopicSource(Section, frozen=True, kw_only=True):
    """Messages of topics: those named in `topic`, or those whose names match the regular expression `topic_pattern`.

    watermark, watermark_delay_seconds: the event time of rows, a timestamp in SQL, and how much later than the newest
        a row may come; for aggregations over windows and for joins of streams.
    values: with `typed` the fields of values are columns, by the schema of the topics; `columns` may name some.
    on_undecodable: what to do with a value that cannot be decoded by its codec; if omitted, it goes to the dead
        letters if there are any, otherwise it fails the pipeline.
    """

    topic: str | None = None
    topic_pattern: str | None = None
    mode: Mode = "stream"
    url: str | None = None
    schema: str | None = None
    values: Literal["raw", "typed"] = "raw"
    group: str | None = None
    important: bool | None = None
    starting_offsets: Place | None = None
    ending_offsets: Place | None = None
    starting_timestamp: Place | None = None
    ending_timestamp: Place | None = None
    max_messages_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_messages_per_trigger: int | None = None
    max_trigger_delay_seconds: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool | None = None
    decode: bool | None = None
    on_undecodable: Literal["raise", "raw", "skip"] | None = None
    columns: list[str] | None = None
    watermark: str | None = None
    watermark_delay_seconds: float = 0.0
    options: dict[str, str] = {}

    @property
    def topics(self) -> list[str]:
        """The topics by name; none if a pattern selects them."""
        return [] if self.topic is None else [name.strip(" ") for name in self.topic.split(",")]

    @property
    def is_typed(self) -> bool:
        """Whether values have columns, and may not fit them."""
        return self.schema is not None or self.values == "typed"

    @property
    def selection(self) -> dict[str, str]:
        """The option of the data source that selects the topics."""
        return {"topicPattern": self.topic_pattern} if self.topic_pattern is not None else {"topic": self.topic or ""}

    def selects(self, topic: str) -> bool:
        """Whether a topic of this name is read. Names are case-insensitive, as in the broker."""
        return selects(topic, self.topics, self.topic_pattern)

    def __str__(self) -> str:
        """What it reads, for people."""
        return f"topic {self.topic}" if self.topic_pattern is None else f"topics {self.topic_pattern}"


class FormatSource(Section, frozen=True, kw_only=True):
    """Anything else that Spark reads."""

    format: str
    mode: Mode = "batch"
    path: str | None = None
    schema: str | None = None
    watermark: str | None = None
    watermark_delay_seconds: float = 0.0
    options: dict[str, str] = {}


class Deduplicate(Section, frozen=True, kw_only=True):
    """How duplicates are found: by payload, by source and seqno, or by columns; and for how long."""

    by: Literal["payload", "source"] | list[str]
    window_seconds: float = float(WINDOW_SECONDS_DEFAULT)
    time: str | None = None


class Step(Section, frozen=True, kw_only=True):
    """SQL over the previous steps, or a function of a DataFrame."""

    name: str
    sql: str | None = None
    function: str | None = None


class TopicSink(Section, frozen=True, kw_only=True):
    """A topic to publish to; columns of the message are SQL expressions, or columns of the step that is written.

    values: with `typed` the other columns are fields of values, by the schema of the topic.
    """

    topic: str
    step: str | None = None
    url: str | None = None
    values: Literal["raw", "typed"] = "raw"
    value: str | None = None
    key: str | None = None
    attributes: dict[str, str] = {}
    partition: str | None = None
    producer_id: str | None = None
    message_group_id: str | None = None
    seqno: str | None = None
    codec: str | None = None
    created_at: str | None = None
    keep_sources: bool = False
    order_by: list[str] = []
    partitions: int | None = None
    settings: dict[str, Any] = {}
    sink_id: str | None = None


class TableSink(Section, frozen=True, kw_only=True):
    """A table of files, or anything else that Spark writes.

    mode: `append`, or `upsert` into a Delta table: a row replaces the one with the same `keys`. If a batch has several
        rows of a key, the last one in the order of `order_by` counts.
    delete_when: a condition in SQL; a row that fulfils it removes the row with its keys.
    """

    format: str
    step: str | None = None
    path: str | None = None
    mode: Literal["append", "upsert"] = "append"
    keys: list[str] = []
    delete_when: str | None = None
    partition_by: list[str] = []
    partition_date: str | None = None
    order_by: list[str] = []
    compact_files: int | None = None
    compact_bytes: int = 128 << 20
    sink_id: str | None = None
    options: dict[str, str] = {}

    @property
    def is_table(self) -> bool:
        """Whether Headrace itself commits what is written, each batch once."""
        return self.format in TABLE_FORMATS


class DatabaseSink(Section, frozen=True, kw_only=True):
    """A table of PostgreSQL; `database` is a URL as libpq takes it, for the driver and all executors.

    mode: `append`, or `upsert`: a row replaces the one with the same `keys`, for which the table needs a unique index.
        If a batch has several rows of a key, the last one in the order of `order_by` counts.
    """

    database: str
    table: str
    step: str | None = None
    mode: Literal["append", "upsert"] = "append"
    keys: list[str] = []
    order_by: list[str] = []
    sink_id: str | None = None


class ReportSink(Section, frozen=True, kw_only=True):
    """Rows to print; if any matches the condition, the pipeline ends with exit code 1."""

    format: Literal["report"]
    fail_when: str | None = None
    order_by: list[str] = []


class DeadTopic(Section, frozen=True, kw_only=True):
    """A topic for rows that do not match the schema."""

    topic: str
    url: str | None = None
    partitions: int | None = None
    settings: dict[str, Any] = {}


class DeadTable(Section, frozen=True, kw_only=True):
    """A table for rows that do not match the schema."""

    format: str
    path: str


class Run(Section, frozen=True, kw_only=True):
    """How a pipeline runs; a trigger of 0 seconds starts the next batch at once.

    report: whether it reports its progress to the broker, for `headrace pipeline list` and the console.
    load_id: identifies a batch load, so that a second run loads nothing.
    """

    checkpoint: str | None = None
    trigger_seconds: float | None = None
    output_mode: Literal["append", "update"] = "append"
    report: bool = True
    load_id: str | None = None


class SampleTest(Section, frozen=True, kw_only=True):
    """Sample rows in, and the rows that must come out; of these only the columns that are named are compared."""

    name: str
    source: list[dict[str, Any]] = []
    sources: dict[str, list[dict[str, Any]]] = {}
    expect: list[dict[str, Any]] = []
    dead_letters: int | None = None


Source = TopicSource | FormatSource
NamedSink = TopicSink | TableSink | DatabaseSink
Sink = NamedSink | ReportSink
DeadLetters = DeadTopic | DeadTable


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """A whole pipeline; `directory` is that of its file, where modules of steps are found."""

    name: str
    server: ServerSection
    source: Source
    deduplicate: Deduplicate | None
    steps: list[Step]
    sink: Sink
    dead_letters: DeadLetters | None
    run: Run
    spark: dict[str, str]
    sources: dict[str, Source] = {}
    sinks: dict[str, NamedSink] = {}
    tests: list[SampleTest] = []
    directory: str | None = None

    @property
    def is_stream(self) -> bool:
        """Whether it runs until it is stopped."""
        return self.source.mode == "stream"

    @property
    def buries_undecodable(self) -> bool:
        """Whether values that cannot be decoded go to the dead letters."""
        source = self.source
        if self.dead_letters is None or not isinstance(source, TopicSource) or source.decode is False:
            return False
        has_value = source.columns is None or "value" in source.columns or source.values == "typed"
        return source.on_undecodable is None and has_value

    def reading(self, source: Source) -> Description:
        """The same pipeline with another source and nothing else that concerns rows that are read."""
        return msgspec.structs.replace(self, source=source, deduplicate=None, dead_letters=None)

    def url_of(self, part: TopicSource | TopicSink | DeadTopic) -> str:
        """The broker of a part."""
        return part.url or self.server.url or default_url()
