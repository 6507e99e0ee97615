"""The operating system for the disk engine; the only module of the engine that calls it.

Tests replace it by a failing one. A handle is an open file; writes have explicit positions, and nothing is on the
device before `sync`. Files created in or deleted from a directory are durable after `sync_directory`.
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
# The maximum of Linux in one call.
_BUFFERS_MAX = 1024
_COPY_BYTES = 1 << 20


class FileSystem:
    """Plain calls to the operating system; errors are OSError."""

    def make_directory(self, path: Path) -> bool:
        """Create a directory and its parents, durably; it may exist. Returns whether it did not."""
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for made in reversed(missing):
            # Only the owner may read messages.
            made.mkdir(0o700, exist_ok=True)
            self.sync_directory(made.parent)
        path.mkdir(exist_ok=True)
        return bool(missing)

    def list_directory(self, path: Path) -> list[str]:
        """The names in a directory, sorted; empty if it does not exist."""
        return sorted(os.listdir(path)) if path.is_dir() else []

    def space(self, path: Path) -> tuple[int, int]:
        """The size of the file system of a path, and the space available to this user, in bytes."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def remove_directory(self, path: Path) -> None:
        """Delete an empty directory; it may be missing."""
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()

    def open(self, path: Path) -> int:
        """Open a file for writing; it is created if missing, for its owner only."""
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
        """Truncate a file."""
        os.ftruncate(handle, length)

    def close(self, handle: int) -> None:
        """Close a file."""
        os.close(handle)

    def size(self, path: Path) -> int:
        """The length of a file."""
        return os.stat(path).st_size

    def map(self, path: Path) -> memoryview:
        """The current content of a file, mapped into memory."""
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
        """Copy the current content of a file to another, which is overwritten; durable except for its name."""
        with source.open("rb") as before, target.open("wb") as after:
            shutil.copyfileobj(before, after, _COPY_BYTES)
            after.flush()
            os.fsync(after.fileno())

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file, replacing the other."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Delete a file; it may be missing."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def sync_directory(self, path: Path) -> None:
        """Sync a directory: its names are on the device."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def lock(self, path: Path) -> int | None:
        """Lock a file and write this process's id into it; None if another process holds the lock."""
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
    """Write a file atomically; if not durable, a power cut may leave garbage in it."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        _write_anew(files, temporary, parts, durable)
        files.replace(temporary, path)
    except OSError:
        # A partial file would use the space that was missing.
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
