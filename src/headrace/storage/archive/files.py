"""Where the files of an archive are: a directory, or an object store through pyarrow.

A file is written under its own name and never changed; it exists only once it is complete and durable, except that an
object store may keep what was written of one that was broken off. Paths are relative to the archive's URL. Errors are
OSError, a missing file is FileNotFoundError. Thread-safe.

A URL has no credentials: it is shown to readers of the archive. Those of object stores come from the environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from crc32c import crc32c

from headrace.core.errors import InvalidInput
from headrace.storage.disk.files.filesystem import FileSystem

_RULE: Final = "it must be a directory, file:///DIRECTORY, or an object store such as s3://BUCKET/PREFIX"
# The ending of a file that is being written.
UNFINISHED: Final = ".tmp"


class Sink:
    """What a file is written to; counts its bytes and keeps their checksum."""

    closed = False

    def __init__(self, put: Any) -> None:
        """`put` gets a position and bytes."""
        self._put = put
        self._crc = 0
        self.bytes = 0

    @property
    def checksum(self) -> str:
        """The checksum of everything written, as the manifest has it."""
        return checksum_text(self._crc)

    def write(self, data: Any) -> int:
        """Write bytes at the end."""
        view = memoryview(data)
        self._put(self.bytes, view)
        self._crc = crc32c(view, self._crc)
        self.bytes += len(view)
        return len(view)

    def discard(self) -> None:
        """Ignore what is still written: the file is broken off."""
        self._put = lambda position, data: None

    def flush(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """The owner of the sink closes the file."""


def checksum_text(crc: int) -> str:
    """A checksum as the manifest has it."""
    return f"crc32c:{crc:08x}"


class ArchiveFiles(Protocol):
    """The files of an archive."""

    @property
    def url(self) -> str: ...

    def writing(self, path: str) -> Any: ...

    def open(self, path: str) -> Any: ...

    def size(self, path: str) -> int: ...

    def remove(self, path: str) -> None: ...

    def list(self, directory: str) -> list[str]: ...


class DirectoryFiles:
    """An archive in a directory."""

    def __init__(self, directory: Path, files: FileSystem | None = None) -> None:
        self.url = directory.as_uri()
        self._directory = directory
        self._files = files or FileSystem()

    @contextmanager
    def writing(self, path: str) -> Iterator[Sink]:
        """Write a file; it exists under its name once it is on the device."""
        files, target = self._files, self._directory / path
        files.make_directory(target.parent)
        unfinished = target.with_name(target.name + UNFINISHED)
        try:
            handle = files.open(unfinished)
            try:
                yield Sink(lambda position, data: files.write(handle, position, [data]))
                files.sync(handle)
            finally:
                files.close(handle)
            files.replace(unfinished, target)
            files.sync_directory(target.parent)
        except BaseException:
            with suppress(OSError):
                files.remove(unfinished)
            raise

    def open(self, path: str) -> Any:
        """A file to read from."""
        return pa.BufferReader(pa.py_buffer(self._files.map(self._directory / path)))

    def size(self, path: str) -> int:
        """The length of a file."""
        return self._files.size(self._directory / path)

    def remove(self, path: str) -> None:
        """Delete a file; it may be missing."""
        self._files.remove(self._directory / path)

    def list(self, directory: str) -> list[str]:
        """The names in a directory, which may be missing."""
        return self._files.list_directory(self._directory / directory)


class ObjectFiles:
    """An archive on a file system of pyarrow."""

    def __init__(self, url: str, filesystem: Any, base: str) -> None:
        self.url = url
        self._filesystem = filesystem
        self._base = base.rstrip("/")

    @contextmanager
    def writing(self, path: str) -> Iterator[Sink]:
        """Write a file; object stores show it once it is complete.

        If anything fails, closing the stream may complete a part of the file: it is deleted, or else is a stray.
        """
        target = self._path(path)
        try:
            with self._filesystem.open_output_stream(target, compression=None) as stream:
                sink = Sink(lambda _, data: stream.write(data))
                yield sink
            if self.size(path) != sink.bytes:
                raise OSError(f"{target} has {self.size(path)} bytes after writing {sink.bytes}")
        except BaseException:
            with suppress(OSError):
                self.remove(path)
            raise

    def open(self, path: str) -> Any:
        """A file to read from."""
        return self._filesystem.open_input_file(self._path(path))

    def size(self, path: str) -> int:
        """The length of a file."""
        size = self._filesystem.get_file_info(self._path(path)).size
        if size is None:
            raise FileNotFoundError(self._path(path))
        return int(size)

    def remove(self, path: str) -> None:
        """Delete a file; it may be missing."""
        with suppress(FileNotFoundError):
            self._filesystem.delete_file(self._path(path))

    def list(self, directory: str) -> list[str]:
        """The names in a directory, which may be missing."""
        from pyarrow.fs import FileSelector

        found = self._filesystem.get_file_info(FileSelector(self._path(directory), allow_not_found=True))
        return sorted(each.base_name for each in found)

    def _path(self, path: str) -> str:
        return f"{self._base}/{path}"


def open_files(url: str) -> DirectoryFiles | ObjectFiles:
    """The files of an archive's URL; an object store is not asked before it is used."""
    parts = urlsplit(url)
    if not url or "\0" in url or parts.username is not None or parts.password is not None:
        shown = "one with credentials" if "@" in parts.netloc else repr(url)
        rule = f"{_RULE}, without credentials: those of an object store come from the environment"
        raise InvalidInput("archive.url", shown, rule)
    if not parts.scheme or parts.scheme == "file":
        path = unquote(parts.path) if parts.scheme else url
        if parts.netloc or not path:
            raise InvalidInput("archive.url", repr(url), _RULE)
        return DirectoryFiles(Path(path).absolute())
    # Imported only here: it takes a while, and few archives need it.
    from pyarrow import fs

    try:
        filesystem, base = fs.FileSystem.from_uri(url)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput("archive.url", repr(url), f"{_RULE}: {error}") from None
    return ObjectFiles(url, filesystem, base)
