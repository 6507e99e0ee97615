"""Which engine a store URL means: `file:DIRECTORY?option=value` or `memory:`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote

import msgspec

from headrace.core.errors import InvalidInput
from headrace.storage.disk.engine import DiskStore
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
        return _open_disk(url)
    raise InvalidInput("store", repr(url), "it must begin with file: or memory:")


def _open_disk(url: str) -> DiskStore:
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
    return DiskStore(Path(path).absolute(), options)
