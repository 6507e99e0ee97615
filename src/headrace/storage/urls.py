"""Which engine a store URL means: `file:DIRECTORY?option=value` or `memory:`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

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
    parts = urlsplit(url)
    path = unquote(parts.path)
    if not path or parts.netloc or parts.fragment:
        raise InvalidInput("store", repr(url), "write it as file:DIRECTORY, such as file:./headrace-data")
    try:
        options = msgspec.convert(
            dict(parse_qsl(parts.query, strict_parsing=bool(parts.query))), DiskOptions, strict=False
        )
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidInput(
            "store", repr(url), f"{error}; options are {', '.join(DiskOptions.__struct_fields__)}"
        ) from None
    return DiskStore(Path(path), options)
