"""The file systems that fault tests put in the place of the real one.

`SimulatedFileSystem` works on a `SimulatedDisk`, which lives in memory and knows what is on the device and what is
not: a process can die at any call, the power can be cut, and what is left is laid out in a real directory to be
opened there. `FailingFileSystem` is the real one with calls that fail.

What a power cut may take, and how:
- bytes written since the last `sync` of their file, block by block: new or old, and where there was nothing yet, zero
  or rubbish;
- names made, given or removed since the last `sync_directory`, name by name; a rename is one step;
- what a failed `sync` was to bring to the device, even if a later one succeeds: the system counts it as written.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.storage.disk.files.filesystem import FileSystem

# A device writes whole sectors; frames are so small here that their alignment is the better grain.
BLOCK_BYTES = 64


class Crash(BaseException):
    """The process dies here; nothing that it does from now on reaches the disk."""


@dataclass(eq=False)
class File:
    """A file: its content as the process sees it, that on the device, and which bytes wait to get there."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    dirty: list[tuple[int, int]] = field(default_factory=list)
    forgotten: list[tuple[int, int]] = field(default_factory=list)

    def write(self, position: int, data: bytes) -> None:
        self.content.extend(bytes(max(0, position - len(self.content))))
        self.content[position : position + len(data)] = data
        span = (position, position + len(data))
        self.dirty.append(span)
        self.forgotten = [other for other in self.forgotten if not span[0] <= other[0] <= other[1] <= span[1]]

    def sync(self) -> None:
        self.durable = self._on_device()
        self.dirty = []

    def fail_sync(self) -> None:
        """The bytes that were to be written are taken for clean, and are not on the device."""
        self.forgotten += self.dirty
        self.dirty = []

    def _on_device(self) -> bytes:
        device = bytearray(self.content)
        before = self.durable.ljust(len(device), b"\0")
        for start, end in self.forgotten:
            stop = min(end, len(device))
            device[start:stop] = before[start:stop]
        return bytes(device)


@dataclass(eq=False)
class Folder:
    """A directory: its names as the process sees them, those on the device, and the steps between the two."""

    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    changes: list[dict[str, Node | None]] = field(default_factory=list)

    def change(self, step: dict[str, Node | None]) -> None:
        _apply(self.names, step)
        self.changes.append(step)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes = []


Node = File | Folder


def _apply(names: dict[str, Node], step: dict[str, Node | None]) -> None:
    for name, node in step.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class World:
    """What is left after the end of a process: everything it wrote, whether synced or not."""

    def names(self, folder: Folder) -> dict[str, Node]:
        return folder.names

    def content(self, file: File) -> bytes:
        return bytes(file.content)


class ProcessDeath(World):
    """Everything stays; of a write that was under way, only so many of its bytes."""

    def __init__(self, unfinished: Unfinished | None = None, written_bytes: int = 0) -> None:
        self._unfinished = unfinished
        self._written_bytes = written_bytes

    def content(self, file: File) -> bytes:
        unfinished = self._unfinished
        if unfinished is None or unfinished.file is not file:
            return bytes(file.content)
        torn = File(bytearray(file.content))
        torn.write(unfinished.position, unfinished.data[: self._written_bytes])
        return bytes(torn.content)


class PowerCut(World):
    """Everything that was not synced is lost."""

    def names(self, folder: Folder) -> dict[str, Node]:
        return folder.durable

    def content(self, file: File) -> bytes:
        return file.durable


