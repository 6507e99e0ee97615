"""Prints docs/limits.md: every limit, from core/limits.py and the settings of a server.

`make docs` runs it, and tests/docs/test_limits.py compares the page with what it prints: a limit without a meaning here
fails there.
"""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from headrace.cli.server.settings import ServeSettings
from headrace.core import limits
from headrace.core.reports.server_settings import is_fixed
from headrace.core.text import counted

HEAD: Final = """# Limits

Every limit, with its value in this version. A number without a unit is a count. What is refused names the limit and
the value, and says whether a retry helps ([guarantees](guarantees.md)). `docs/reference/generate_limits.py` prints
this page.

"""
SETTINGS_HEAD: Final = """
## Set by the operator

Settings of a server: `--set NAME=VALUE`, `HEADRACE_…` or the file ([operations](operations.md)). Settings of a topic
are in [the command line](reference/cli.md), the defaults of new topics in `topic_defaults`.

| setting | default | from | to | meaning |
|---|---|---|---|---|
"""
# What the names of settings that bound something end with.
ENDINGS: Final = ("_max", "_seconds", "_days", "_bytes", "_per_second")
# By section: each limit of core/limits.py and what it bounds.
MEANINGS: Final[dict[str, dict[str, str]]] = {
    "Names and sizes": {
        "NAME_CHARACTERS_MAX": "characters of a name of a topic or group",
        "ID_CHARACTERS_MAX": "characters of a producer id, a message group id, a member id",
        "COMBINING_MARKS_MAX": "combining marks in a row in a name or id",
        "MESSAGE_BYTES_DEFAULT": "value, key and attributes of a message together, unless its topic says otherwise",
        "MESSAGE_BYTES_MAX": "the most that a topic may say",
        "ATTRIBUTES_PER_MESSAGE_MAX": "attributes of a message",
        "DECODED_MESSAGE_BYTES_MAX": "a value once it is decompressed",
        "DECODED_BATCH_BYTES_MAX": "all values of a batch once they are decompressed; beyond it a batch comes in parts",
        "BATCH_ROWS_MAX": "messages of one publish",
        "BATCH_BYTES_MAX": "bytes of one publish",
        "ANNOTATIONS_MAX": "annotations of a topic",
        "ANNOTATIONS_BYTES_MAX": "bytes of the annotations of a topic",
        "COMMIT_METADATA_BYTES_MAX": "what a client of Kafka may keep beside a committed offset",
        "COMMIT_NOTES_FREE_BYTES": "what a group may keep beside its committed offsets in one topic in any case",
        "COMMIT_NOTES_BYTES_MAX": "what groups with more may keep together in one topic; those of one caller a quarter",
    },
    "Topics, partitions, groups": {
        "PARTITIONS_MAX": "partitions of a topic",
        "TOPICS_MAX": "topics of a store, whatever its settings say",
        "TOPICS_IN_STORE": "topics of a store: default of `broker.topics_max`",
        "PARTITIONS_IN_STORE": "partitions of all topics: default of `broker.partitions_max`",
        "GROUPS_PER_TOPIC": "groups of a topic: default of `broker.groups_per_topic_max`",
        "MEMBERS_PER_GROUP": "members of a group: default of `broker.members_per_group_max`",
        "GROUP_CONSUMERS_MAX": "consumers of a group of fixed size",
        "SUBSCRIPTION_PARTITIONS_MAX": "partitions of a topic that server-sent events can follow",
        "PIPELINES_PER_TOPIC_MAX": "pipelines that a topic remembers",
        "GRANTS_PER_TOKEN_MAX": "grants of a token, and patterns of its groups and producer ids",
    },
    "Time": {
        "RETENTION_SECONDS_MAX": "the longest retention that is not `none`",
        "RETENTION_BYTES_MAX": "the largest retention by size that is not `none`",
        "WRITE_BYTES_MAX": "the largest limit of the write speed of a partition, in bytes, and its largest burst",
        "WRITE_WAIT_SECONDS_MAX": "how much later at most a publisher is answered that exceeds the write speed",
        "WRITE_DEBT_SECONDS_MAX": "how far a partition may be behind, in seconds of its write speed; more is forgiven",
        "CREATED_AT_US_MIN": "the earliest time of creation of a message, in microseconds since 1970: the year 1",
        "CREATED_AT_US_MAX": "the latest: the year 9999",
        "TIME_US_MAX": "the latest time that can be asked for, in microseconds since 1970",
        "SESSION_TIMEOUT_SECONDS": "silence after which a member is removed, unless it asks for another time",
        "SESSION_TIMEOUT_SECONDS_MIN": "the least that it may ask for",
        "SESSION_TIMEOUT_SECONDS_MAX": "the most that it may ask for",
        "MAX_POLL_SECONDS": "time between two polls of a member, before the partitions that it was to let go are taken",
        "MAX_POLL_SECONDS_MAX": "the most that it may ask for",
        "FETCH_WAIT_SECONDS_MAX": "the wait of a long poll",
        "PUBLISH_TIMEOUT_SECONDS": "wait of a publisher for space in the queue, unless it says another time",
        "STAGE_IDLE_SECONDS": "a staged publish without activity is dropped",
        "PIPELINE_SILENT_SECONDS": "silence after which a running pipeline counts as lost",
        "PIPELINE_KEPT_SECONDS": "how long a silent pipeline is listed",
        "CLOCK_JUMP_SECONDS": "movement of the wall clock that is reported",
        "STOP_SECONDS": "how long a stop waits for running requests, and again for the store",
    },
    "Exactly once": {
        "SEQNO_MAX": "the highest seqno",
        "SEQNO_JUMP_MAX": "how far a seqno may be above the last one of its source; more is refused as a mistake",
        "SOURCES_MAX": "sources that a topic remembers",
        "LINK_IDLE_SECONDS": "idle time after which a source loses its link to a partition",
        "WRITERS_MAX": "writers of commit keys that a topic remembers",
        "ONE_TIME_WRITERS_MAX": "writers of a single commit (Spark writes without a name) that each remembers",
        "STORE_WRITERS_MAX": "writers of transactions that a store remembers",
        "PRODUCERS_MAX": "open producers that a server remembers",
        "WINDOW_SECONDS_DEFAULT": "how long a payload is remembered, where a topic asks for that",
        "WINDOW_SECONDS_MAX": "the most that a topic may ask for",
        "WINDOW_MESSAGES_DEFAULT": "how many payloads are remembered, 24 bytes each",
        "WINDOW_MESSAGES_MAX": "the most that a topic may ask for",
        "SEQNO_SEARCH_MESSAGES": "how far back a message is looked for by its seqno",
        "SEQNO_SEARCH_BYTES": "how many bytes are read for that",
    },
    "Publishing and reading": {
        "QUEUE_MESSAGES_PER_PARTITION": "messages that wait to be written, for each partition of a topic",
        "QUEUE_BYTES": "bytes that wait to be written to a topic: default of `broker.queue_bytes`",
        "FETCH_MESSAGES_DEFAULT": "messages of one read, unless it asks for another number",
        "FETCH_MESSAGES_MAX": "the most that it may ask for",
        "FETCH_BYTES_DEFAULT": "bytes of one read, unless it asks for another number",
        "FETCH_BYTES_MAX": "the most that it may ask for",
        "PRODUCER_BATCH_BYTES": "bytes that a client's producer collects into a batch",
        "PRODUCER_BATCH_MESSAGES": "messages that it collects into a batch",
        "PRODUCER_BUFFER_BYTES": "bytes that it buffers, with what is under way; beyond it `send` waits",
        "PRODUCER_BATCHES_IN_FLIGHT": "batches of it that are under way",
        "CONSUMER_PREFETCH_BYTES": "bytes that a client's consumer reads ahead",
        "SOURCES_LISTED": "sources in one answer, unless more are asked for",
        "SOURCES_LISTED_MAX": "the most that may be asked for",
        "LAST_COMMITS_TOPICS_MAX": "topics of one question for the last commit of a writer",
        "TRANSACTION_TOPICS_MAX": "topics, and groups, in a transaction",
        "DESCRIBED_TOPICS_MAX": "topics that one request describes",
        "OPERATION_BYTES_MAX": "an operation as it is sent",
        "TICKET_BYTES_MAX": "the ticket of a read over Flight",
        "ARROW_MESSAGES_MAX": "messages of the Arrow format in one body or upload",
        "ARROW_METADATA_BYTES_MAX": "metadata of each of them",
        "ARROW_COLUMNS_MAX": "columns of each of them",
        "FINDINGS_MAX": "findings in one answer on health",
        "AUDIT_LISTED": "entries of the audit log in one answer, unless more are asked for",
    },
    "Schemas of values": {
        "VALUE_SCHEMA_BYTES_MAX": "text of a schema",
        "VALUE_SCHEMA_FIELDS_MAX": "fields of a schema, at all levels",
        "VALUE_SCHEMA_DEPTH_MAX": "how deep they are nested",
        "VALUE_SCHEMA_IDS_MAX": "ids of a schema registry that it may name",
        "VALUE_DECIMAL_DIGITS_MAX": "digits of a decimal",
        "VALUE_DEPTH_MAX": "how deep a JSON value may be nested",
        "VALUE_CELLS_MAX": "cells that the columns of a value, or of all that is parsed at once, may have",
    },
    "Inside the server": {
        "MICROSECONDS": "microseconds of a second",
        "LOOP_BYTES_MAX": "work on more bytes runs in a thread",
        "FRAME_BYTES": "a frame of the log",
        "FRAME_ROWS": "messages of a frame",
        "SEGMENT_BYTES": "a segment of the log, unless the URL of the store says otherwise",
        "SEGMENT_BYTES_MAX": "the most that it may say",
        "SEGMENT_FRAMES": "frames of a segment, unless the URL of the store says otherwise",
        "SEGMENT_FRAMES_MAX": "the most that it may say",
        "ROOM_BYTES": "how far a file of the log is allocated ahead, unless the URL of the store says otherwise",
        "ROOM_BYTES_MAX": "the most that it may say",
        "RETENTION_PARTS": "segments that retention is cut into, so that it acts in steps",
        "PIECE_BYTES_MIN": "the least size of such a segment",
        "LATENESS_SECONDS_MIN": "the least time that such a segment takes messages",
        "RETENTION_CHECK_SECONDS": "time between two looks for what retention deletes",
        "AUDIT_KEPT": "entries of the audit log in memory",
        "AUDIT_REFUSALS_PER_MINUTE": "refusals of one caller in the audit log, in a minute",
        "LOGS_KEPT": "log lines in memory for a bug report",
        "LOG_CHARACTERS_KEPT": "characters of each of them",
        "PIPELINE_ERROR_CHARACTERS_MAX": "characters of the error of a pipeline that are kept",
        "LOOKS_MAX": "tries of a reader below which retention deletes",
        "TAKES_MAX": "tries of a consumer of the queue API whose message another server delivered",
        "IDS_TRIED_MAX": "ids of the queue API that are tried if their groups exist",
        "SERVER_HEARTBEAT_SECONDS": "heartbeat of the servers of a shared store",
        "SERVER_EXPIRY_SECONDS": "silence after which such a server is no longer listed",
        "CLOCK_COMPARE_SECONDS": "time between two comparisons with the clock of the database",
        "CLOCK_COMPARE_SECONDS_MAX": "how long one may take",
        "SCRAM_ITERATIONS": "how often SCRAM hashes a password",
        "SCRAM_NONCE_BYTES_MAX": "nonce of a client of SCRAM",
        "SCRAM_SALT_BYTES": "salt of SCRAM",
        "GRACE_SECONDS_MAX": "the longest `--grace` of the first token, in which callers without one are served",
        "VALUE_SLICE_ROWS": "values that are parsed at once",
        "VALUE_SLICE_BYTES": "bytes of values that are parsed at once",
        "HEALTH_CHECK_SECONDS": "time between two judgments of health",
        "HEALTH_FRESH_SECONDS": "age of a judgment that is answered",
        "HEALTH_SHARE": "part of the time that judging takes at most",
        "HEALTH_WAIT_SECONDS": "how long a caller waits for a judgment",
    },
    "Inside the archive": {
        "ARCHIVE_AFTER_SECONDS": "age at which a message is archived, unless its topic says otherwise",
        "ARCHIVE_FILE_BYTES": "size of a file: default of `archive.file_bytes`",
        "ARCHIVE_SMALL_BYTES": "a smaller file is merged with its neighbours",
        "ARCHIVE_MERGE_FILES_MIN": "the fewest files of a merge",
        "ARCHIVE_MERGE_FILES_MAX": "the most files of a merge",
        "ARCHIVE_GROUP_ROWS": "messages of a row group",
        "ARCHIVE_GROUP_BYTES": "bytes of a row group",
        "ARCHIVE_CACHE_BYTES": "row groups in memory: default of `archive.cache_bytes`",
        "ARCHIVE_STRAY_SECONDS": "how long replaced files are kept: default of `archive.stray_seconds`",
        "ARCHIVE_CHECK_SECONDS": "time between two looks for what to archive: default of `archive.check_seconds`",
        "ARCHIVE_LEASE_SECONDS": "silence after which another server of a shared store archives the topics of this one",
        "ARCHIVE_CORES_MAX": "cores that archiving takes while messages are published, at most",
        "ARCHIVE_TYPED_CORES_MAX": "the same while values are parsed",
        "ARCHIVE_CORES_STEP": "steps in which it takes more or less",
        "ARCHIVE_CORES_MIN": "cores that it takes at least",
        "ARCHIVE_SERVER_SHARE": "part of what the rest of the server takes that it has at least",
        "ARCHIVE_WAITING_MAX": "part of the time that threads wait for a core, above which it takes less",
        "ARCHIVE_CATCH_UP_SECONDS": "time overdue after which its least doubles",
    },
}


