"""Copies the files of an archive that a manifest lists, for a backup that is whole by itself.

Every file is read once and must have the size and the checksum of the manifest. A file that was merged or has expired
since the manifest was copied exists for `archive.stray_seconds` longer; if it was deleted, the copy fails.
"""

from __future__ import annotations

from typing import Final

from headrace.core.archive.manifest import ArchiveFile
from headrace.core.errors import Damaged, StoreUnavailable
from headrace.storage.archive.files import ArchiveFiles
from headrace.storage.catalog import Catalog

_READ_BYTES: Final = 4 << 20


def copy_archive(catalog: Catalog, source: ArchiveFiles, target: ArchiveFiles) -> tuple[int, int]:
    """Copy the live files of all topics; returns how many they are, and their bytes."""
    manifests = (catalog.manifest.load(topic_id) for topic_id in catalog.manifest.topics())
    files = [file for manifest in manifests if manifest is not None for file in manifest.files]
    for file in files:
        _copy(file, source, target)
    return len(files), sum(file.bytes for file in files)


def _copy(file: ArchiveFile, source: ArchiveFiles, target: ArchiveFiles) -> None:
    try:
        opened = source.open(file.path)
    except FileNotFoundError:
        reason = "it is missing: deleted since the backup began, which another one will show, or lost"
        raise StoreUnavailable(f"{source.url}: {file.path}", reason) from None
    with opened, target.writing(file.path) as sink:
        while data := opened.read(_READ_BYTES):
            sink.write(data)
        if (sink.bytes, sink.checksum) != (file.bytes, file.checksum):
            found = f"it has {sink.bytes} bytes with checksum {sink.checksum}"
            raise Damaged(file.path, 0, f"{found}, and {file.bytes} with {file.checksum} in the manifest")