class ScatteredPowerCut(World):
    """Of what was not synced some is there and some is not, as chance has it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def names(self, folder: Folder) -> dict[str, Node]:
        names = dict(folder.durable)
        blocked: set[str] = set()
        for step in folder.changes:
            if blocked.isdisjoint(step) and self._random.random() < 0.5:
                _apply(names, step)
            else:
                blocked.update(step)
        return names

    def content(self, file: File) -> bytes:
        if not file.dirty and len(file.durable) == len(file.content):
            return file.durable
        lengths = sorted([len(file.durable), len(file.content)])
        length = self._random.choice([*lengths, self._random.randint(*lengths)])
        device = bytearray(file.durable[:length].ljust(length, b"\0"))
        for start, end in file.dirty:
            keeps = self._keeping(start, end)
            for place in range(start, min(end, length), BLOCK_BYTES):
                stop = min(place + BLOCK_BYTES, end, length)
                if keeps(place):
                    device[place:stop] = file.content[place:stop].ljust(stop - place, b"\0")
                elif place >= len(file.durable) and self._random.random() < 0.5:
                    device[place:stop] = self._random.randbytes(stop - place)
        return bytes(device)

    def _keeping(self, start: int, end: int) -> Callable[[int], bool]:
        """Which blocks of a write are on the device: the first ones, the last ones, or some."""
        cut = self._random.randint(start, end)
        ways: list[Callable[[int], bool]] = [
            lambda place: place < cut,
            lambda place: place >= cut,
            lambda place: self._random.random() < 0.7,
        ]
        return self._random.choice(ways)


@dataclass(frozen=True)
class Unfinished:
    """A write during which the process died."""

    file: File
    position: int
    data: bytes


class SimulatedDisk:
    """A disk in memory. It outlives the processes that use it; paths below `root` are on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = Folder()
        self.version = 0

    def load(self, directories: Mapping[str, Path], skip: Callable[[str], bool]) -> None:
        """Take in the content of real directories, all of it on the device."""
        for name, directory in directories.items():
            self.top.names[name] = Folder()
            _load(self.folder(self.root / name), directory, skip)
        self.top.sync()

    @property
    def has_unsynced(self) -> bool:
        """Whether a power cut could take anything."""
        return _has_unsynced(self.top)

    def find(self, path: Path) -> Node | None:
        node: Node | None = self.top
        for part in path.relative_to(self.root).parts:
            node = node.names.get(part) if isinstance(node, Folder) else None
        return node

    def folder(self, path: Path) -> Folder:
        node = self.find(path)
        if not isinstance(node, Folder):
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        return node

    def file(self, path: Path) -> File:
        node = self.find(path)
        if not isinstance(node, File):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return node

    def lay_out(self, world: World, target: Path) -> None:
        """Write what is left in some world into a real directory."""
        _lay_out(self.top, world, target)

    def cut_power(self, world: World) -> None:
        """Go on with what is left in some world; all of it is on the device then."""
        self.top = _settled(self.top, world)


def _load(folder: Folder, directory: Path, skip: Callable[[str], bool]) -> None:
    for entry in sorted(directory.iterdir()):
        if entry.is_dir():
            child = Folder()
            _load(child, entry, skip)
            folder.names[entry.name] = child
        elif not skip(entry.name):
            data = entry.read_bytes()
            folder.names[entry.name] = File(bytearray(data), data)
    folder.sync()


def _has_unsynced(node: Node) -> bool:
    if isinstance(node, File):
        return bool(node.dirty) or node.durable != bytes(node.content)
    return bool(node.changes) or any(map(_has_unsynced, node.names.values()))