def page() -> str:
    """The whole page."""
    return HEAD.rstrip("\n") + "\n" + "".join(_fixed()) + SETTINGS_HEAD + "".join(_settings())


def names() -> set[str]:
    """The limits of core/limits.py."""
    return {name for name in vars(limits) if name.isupper()}


def _fixed() -> Iterator[str]:
    for section, rows in MEANINGS.items():
        yield f"\n## {section}\n\n| limit | value | meaning |\n|---|---|---|\n"
        for name, meaning in rows.items():
            yield f"| `{name}` | {_shown(name, getattr(limits, name))} | {meaning} |\n"


def _settings() -> Iterator[str]:
    yield from _section(ServeSettings, "")
    for layer in msgspec.structs.fields(ServeSettings):
        if isinstance(layer.type, type) and issubclass(layer.type, msgspec.Struct) and layer.name != "topic_defaults":
            yield from _section(layer.type, f"{layer.name}.")


def _section(kind: type[msgspec.Struct], prefix: str) -> Iterator[str]:
    meanings, before = _meanings(kind), ""
    for field, info in zip(msgspec.structs.fields(kind), _bounds(kind), strict=True):
        if field.name.endswith(ENDINGS) and isinstance(field.default, int | float) and not is_fixed(field):
            low, high = (_shown(field.name, each) if each is not None else "" for each in info[:2])
            default, meaning = _shown(field.name, field.default), meanings[field.name]
            shown, before = "as above" if meaning == before else meaning, meaning
            yield f"| `{prefix}{field.name}` | {default} | {'above ' * info[2]}{low} | {high} | {shown} |\n"


