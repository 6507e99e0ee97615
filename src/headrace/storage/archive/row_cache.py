"""A cache of decoded row groups, shared by all readers of a store's archive.

Bounded by bytes: the row group that was used longest ago is dropped first. Open files are kept as well, a few of them:
opening one means reading its footer. Two readers that miss the same row group at once may both read it. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.errors import Damaged
from headrace.storage.archive.files import ArchiveFiles
from headrace.storage.archive.parquet import ParquetFile
from headrace.storage.archive.view import FoundRange

_OPEN_FILES_MAX: Final = 64


class RowCache:
    """Row groups of archive files."""

    def __init__(self, files: ArchiveFiles, bytes_max: int) -> None:
        self._files = files
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._open: OrderedDict[str, tuple[ParquetFile, threading.Lock]] = OrderedDict()
        self._groups: OrderedDict[tuple[str, int], pa.RecordBatch] = OrderedDict()
        self._bytes = 0

    def file(self, path: str) -> ParquetFile:
        """An open file."""
        return self._opened(path)[0]

    def group(self, path: str, place: int) -> pa.RecordBatch:
        """A decoded row group."""
        key = path, place
        with self._lock:
            known = self._groups.get(key)
            if known is not None:
                self._groups.move_to_end(key)
                return known
        file, lock = self._opened(path)
        with lock:
            batch = file.group(place)
        with self._lock:
            before = self._groups.pop(key, None)
            self._groups[key] = batch
            self._bytes += batch.nbytes - (0 if before is None else before.nbytes)
            # The newest stays even if it is larger than the whole cache: its reader will ask for the next rows of it.
            while self._bytes > self._bytes_max and len(self._groups) > 1:
                self._bytes -= self._groups.popitem(last=False)[1].nbytes
        return batch

    def rows(self, found: FoundRange, offset: int, whole: bool = False) -> pa.RecordBatch:
        """The rows of a range from an offset on, or all of them, as far as they are in the row group of the offset."""
        file, row = self.file(found.file.path), found.row + offset - found.first_offset
        if found.file.rows != file.bounds[-1]:
            raise Damaged(found.file.path, 0, f"it has {file.bounds[-1]} rows, and {found.file.rows} in the manifest")
        place = int(np.searchsorted(file.bounds, row, side="right")) - 1
        first, last = int(file.bounds[place]), int(file.bounds[place + 1])
        begin = max(first, found.row) if whole else row
        end = min(last, found.row + found.end_offset - found.first_offset)
        rows = self.group(found.file.path, place).slice(begin - first, end - begin)
        expected = found.first_offset + begin - found.row
        if rows.num_rows == 0 or rows.column("offset")[0].as_py() != expected:
            raise Damaged(found.file.path, 0, f"row {begin} is not offset {expected}, as the manifest says")
        return rows

    def _opened(self, path: str) -> tuple[ParquetFile, threading.Lock]:
        with self._lock:
            known = self._open.get(path)
            if known is not None:
                self._open.move_to_end(path)
                return known
        opened = ParquetFile(self._files, path), threading.Lock()
        with self._lock:
            self._open[path] = opened
            if len(self._open) > _OPEN_FILES_MAX:
                self._open.popitem(last=False)
        return opened