def _lay_out(folder: Folder, world: World, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for name, node in world.names(folder).items():
        if isinstance(node, Folder):
            _lay_out(node, world, target / name)
        else:
            (target / name).write_bytes(world.content(node))


def _settled(folder: Folder, world: World) -> Folder:
    settled = Folder()
    for name, node in world.names(folder).items():
        if isinstance(node, Folder):
            settled.names[name] = _settled(node, world)
        else:
            data = world.content(node)
            settled.names[name] = File(bytearray(data), data)
    settled.sync()
    return settled


class SimulatedFileSystem(FileSystem):
    """The file system of one process on a simulated disk; with `crash_at` the process dies at that call.

    Calls are counted once the file system is armed. After the crash every call dies, so that nothing that runs while
    the process unwinds changes the disk.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.calls = 0
        self.segments_made = 0
        self.crash_at: int | None = None
        self.is_dead = False
        self.unfinished: Unfinished | None = None
        self.fails_sync: Callable[[File], bool] = lambda file: False
        # How much of a write is done before it fails; none if it does not.
        self.fails_write: Callable[[File], float | None] = lambda file: None
        self._handles: dict[int, File] = {}
        self._next_handle = 1000

    def arm(self, crash_at: int) -> None:
        """Count from now on, and die at this call."""
        self.calls, self.crash_at, self.segments_made = 0, crash_at, 0

    def _enter(self) -> None:
        if not self.is_dead:
            self.calls += 1
            self.is_dead = self.calls == self.crash_at
        if self.is_dead:
            raise Crash

    def _changed(self) -> None:
        self.disk.version += 1

    def make_directory(self, path: Path) -> bool:
        """As the real one: all levels first, then a sync of what is above each; it may die between the two."""
        self._enter()
        folder, parents = self.disk.top, []
        for part in path.relative_to(self.disk.root).parts:
            if part not in folder.names:
                folder.change({part: Folder()})
                parents.append(folder)
                self._changed()
            child = folder.names[part]
            assert isinstance(child, Folder)
            folder = child
        for parent in parents:
            self._enter()
            parent.sync()
            self._changed()
        return bool(parents)

    def list_directory(self, path: Path) -> list[str]:
        self._enter()
        node = self.disk.find(path)
        return sorted(node.names) if isinstance(node, Folder) else []

    def remove_directory(self, path: Path) -> None:
        self._enter()
        if self.disk.folder(path).names:
            raise OSError(errno.ENOTEMPTY, "not empty", str(path))
        self.disk.folder(path.parent).change({path.name: None})
        self._changed()

    def open(self, path: Path) -> int:
        self._enter()
        return self._open(path)

    def _open(self, path: Path) -> int:
        folder = self.disk.folder(path.parent)
        if path.name not in folder.names:
            folder.change({path.name: File()})
            self.segments_made += path.suffix == ".log"
            self._changed()
        self._next_handle += 1
        self._handles[self._next_handle] = self.disk.file(path)
        return self._next_handle

    def write(self, handle: int, position: int, parts: Sequence[Any]) -> None:
        data = b"".join(bytes(memoryview(part).cast("B")) for part in parts)
        file = self._handles[handle]
        was_dead = self.is_dead
        try:
            self._enter()
        except Crash:
            if not was_dead:
                self.unfinished = Unfinished(file, position, data)
            raise
        written = self.fails_write(file)
        self._changed()
        if written is not None:
            file.write(position, data[: int(len(data) * written)])
            raise OSError(errno.ENOSPC, "simulated lack of room")
        file.write(position, data)

    def sync(self, handle: int) -> None:
        self._enter()
        file = self._handles[handle]
        self._changed()
        if self.fails_sync(file):
            file.fail_sync()
            raise OSError(errno.EIO, "simulated failure of a sync")
        file.sync()

    def truncate(self, handle: int, length: int) -> None:
        self._enter()
        file = self._handles[handle]
        if length != len(file.content):
            del file.content[length:]
            file.content.extend(bytes(length - len(file.content)))
            self._changed()

    def close(self, handle: int) -> None:
        self._enter()
        del self._handles[handle]

    def size(self, path: Path) -> int:
        self._enter()
        return len(self.disk.file(path).content)

    def map(self, path: Path) -> memoryview:
        self._enter()
        return memoryview(bytes(self.disk.file(path).content))

    def read(self, path: Path, length: int) -> bytes:
        self._enter()
        return bytes(self.disk.file(path).content[:length])

    def replace(self, source: Path, target: Path) -> None:
        self._enter()
        assert source.parent == target.parent
        self.disk.folder(source.parent).change({source.name: None, target.name: self.disk.file(source)})
        self._changed()

    def remove(self, path: Path) -> None:
        self._enter()
        folder = self.disk.folder(path.parent)
        if path.name in folder.names:
            folder.change({path.name: None})
            self._changed()

    def sync_directory(self, path: Path) -> None:
        self._enter()
        folder = self.disk.folder(path)
        if folder.changes:
            folder.sync()
            self._changed()

    def lock(self, path: Path) -> int | None:
        self._enter()
        handle = self._open(path)
        file = self._handles[handle]
        file.content.clear()
        file.write(0, f"{os.getpid()}\n".encode())
        self._changed()
        return handle


@dataclass
class Fault:
    """A rule of a failing file system: which calls fail, and how."""

    error: int
    calls: frozenset[str]
    ending: str = ""
    skip: int = 0
    times: int = 1 << 30
    written: float = 0.0

    def hits(self, call: str, name: str) -> bool:
        if call not in self.calls or not name.endswith(self.ending) or not self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


# The calls that may need room on the disk.
NEEDS_ROOM = frozenset({"make_directory", "open", "write", "replace"})
EVERY_LOOK = frozenset({"list_directory", "size", "map", "read"})
EVERY_CHANGE = NEEDS_ROOM | {"sync", "truncate", "remove", "remove_directory", "sync_directory"}


class FailingFileSystem(FileSystem):
    """The real file system with calls that fail as they are told to; `hits` has the calls that did."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.hits: list[tuple[str, str]] = []
        self._names: dict[int, str] = {}

    @contextmanager
    def failing(
        self,
        error: int,
        calls: frozenset[str],
        ending: str = "",
        skip: int = 0,
        times: int = 1 << 30,
        written: float = 0.0,
    ) -> Iterator[Fault]:
        """Let calls fail for a while: those on names with this ending, after some that succeed, so many times."""
        self.fault = Fault(error, calls, ending, skip, times, written)
        try:
            yield self.fault
        finally:
            self.fault = None

    def _check(self, call: str, name: str) -> None:
        fault = self.fault
        if fault is not None and fault.hits(call, name):
            self.hits.append((call, name))
            raise OSError(fault.error, os.strerror(fault.error), name)

    def list_directory(self, path: Path) -> list[str]:
        self._check("list_directory", path.name)
        return super().list_directory(path)

    def size(self, path: Path) -> int:
        self._check("size", path.name)
        return super().size(path)

    def map(self, path: Path) -> memoryview:
        self._check("map", path.name)
        return super().map(path)

    def read(self, path: Path, length: int) -> bytes:
        self._check("read", path.name)
        return super().read(path, length)

    def make_directory(self, path: Path) -> bool:
        self._check("make_directory", path.name)
        return super().make_directory(path)

    def remove_directory(self, path: Path) -> None:
        self._check("remove_directory", path.name)
        super().remove_directory(path)

    def open(self, path: Path) -> int:
        self._check("open", path.name)
        handle = super().open(path)
        self._names[handle] = path.name
        return handle

    def write(self, handle: int, position: int, parts: Sequence[Any]) -> None:
        try:
            self._check("write", self._names[handle])
        except OSError:
            assert self.fault is not None
            data = b"".join(bytes(memoryview(part).cast("B")) for part in parts)
            super().write(handle, position, [data[: int(len(data) * self.fault.written)]])
            raise
        super().write(handle, position, parts)

    def sync(self, handle: int) -> None:
        self._check("sync", self._names[handle])
        super().sync(handle)

    def truncate(self, handle: int, length: int) -> None:
        self._check("truncate", self._names[handle])
        super().truncate(handle, length)

    def replace(self, source: Path, target: Path) -> None:
        self._check("replace", target.name)
        super().replace(source, target)

    def remove(self, path: Path) -> None:
        self._check("remove", path.name)
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self._check("sync_directory", path.name)
        super().sync_directory(path)