def _meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What the docstring of settings says of each."""
    found: dict[str, str] = {}
    lines = inspect.getdoc(kind) or ""
    for names, text in re.findall(r"^((?:\w+, )*\w+):((?:.*)(?:\n .*)*)", lines, re.MULTILINE):
        sentence = html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")
        found |= dict.fromkeys(names.split(", "), sentence)
    return found


def _bounds(kind: type[msgspec.Struct]) -> Iterator[tuple[Any, Any, bool]]:
    """The least and the most of each field, None where nothing is said; and whether it must be above the least."""
    described: Any = msgspec.inspect.type_info(kind)
    for field in described.fields:
        least, above = getattr(field.type, "ge", None), getattr(field.type, "gt", None)
        yield above if least is None else least, getattr(field.type, "le", None), least is None and above is not None


def _shown(name: str, value: float) -> str:
    """A number with its unit, which ends the name."""
    unit = re.search(r"(BYTES|SECONDS|CHARACTERS)", name.upper())
    if unit is not None and unit[1] == "BYTES" and isinstance(value, int):
        for size, label in ((1 << 60, "EiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= size and value % size == 0 and value < 10_000 * size:
                return f"{value // size} {label}"
        return counted(value, "byte")
    if unit is not None and unit[1] == "SECONDS":
        for size, label in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
            if value >= 2 * size and value % size == 0:
                return f"{value / size:,.0f} {label}"
        return f"{value:,g} s"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


if __name__ == "__main__":
    print(page(), end="")
