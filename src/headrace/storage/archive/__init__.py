"""The archive: topics as Parquet files on a directory or an object store, for every engine."""
