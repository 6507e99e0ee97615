"""Which engine a store URL means: `file:DIRECTORY?option=value`, `postgresql://…` or `memory:`.

A URL may hold a password. `shown` is what may be printed of one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from headrace.core.errors import InvalidInput
from headrace.storage.catalog import Catalog
from headrace.storage.disk.engine import DiskStore, open_disk_catalog
from headrace.storage.disk.options import DiskOptions
from headrace.storage.interface import Store
from headrace.storage.memory.engine import MemoryStore

if TYPE_CHECKING:
    from headrace.storage.postgres.options import DatabaseAddress, PostgresOptions

_RULE: Final = "it must begin with file:, postgresql: or memory:"
_DATABASES: Final = ("postgresql", "postgres")
# Anything that may be the password, even badly quoted: up to the last @.
_PASSWORDS: Final = (re.compile(r"(//[^:/?#@]*):.*@", re.DOTALL), re.compile(r"(password\s*)=[^&]*", re.DOTALL | re.I))


def open_store(url: str) -> Store:
    """Open the store of a URL; it is created if it does not exist."""
    scheme, separator, rest = url.partition(":")
    if separator and scheme == "memory":
        if rest:
            raise InvalidInput("store", repr(url), "a memory store has no path and no options: write memory:")
        return MemoryStore()
    if separator and scheme == "file":
        return DiskStore(*_parse_disk(url))
    if separator and scheme in _DATABASES:
        parsed = _parse_postgres(url)
        # Imported only here: psycopg is an extra.
        from headrace.storage.postgres.engine import PostgresStore

        return PostgresStore(*parsed)
    raise InvalidInput("store", repr(shown(url)), _RULE)


def open_catalog(url: str) -> Catalog:
    """Open only the catalog of a store, even while another process has the store open."""
    scheme = url.partition(":")[0]
    if scheme in _DATABASES:
        parsed = _parse_postgres(url)
        from headrace.storage.postgres.engine import open_postgres_catalog

        return open_postgres_catalog(*parsed)
    if scheme != "file":
        rule = "only a store with file: or postgresql: has a catalog"
        raise InvalidInput("store", repr(shown(url)), rule)
    directory, _ = _parse_disk(url)
    return open_disk_catalog(directory)


def disk_directory(url: str) -> Path:
    """The directory of a disk store."""
    if url.partition(":")[0] != "file":
        raise InvalidInput("store", repr(shown(url)), "it must be a store with file:")
    return _parse_disk(url)[0]


def shown(url: str) -> str:
    """A store URL without its password."""
    for password in _PASSWORDS:
        url = password.sub(lambda found: found[1] + (":***@" if found[1].startswith("//") else "=***"), url)
    return url


def _parse_disk(url: str) -> tuple[Path, DiskOptions]:
    location, _, query = url.removeprefix("file:").partition("?")
    path = unquote(location.removeprefix("//") if location.startswith("///") else location)
    if not path or path.startswith("//") or "#" in url or "\0" in path:
        raise InvalidInput("store", repr(url), "write it as file:DIRECTORY, such as file:./headrace-data")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        options = msgspec.convert(dict(pairs), DiskOptions, strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        rule = f"{error}; options are {', '.join(DiskOptions.__struct_fields__)}"
        raise InvalidInput("store", repr(url), rule) from None
    return Path(path).absolute(), options


def _parse_postgres(url: str) -> tuple[DatabaseAddress, PostgresOptions]:
    try:
        from headrace.storage.postgres.options import parse
    except ImportError as error:
        rule = f"it needs psycopg ({error}): pip install 'headrace[postgres]'"
        raise InvalidInput("store", "a PostgreSQL URL", rule) from None
    return parse(url)
