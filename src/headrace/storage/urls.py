"""Which engine a store URL means: `file:DIRECTORY?option=value` or `memory:`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote

import msgspec

from headrace.core.errors import InvalidInput
from headrace.storage.catalog import Catalog
from headrace.storage.disk.engine import DiskStore, open_disk_catalog
from headrace.storage.disk.options import DiskOptions
from headrace.storage.engine import Store
from headrace.storage.memory.engine import MemoryStore


def open_store(url: str) -> Store:
    """Open the store that a URL names, making it if it is new."""
    scheme, separator, rest = url.partition(":")
    if separator and scheme == "memory":
        if rest:
            raise InvalidInput("store", repr(url), "a memory store takes no path and no options: memory:")
        return MemoryStore()
    if separator and scheme == "file":
        return DiskStore(*_parse_disk(url))
    raise InvalidInput("store", repr(url), "it must begin with file: or memory:")


def open_catalog(url: str) -> Catalog:
    """Open only the catalog of the store that a URL names, also while another process has the store open."""
    if not url.startswith("file:"):
        raise InvalidInput("store", repr(url), "only a store that begins with file: has a catalog to open")
    directory, _ = _parse_disk(url)
    return open_disk_catalog(directory)


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
