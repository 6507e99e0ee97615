"""Where tables and checkpoints may be: in directories, or on S3 where nothing has to be renamed."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headrace.core.errors import InvalidInput

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_AMBIGUOUS: Final = re.compile(r"[%\\\x00-\x1f\x7f]")


def check_table_path(field: str, path: str | None, file_format: str) -> None:
    """Raise for what is neither a directory nor, for Delta tables, a place on S3."""
    if not path or not is_url(path):
        check_directory(field, path)
    elif file_format == "delta":
        check_s3(field, path)
    else:
        rule = (
            f"it must be a directory on this machine or on a mounted file system, because a batch of {file_format} is "
            'committed by renaming its files, which object stores cannot do: set format = "delta", whose tables can '
            "be on S3, or write with a format that Spark itself commits"
        )
        raise InvalidInput(field, path[:100], rule)


def check_directory(field: str, path: str | None) -> None:
    """Raise without a path."""
    if not path:
        raise InvalidInput(field, "missing", "set a directory")


def check_s3(field: str, path: str) -> None:
    """Raise for a URL that is no place on S3, or one that the libraries which write there would read differently.

    Some take a URL literally, some decode and shorten it: a table's log and its files must not end up in two places.
    """
    parts = urlsplit(path)
    if "@" in parts.netloc or ":" in parts.netloc:
        # Not repeated: there may be a password in it.
        rule = "it must have a bucket after s3a://, nothing else: credentials are settings of Spark or the environment"
        raise InvalidInput(field, f"{parts.scheme}://…{parts.path}"[:100], rule)
    if parts.scheme != "s3a" or not parts.netloc or not parts.path.strip("/") or parts.query or parts.fragment:
        rule = "it must be a directory, or a place on S3 written as s3a://bucket/path; other object stores do not work"
        raise InvalidInput(field, path[:100], rule)
    names = parts.path.strip("/").split("/")
    if _AMBIGUOUS.search(path) or any(name in ("", ".", "..") or name != name.strip() for name in names):
        rule = (
            "a place on S3 must not have percent signs, backslashes or control characters in it, nor names that are "
            "empty, . or .., or that begin or end with a space"
        )
        raise InvalidInput(field, path[:100], rule)


def is_url(path: str) -> bool:
    """Whether a path has a scheme, as `s3a://bucket/x` does."""
    return _URL.match(path) is not None


def normal_path(path: Any, is_ours: bool = False) -> Any:
    """A `file:` URL of this machine as a path; anything else as it is.

    is_ours: whether Headrace itself reads it, so that `s3:` means what Spark names `s3a:`.
    """
    if is_ours and isinstance(path, str) and path.startswith("s3://"):
        return path.replace("s3:", "s3a:", 1)
    parts = urlsplit(path) if isinstance(path, str) and path.startswith("file:") else None
    if parts is None or parts.netloc not in ("", "localhost"):
        return path
    return unquote(parts.path)
