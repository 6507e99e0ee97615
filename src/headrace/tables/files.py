"""The files of an archive as engines open them: as URLs, as paths of this machine, or by a file system of Arrow.

Credentials of object stores come from the environment, as they do for the server: the archive's URL has none.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headrace.core.archive.manifest import ArchiveFile
from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.core.values.schema import FOOTER_KEY

_THREADS: Final = 16


def open_archive(url: str) -> tuple[fs.FileSystem, str]:
    """The file system of an archive, and the directory of its files there."""
    try:
        system, directory = fs.FileSystem.from_uri(url)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput("archive_url", url[:200], f"Arrow has no file system for it: {error}") from None
    return system, directory.rstrip("/")


def local_directory(url: str) -> str | None:
    """The directory of an archive on this machine; None if it is elsewhere."""
    system, directory = open_archive(url)
    return directory if isinstance(system, fs.LocalFileSystem) else None


def url_of(url: str, path: str) -> str:
    """The URL of a file, without the options of the archive's."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/{path}"


@dataclass(frozen=True, slots=True)
class FileKind:
    """What a reader must know of a file: whether any value has a codec, and of which schema its typed columns are."""

    has_codecs: bool
    value_schema: str | None


def files_by_kind(url: str, files: Iterable[ArchiveFile]) -> dict[FileKind, list[str]]:
    """The paths of the files by their kind, which their footers tell."""
    paths = [file.path for file in files]
    with ThreadPoolExecutor(_THREADS) as threads:
        kinds = list(threads.map(lambda path: _kind(url, path), paths))
    return {kind: [path for path, of in zip(paths, kinds, strict=True) if of == kind] for kind in dict.fromkeys(kinds)}


@functools.lru_cache(maxsize=100_000)
def _kind(url: str, path: str) -> FileKind:
    """Files are never changed, so it is looked up once."""
    system, directory = open_archive(url)
    try:
        with system.open_input_file(f"{directory}/{path}") as opened:
            footer = pq.read_metadata(opened)
    except OSError as error:
        raise unreadable(url, path, error) from None
    named = (footer.metadata or {}).get(FOOTER_KEY)
    return FileKind(_has_codecs(footer), None if named is None else sys.intern(named.decode()))


def _has_codecs(footer: pq.FileMetaData) -> bool:
    column = next(place for place in range(footer.num_columns) if footer.schema.column(place).path == "codec")
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    return any(_nulls(group.column(column)) < group.num_rows for group in groups)


def _nulls(chunk: pq.ColumnChunkMetaData) -> int:
    statistics = chunk.statistics
    return statistics.null_count if statistics is not None and statistics.has_null_count else 0


def unreadable(url: str, path: str, error: OSError) -> StoreUnavailable:
    """A file of a snapshot that cannot be read; a retry helps, since a new snapshot names the files of that moment."""
    return StoreUnavailable(
        url_of(url, path),
        f"a file of the archive cannot be read ({error}): this machine must reach the archive, and a table can be read "
        "for archive.stray_seconds after it was opened; open it again",
    )
