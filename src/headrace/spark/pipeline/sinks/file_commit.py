"""Files of a table, put there batch by batch, each batch once.

    Spark ──► _headrace/<writer>/stage-<id>/   whatever the tasks wrote, seen by no reader
                     │
                     ▼
              _headrace/<writer>/manifest      which file goes where: from here on the batch is decided
                     │
                     ▼
              part-<writer>-<number>-…         files in their places; then `last`, then the manifest goes

A batch whose number is that of `last` was written and is not written again, if its fingerprint is that of `last` too.
A load that is no part of a stream leaves its id in `_headrace/loads`, and is not written again by any pipeline.
After a kill, a stage without a manifest is dropped and the batch is written anew; one with a manifest is brought to its
end. Names that begin with an underscore are passed over by everyone who reads tables. A reader that lists the directory
while files are moved may see a part of a batch; Delta, whose log says which files count, has no such moment.

One run at a time may write as one writer: from `open` to `close` it holds the lock of the state's directory. Files and
names only: this module knows neither Spark nor formats.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from headrace.core.errors import StoreUnavailable
from headrace.spark.pipeline.run.lock import Lock

STATE_DIRECTORY: Final = "_headrace"
_SUFFIX: Final = re.compile(r"(\.[A-Za-z0-9]+)+$")


class CommitManifest(msgspec.Struct, frozen=True):
    """What is still to be done for a batch: moves from the state's directory into the table, then removals."""

    number: int
    moves: list[tuple[str, str]]
    removals: list[str]
    fingerprint: int | None = None
    load: str | None = None


class FileCommit:
    """The files of one writer in a table."""

    def __init__(self, table: Path, writer: str) -> None:
        self.table = table
        self.prefix = f"part-{writer}-"
        self._state = table / STATE_DIRECTORY / writer
        self._loads = table / STATE_DIRECTORY / "loads"
        told = f"another run writes this table as {writer}: wait until it has ended, or stop it"
        self._lock = Lock(self._state / "lock", table, told)

    def open(self, commit: Callable[[CommitManifest], None], finishes: Callable[[CommitManifest], bool]) -> None:
        """Bring what was decided to its end, and drop what was not.

        `finishes` says whether a manifest is to be finished. If not it is taken back: a batch that is no part of a
        stream is run again as a whole.
        """
        self._lock.take()
        if self._manifest.exists():
            manifest = msgspec.json.decode(self._manifest.read_bytes(), type=CommitManifest)
            if finishes(manifest):
                self._apply(manifest, commit)
            else:
                self._take_back(manifest)
        for left in self._state.glob("stage-*"):
            shutil.rmtree(left)

    def close(self) -> None:
        """Let others write."""
        self._lock.release()

    def newest(self) -> tuple[int, int | None]:
        """The last batch written: its number, -1 before the first, and its fingerprint, if it has one."""
        number, *fingerprint = self._last()
        return number, next(iter(fingerprint), None)

    @property
    def last(self) -> int:
        """The number of the last batch written; -1 before the first."""
        return self.newest()[0]

    @property
    def fingerprint(self) -> int | None:
        """The fingerprint of the last batch, if it has one."""
        return self.newest()[1]

    def _last(self) -> list[int]:
        try:
            return [int(number) for number in (self._state / "last").read_text().split()]
        except FileNotFoundError:
            return [-1]

    @property
    def is_used(self) -> bool:
        """Whether a batch was written, or is decided to be."""
        return self.last >= 0 or self._manifest.exists()

    def has_load(self, load: str) -> bool:
        """Whether a load with this id was written, by whichever pipeline."""
        return self._load_file(load).exists()

    def _load_file(self, load: str) -> Path:
        return self._loads / sha256(load.encode()).hexdigest()

    def new_stage(self) -> Path:
        """A directory to write to that does not exist."""
        return self._state / f"stage-{uuid.uuid4().hex}"

    def land(
        self,
        stage: Path,
        number: int,
        commit: Callable[[CommitManifest], None],
        fingerprint: int | None = None,
        load: str | None = None,
    ) -> list[Path]:
        """Put the files of a stage into the table as a batch: where they are now."""
        if not stage.is_dir():
            raise _missing(stage)
        moves = []
        for place, file in enumerate(_data_files(stage)):
            folder = file.parent.relative_to(stage)
            name = f"{self.prefix}{number:010d}-{place:05d}{_suffix(file)}"
            moves.append((str(file.relative_to(self._state)), str(folder / name)))
        self.replace(CommitManifest(number, moves, [], fingerprint, load), commit)
        self.drop_stage(stage)
        return [self.table / place for _, place in moves]

    def drop_stage(self, stage: Path) -> None:
        """Remove a stage whose batch is in the table."""
        shutil.rmtree(stage, ignore_errors=True)

    def replace(self, manifest: CommitManifest, commit: Callable[[CommitManifest], None]) -> None:
        """Do what a manifest says, so that it is done wholly even if we are killed now."""
        _write(self._manifest, msgspec.json.encode(manifest))
        self._apply(manifest, commit)

    def relative(self, file: Path) -> str:
        """A file of the state as manifests name it."""
        return str(file.relative_to(self._state))

    @property
    def _manifest(self) -> Path:
        return self._state / "manifest"

    def _apply(self, manifest: CommitManifest, commit: Callable[[CommitManifest], None]) -> None:
        for source, place in manifest.moves:
            target = self.table / place
            target.parent.mkdir(parents=True, exist_ok=True)
            # What is no longer at its source was moved before we were killed.
            if (self._state / source).exists():
                os.replace(self._state / source, target)
            elif not target.exists():
                raise _missing(self._state / source)
        commit(manifest)
        for place in manifest.removals:
            (self.table / place).unlink(missing_ok=True)
        if manifest.load is not None:
            self._loads.mkdir(exist_ok=True)
            _write(self._load_file(manifest.load), manifest.load.encode())
        told = [manifest.number] if manifest.fingerprint is None else [manifest.number, manifest.fingerprint]
        _write(self._state / "last", " ".join(map(str, told)).encode())
        self._manifest.unlink()

    def _take_back(self, manifest: CommitManifest) -> None:
        for _, place in manifest.moves:
            (self.table / place).unlink(missing_ok=True)
        self._manifest.unlink()


def _missing(path: Path) -> StoreUnavailable:
    """Somebody else was here: better to end than to count rows as written that are nowhere."""
    return StoreUnavailable(
        str(path), "it was written and then deleted by someone else: find out who deletes files of the table"
    )


def _data_files(stage: Path) -> Iterable[Path]:
    """The files that hold rows, in the order of the tasks that wrote them."""
    return sorted(file for file in stage.rglob("*") if file.is_file() and file.name[0] not in "._")


def _suffix(file: Path) -> str:
    found = _SUFFIX.search(file.name)
    return found.group().removeprefix(".c000") if found else ""


def _write(file: Path, content: bytes) -> None:
    """A file that exists whole, or not at all."""
    beside = file.with_name(f"{file.name}.new")
    with open(beside, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(beside, file)
