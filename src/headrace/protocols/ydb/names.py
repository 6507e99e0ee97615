"""Paths as names of topics, codecs by number, and the attributes that are reserved. Pure.

A path is absolute, with the database as its beginning, or relative to the database. A topic's name is the rest, which
may have `/` inside: directories are derived from it.
"""

from __future__ import annotations

from typing import Final

from headrace.protocols.ydb.statuses import Status, YdbRefusal

DEFAULT_DATABASE: Final = "/local"

RAW: Final = 1
CODECS: Final = {RAW: "raw", 2: "gzip", 3: "lzop", 4: "zstd"}
CODEC_NUMBERS: Final = {name: number for number, name in CODECS.items()}
CUSTOM_CODECS: Final = range(10_000, 20_000)

# Metadata items of messages that stand for what YDB has no field for.
KEY_ITEM: Final = "headrace.key"
TOMBSTONE_ITEM: Final = "headrace.tombstone"
# Attributes of messages that stand for what Headrace has no column for.
CODEC_ATTRIBUTE: Final = "ydb.codec"
META_ATTRIBUTE: Final = "ydb.session."
RESERVED_ATTRIBUTES: Final = "ydb."
# The message group of what a producer without one writes to a partition that it names.
PARTITION_GROUP: Final = "ydb.partition."


def database_of(header: str) -> str:
    """The database that a call names, with a slash before it and none behind."""
    name = header.strip("/")
    return f"/{name}" if name else DEFAULT_DATABASE


def topic_of(path: str, database: str) -> str:
    """The name of the topic at a path."""
    name = below(path, database)
    if not name:
        raise YdbRefusal(Status.SCHEME_ERROR, f"path {path[:100]!r} is no topic: it is the database")
    return name


def below(path: str, database: str) -> str:
    """What follows the database in a path; empty for the database itself."""
    if not path.startswith("/"):
        return path.strip("/")
    whole = "/" + path.strip("/")
    if whole != database and not whole.startswith(database + "/"):
        raise YdbRefusal(Status.SCHEME_ERROR, f"path {path[:100]!r} is not in the database {database[:100]}")
    return whole[len(database) :].strip("/")
