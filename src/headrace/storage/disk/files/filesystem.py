"""The operating system as the disk engine sees it, and the only module of the engine that touches it.

Tests put a failing one in its place. A handle is an open file; writes go to explicit positions, and nothing is on
the device before `sync`. Names made or removed in a directory are durable after `sync_directory`.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_sync_data = getattr(os, "fdatasync", os.fsync)
# What Linux takes in one call.
_BUFFERS_MAX = 1024
_COPY_BYTES = 1 << 20


class FileSystem:
    """Plain calls to the operating system; errors are OSError."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it, durably; one that is there already is fine."""
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for made in reversed(missing):
            # Only the owner may look at messages.
            made.mkdir(0o700, exist_ok=True)
            self.sync_directory(made.parent)
        path.mkdir(exist_ok=True)

    def list_directory(self, path: Path) -> list[str]:
        """The names in a directory, sorted; none if it is not there."""
        return sorted(os.listdir(path)) if path.is_dir() else []

    def space(self, path: Path) -> tuple[int, int]:
        """The size of the file system that holds a path, and what this user may still write, in bytes."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; one that is gone already is fine."""
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()

    def open(self, path: Path) -> int:
        """Open a file for writing, making it if it is missing, for its owner only."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, handle: int, position: int, parts: Sequence[Any]) -> None:
        """Write buffers one after another from a position on."""
        views = [memoryview(part).cast("B") for part in parts]
        while views:
            written = os.pwritev(handle, views[:_BUFFERS_MAX], position)
            position += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if views:
                views[0] = views[0][written:]

    def sync(self, handle: int) -> None:
        """Wait until everything written to the file is on the device."""
        _sync_data(handle)

    def truncate(self, handle: int, length: int) -> None:
        """Cut a file."""
        os.ftruncate(handle, length)

    def close(self, handle: int) -> None:
        """Close a file."""
        os.close(handle)

    def size(self, path: Path) -> int:
        """The length of a file."""
        return os.stat(path).st_size

    def map(self, path: Path) -> memoryview:
        """The present content of a file as memory; the pages are read when they are touched."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            length = os.fstat(handle).st_size
            return memoryview(mmap.mmap(handle, length, prot=mmap.PROT_READ) if length else b"")
        finally:
            os.close(handle)

    def read(self, path: Path, length: int) -> bytes:
        """The first bytes of a file, at most `length`."""
        with path.open("rb") as file:
            return file.read(length)

    def copy(self, source: Path, target: Path) -> None:
        """Copy the present content of a file to another, durably but for its name; what the other held is gone."""
        with source.open("rb") as before, target.open("wb") as after:
            shutil.copyfileobj(before, after, _COPY_BYTES)
            after.flush()
            os.fsync(after.fileno())

    def replace(self, source: Path, target: Path) -> None:
        """Give a file the name of another, which is gone then."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is fine."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory are on the device."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def lock(self, path: Path) -> int | None:
        """Take a file's lock and write this process's number into it; none if another process holds it."""
        handle = self.open(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return handle


def write_whole(files: FileSystem, path: Path, parts: Sequence[Any], durable: bool) -> None:
    """Make a file appear with all its content or not at all; if not durable, a power cut may leave rubbish in it."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        _write_anew(files, temporary, parts, durable)
        files.replace(temporary, path)
    except OSError:
        # A half of it would take the room that was missing.
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise
    if durable:
        files.sync_directory(path.parent)


def _write_anew(files: FileSystem, path: Path, parts: Sequence[Any], durable: bool) -> None:
    handle = files.open(path)
    try:
        files.truncate(handle, 0)
        files.write(handle, 0, parts)
        if durable:
            files.sync(handle)
    finally:
        files.close(handle)
