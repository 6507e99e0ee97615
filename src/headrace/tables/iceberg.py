"""Archived topics as Iceberg tables: the files as they are, in a catalog that other engines know.

    archive(topic) ──► files ── compared with those of the table ──► one commit: new files in, replaced ones out

A commit has all files of one snapshot of the archive, so a reader that knows nothing of Headrace sees complete commits
only: of all partitions everything up to one moment. What is newer than the archive is not in the table. A sync that
changes nothing commits nothing; of two syncs at once the catalog refuses one, which may be repeated.

Columns of values are added to the table when a file, or the topic's schema, has them; of files that were written before
they are null. A file that is merged later has them by then.

Nothing is copied or deleted here. Files that the archive replaced are deleted by the server `archive.stray_seconds`
later: snapshots of the table that list them cannot be read from then on, the newest one included if nobody syncs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from headrace.client import Client
from headrace.core.archive.manifest import ArchiveSnapshot
from headrace.core.errors import InvalidInput
from headrace.core.messages import READ_SCHEMA
from headrace.core.values.schema import parse_value_schema
from headrace.extras import needing
from headrace.tables.files import files_by_kind, url_of
from headrace.tables.snapshot import TableSnapshot, table_snapshot

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

NAMESPACE: Final = "headrace"
_TOPIC_ID: Final = "headrace.topic-id"
_COMPLETE: Final = "headrace.complete"
_METRICS: Final = "write.metadata.metrics.column."


@dataclass(frozen=True, slots=True)
class IcebergSync:
    """What a sync did: the table's name, its files and rows now, and how many files were added and removed."""

    table: str
    files: int
    rows: int
    added: int
    removed: int


def open_catalog(name: str | None = None, uri: str | None = None, warehouse: str | None = None) -> Catalog:
    """A catalog by its name in pyiceberg's configuration, or one in an SQL database, such as sqlite:///catalog.db."""
    with needing("iceberg"):
        from pyiceberg.catalog import load_catalog
    if uri is None:
        return load_catalog(name)
    given = {"type": "sql", "uri": uri, "init_catalog_tables": "true"}
    return load_catalog(name or NAMESPACE, **given, **({} if warehouse is None else {"warehouse": warehouse}))


def sync_iceberg(client: Client, topic: str, catalog: Catalog, namespace: str = NAMESPACE) -> IcebergSync:
    """Bring the Iceberg table of a topic to the state of its archive, in one commit; create it if it does not exist."""
    snapshot = table_snapshot(client.archive(topic))
    archive = snapshot.archive
    if archive.url is None:
        raise InvalidInput(
            "topic", topic, "this server has no archive: set archive.url, and archive = on for the topic"
        )
    columns = _columns(snapshot)
    table = _table(catalog, namespace, archive, columns[0])
    wanted = {url_of(archive.url, file.path) for file in snapshot.files}
    present = {task.file.file_path: task.file for task in table.scan().plan_files()}
    added, removed = sorted(wanted - present.keys()), [present[path] for path in sorted(present.keys() - wanted)]
    _grow(table, columns)
    if added or removed:
        _commit(table, _io(table, archive.url), added, removed, {_COMPLETE: str(archive.complete)})
    return IcebergSync(
        f"{namespace}.{archive.topic}", len(wanted), sum(file.rows for file in snapshot.files), len(added), len(removed)
    )


def _table(catalog: Catalog, namespace: str, archive: ArchiveSnapshot, columns: pa.Schema) -> Table:
    """The table of a topic; a table of a topic that was deleted is no other topic's."""
    catalog.create_namespace_if_not_exists(namespace)
    properties = {_TOPIC_ID: str(archive.topic_id), f"{_METRICS}value": "none"}
    table = catalog.create_table_if_not_exists((namespace, archive.topic), columns, properties=properties)
    if table.properties.get(_TOPIC_ID) != str(archive.topic_id):
        rule = (
            "this Iceberg table is of another topic, or of one that was deleted: drop it, or choose another namespace"
        )
        raise InvalidInput("table", f"{namespace}.{archive.topic}", rule)
    return table


def _columns(snapshot: TableSnapshot) -> list[pa.Schema]:
    """The columns of messages, of each schema that files have columns of, and of the topic's own.

    All are optional, since a message may lack any of them.
    """
    own = snapshot.archive.value_schema
    kinds = files_by_kind(snapshot.url, snapshot.files) if snapshot.files else {}
    texts = dict.fromkeys([*(kind.value_schema for kind in kinds), own])
    typed = [parse_value_schema(text).columns() for text in texts if text is not None]
    return [pa.schema([field.with_nullable(True) for field in READ_SCHEMA]), *typed]


def _grow(table: Table, columns: Sequence[pa.Schema]) -> None:
    """Add the columns that the table does not have yet, and fields of those that it has.

    One schema after another: an update does not see which columns it has just added itself.
    """
    from pyiceberg.exceptions import ValidationError

    try:
        with table.transaction() as transaction:
            for each in columns:
                with transaction.update_schema() as update:
                    update.union_by_name(each)
    except (ValidationError, TypeError, ValueError) as error:
        rule = f"a file, or the topic's schema, has another type for a column: drop the table and sync again ({error})"
        raise InvalidInput("table", ".".join(table.name()), rule) from None


def _io(table: Table, url: str) -> FileIO:
    """How the files of the archive are opened: by the table's settings, and the options of the archive's URL."""
    from pyiceberg.io import load_file_io

    options = dict(parse_qsl(urlsplit(url).query))
    given = {} if "region" not in options else {"s3.region": options["region"]}
    if "endpoint_override" in options:
        given["s3.endpoint"] = f"{options.get('scheme', 'https')}://{options['endpoint_override']}"
    return load_file_io({**given, **table.io.properties}, url) if given else table.io


def _without_statistics(columns: Schema) -> set[str]:
    """The properties that say which columns have no statistics in the files: what lists and maps hold."""
    from pyiceberg.types import ListType, MapType

    held = [name for name in columns.column_names if isinstance(columns.find_type(name), ListType | MapType)]
    return {f"{_METRICS}{name}" for name in columns.column_names if any(name.startswith(f"{each}.") for each in held)}


def _commit(table: Table, io: FileIO, added: list[str], removed: list[DataFile], properties: dict[str, str]) -> None:
    """Files of the archive in, files that it replaced out: one snapshot of the table."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.table import TableProperties

    with table.transaction() as transaction:
        unknown = _without_statistics(table.schema()).difference(table.properties)
        if unknown:
            transaction.set_properties(dict.fromkeys(unknown, "none"))
        if transaction.table_metadata.name_mapping() is None:
            # The files have no field ids of Iceberg: columns are found by their names.
            mapping = table.schema().name_mapping.model_dump_json()
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        changes: Any = transaction.update_snapshot(snapshot_properties=properties)
        with changes.overwrite() if removed else changes.fast_append() as snapshot:
            for path in added:
                snapshot.append_data_file(parquet_file_to_data_file(io, transaction.table_metadata, path))
            for file in removed:
                snapshot.delete_data_file(file)
