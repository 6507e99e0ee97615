"""Checks the archive of a store against its manifest, for `headrace doctor`.

Every live file must exist with the size, checksum and rows that the manifest says, and the ranges of a topic must
leave no gap and not overlap. Files that no manifest lists are leftovers of crashes, which a running server sweeps.
Nothing is changed, except that `repair` deletes those, unless a server archives their topic or they have messages that
no other file has (`strays.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from headrace.core.archive.manifest import ArchiveFile, misfits
from headrace.core.errors import Damaged
from headrace.core.limits import ARCHIVE_LEASE_SECONDS
from headrace.core.reports.store_check import Finding, Kind, StoreReport
from headrace.storage.archive.archiver import TOPIC_DIRECTORY
from headrace.storage.archive.files import ArchiveFiles, checksum_text
from headrace.storage.archive.manifest import NO_MANIFEST, TopicManifest
from headrace.storage.archive.parquet import ParquetFile
from headrace.storage.archive.strays import Strays
from headrace.storage.catalog import Catalog

_READ_BYTES: Final = 4 << 20
_REDUNDANT: Final = "a file that the manifest does not list; a running server deletes it"
_KEPT: Final = (
    "a file that the manifest does not list, with messages that no other file has; it is kept: they will be archived "
    "again, or the catalog is older than the archive; then restore the newer one"
)
# The name of the doctor in leases.
_HOLDER: Final = "headrace doctor"


def check_archive(catalog: Catalog, files: ArchiveFiles, report: StoreReport, repair: bool = False) -> None:
    """Check the archive of all topics; findings are added to the report."""
    manifest = catalog.manifest
    store_id, known = manifest.store_id(), manifest.ends()
    for topic in catalog.topics():
        found = manifest.load(topic.id) if topic.id in known else None
        if found is not None:
            name = f"topic {topic.name!r}"
            report.findings += [_finding(files.url, "damage", f"{name}: {what}") for what in _misfits(found)]
            report.findings += [_finding(path, "damage", what) for path, what in _damage(files, found)]
            report.archive_files += len(found.files)
    for directory in files.list(store_id):
        _check_strays(catalog, files, f"{store_id}/{directory}", report, repair)


def _check_strays(catalog: Catalog, files: ArchiveFiles, directory: str, report: StoreReport, repair: bool) -> None:
    """Name the files of a topic that its manifest does not list, and delete them if no server archives it.

    In this order: files that a server is about to list are either listed at the end, or cannot be listed any more.
    """
    paths = [f"{directory}/{name}" for name in files.list(directory)]
    found, manifest = TOPIC_DIRECTORY.fullmatch(directory.rpartition("/")[2]), catalog.manifest
    if found is None:
        return
    topic_id = int(found[1])
    topic = next((each for each in catalog.topics() if each.id == topic_id), None)
    if repair and topic is not None:
        # Other stores are not shared, and a repair has the store to itself.
        holder = _HOLDER if catalog.is_postgres else None
        repair = manifest.claim(topic_id, holder, ARCHIVE_LEASE_SECONDS) is not None
    listed = manifest.listed(topic_id)
    strays = None if topic is None else Strays(files, topic, manifest.load(topic_id) or NO_MANIFEST)
    for path in paths:
        if path in listed:
            continue
        if catalog.was_deleted(topic_id) if strays is None else strays.is_redundant(path):
            report.findings.append(_finding(path, "leftover", _REDUNDANT, repair))
            if repair:
                files.remove(path)
        else:
            report.findings.append(_finding(path, "leftover", _KEPT))


def _misfits(manifest: TopicManifest) -> Iterator[str]:
    yield from misfits(manifest.files)
    last: dict[int, int] = {}
    for file in manifest.files:
        for each in file.ranges:
            last[each.partition] = max(each.end_offset, last.get(each.partition, 0))
    for partition, end in last.items():
        complete = int(manifest.ends[partition]) if partition < len(manifest.ends) else 0
        if end != complete:
            yield f"the files of partition {partition} end at offset {end}, and the manifest says {complete}"


def _damage(files: ArchiveFiles, manifest: TopicManifest) -> Iterator[tuple[str, str]]:
    for file in manifest.files:
        try:
            what = _wrong(files, file)
        except FileNotFoundError:
            what = "the file is missing"
        except Damaged as error:
            what = error.reason
        if what is not None:
            yield file.path, what


def _wrong(files: ArchiveFiles, file: ArchiveFile) -> str | None:
    """What is wrong with a file, or None."""
    size = files.size(file.path)
    if size != file.bytes:
        return f"it has {size} bytes, and {file.bytes} in the manifest"
    crc = 0
    with files.open(file.path) as source:
        while data := source.read(_READ_BYTES):
            crc = crc32c(data, crc)
    if checksum_text(crc) != file.checksum:
        return f"its checksum is {checksum_text(crc)}, and {file.checksum} in the manifest"
    rows = int(ParquetFile(files, file.path).bounds[-1])
    return None if rows == file.rows else f"it has {rows} rows, and {file.rows} in the manifest"


def _finding(path: str, kind: Kind, what: str, is_repaired: bool = False) -> Finding:
    return Finding(path, 0, kind, what, "done" if is_repaired else "none")
