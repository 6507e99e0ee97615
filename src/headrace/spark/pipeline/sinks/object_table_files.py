"""Files of a table on an object store, written by Spark's tasks under their final names.

Object stores cannot rename. So each attempt of a task writes files with names that nobody else uses, and says which
ones it has written; Spark takes what one attempt of each task says. Files of all other attempts, and of drivers that
were killed, are strays: they are in no entry of the table's log, so that no reader sees them, and Delta's VACUUM
deletes them when they are a week old.

Rows go to Python as Arrow batches and are written by Arrow, so that Spark's Java needs no file system for the store.
Values of partition columns are made text by Spark, as its own writer does it: Delta's log has them as text.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.core.errors import StoreUnavailable
from headrace.spark.pipeline.frame.delta_statistics import statistics_of
from headrace.spark.pipeline.frame.object_store import ObjectStore, plain_text
from headrace.spark.pipeline.run.spark_logs import quoted

_ANSWER: Final = "path STRING, bytes BIGINT, statistics STRING"
# Each open file holds a part of its upload in memory.
_OPEN_FILES_MAX: Final = 64
_DIRECTORIES_MAX: Final = 100_000
_GROUP_ROWS_MIN: Final = 64 << 10
_GROUP_ROWS_MAX: Final = 1 << 20


class WrittenFile(NamedTuple):
    """A file of an attempt that counts; path: below the directory of the table; statistics: as its log has them."""

    path: str
    bytes: int
    statistics: str


@dataclass(frozen=True)
class ObjectTableFiles:
    """A directory on an object store, and how files are written to it; name: what names of files begin with."""

    store: ObjectStore
    url: str
    name: str
    partition_by: tuple[str, ...] = ()
    compression: str = "snappy"

    @property
    def directory(self) -> str:
        """The directory as Arrow names it: bucket and path."""
        parts = urlsplit(self.url)
        return f"{parts.netloc}/{parts.path.strip('/')}"

    def write(self, rows: DataFrame) -> list[WrittenFile]:
        """Write rows, a file for each task and directory."""
        # As in Spark's own writer, an empty text is no value.
        named = {name: F.nullif(F.col(quoted(name)).cast("string"), F.lit("")) for name in self.partition_by}
        answers = (rows.withColumns(named) if named else rows).mapInArrow(self, _ANSWER).collect()
        return sorted(WrittenFile(*answer) for answer in answers)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: write its rows, and say which files have them."""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        written: list[WrittenFile] = []

        def take(file: ds.WrittenFile) -> None:
            path = file.path.removeprefix(f"{self.directory}/")
            written.append(WrittenFile(path, file.size, statistics_of(file.metadata)))

        try:
            self._write(pa.RecordBatchReader.from_batches(first.schema, chain([first], filled)), take)
        except OSError as error:
            raise StoreUnavailable(self.url, plain_text(error)) from None
        columns = zip(*written, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(column) for column in columns], names=["path", "bytes", "statistics"]
        )

    def _write(self, rows: pa.RecordBatchReader, take: Callable[[ds.WrittenFile], None]) -> None:
        directories = pa.schema([rows.schema.field(name) for name in self.partition_by])
        parquet = ds.ParquetFileFormat()
        ds.write_dataset(
            rows,
            self.directory,
            basename_template=f"{self.name}-{uuid.uuid4().hex}-{{i}}.parquet",
            format=parquet,
            file_options=parquet.make_write_options(compression=self.compression),
            filesystem=self.store.files(),
            partitioning=ds.partitioning(directories, flavor="hive") if self.partition_by else None,
            # An object store has no directories to be made, and names are new.
            create_dir=False,
            existing_data_behavior="overwrite_or_ignore",
            preserve_order=True,
            max_partitions=_DIRECTORIES_MAX,
            max_open_files=_OPEN_FILES_MAX,
            min_rows_per_group=_GROUP_ROWS_MIN,
            max_rows_per_group=_GROUP_ROWS_MAX,
            file_visitor=take,
        )

    def dataset(self, files: list[WrittenFile]) -> ds.Dataset:
        """The rows of files without directories, to be read in the process of the driver."""
        return ds.dataset([f"{self.directory}/{file.path}" for file in files], filesystem=self.store.files())

    def delete(self, files: list[WrittenFile]) -> None:
        """Delete files that nobody needs any more; what the store does not delete now is a stray."""
        system = self.store.files()
        for file in files:
            with suppress(OSError):
                system.delete_file(f"{self.directory}/{file.path}")
