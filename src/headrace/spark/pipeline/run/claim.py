"""Which run may use a checkpoint on an object store: the newest one.

Object stores have no locks that are released when a process dies. So runs are numbered, and each claims its number by
an object that the store creates only if it does not exist:

    <checkpoint>/headrace-runs/00000007     {"run": id, "directory": "spark-00000004", "is_ended": false, "beat": 12}
    <checkpoint>/spark-00000004/            Spark's offsets, commits and state

A second run is refused while the last one lives: it rewrites its object every few seconds, and the second one watches
for that. A run that does not is taken over. It may be alive all the same (paused, or cut off from the store), and then
its late writes must not count. No clock decides that:

1. Before a batch is written to the sinks, the run looks for a newer claim, and fails if it finds one.
2. The newer run continues in a copy of Spark's directory, made after its claim. What the older one still writes goes
   to a directory that nobody reads.
3. If the older run looked before that claim, then Spark had planned the batch before the copy was made. Both runs
   write this batch, with the same number and the same fingerprint, and the broker takes it once.

Files are copied in the order that makes this true: commits, then offsets, then all others, because Spark writes them
the other way round. A run that has ended says so, and the next one continues in the same directory.

`directory` always names a complete one: that of the run before, until the copy is complete.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from headrace.core.errors import HeadraceError, InvalidInput, StoreUnavailable
from headrace.spark.pipeline.run.checkpoint_files import HadoopFiles

_RUNS: Final = "headrace-runs"
_DIRECTORY: Final = "spark"
_BEAT_SECONDS: Final = 5.0
_SILENT_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 1.0
# Older claims are deleted: only the newest one is ever read.
_KEPT: Final = 10
_COPIED_FIRST: Final = ("commits", "offsets")


class Claimed(msgspec.Struct, frozen=True):
    """What the object of a run says."""

    run: str
    directory: str
    is_ended: bool = False
    beat: int = 0


_NOTHING: Final = Claimed("", _DIRECTORY, is_ended=True)


class Claim:
    """The claim of one run; before `take`, what the last run left.

    One thread takes and releases it; any thread may call `check`. A thread of its own shows that the run lives.
    """

    def __init__(self, files: HadoopFiles) -> None:
        self._files = files
        self._number, last = self._newest()
        self._own = last or _NOTHING
        # Whether Spark's directory is not that of a run that may be alive.
        self._is_ready = False
        # Whether our own Spark may write there.
        self.is_in_use = False
        self._storing = threading.Lock()
        self._released = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="headrace-claim", daemon=True)

    @property
    def directory(self) -> str:
        """Where Spark keeps its own."""
        return self._own.directory

    def take(self, wait: Callable[[float], bool]) -> None:
        """Become the newest run, once the last one has ended or is silent; `wait` returns True to give up."""
        last = self._await_silence(wait)
        self._number += 1
        self._own = Claimed(uuid.uuid4().hex, last.directory)
        if not self._files.create(_name(self._number), msgspec.json.encode(self._own)):
            raise self._refusal("another run has just started on this checkpoint")
        self._check_store()
        self._heart.start()
        if not last.is_ended:
            self._continue_in_a_copy()
        self._is_ready = True
        self._sweep(last.directory)

    def check(self) -> None:
        """Raise if a newer run has taken over."""
        if self._newest_number() != self._number:
            raise self._refusal(
                "a newer run has taken over this checkpoint, because this one was silent; nothing of this batch was "
                "written. End one of the two"
            )

    def release(self) -> None:
        """End the claim. If Spark has surely stopped writing, the next run need not wait for silence."""
        if not self._heart.is_alive():
            return
        self._released.set()
        self._heart.join()
        if self._is_ready and not self.is_in_use:
            # If Java has ended too, or the store does not answer, the next run waits for silence.
            with suppress(HeadraceError):
                self._store(is_ended=True)

    def _await_silence(self, wait: Callable[[float], bool]) -> Claimed:
        """The last run's claim, when it has ended or has been silent for long enough."""
        self._number, last = self._newest()
        if last is None:
            return _NOTHING
        for _ in range(int(_SILENT_SECONDS / _LOOK_SECONDS)):
            if last.is_ended:
                break
            if wait(_LOOK_SECONDS):
                raise self._refusal("stopped while waiting for the end of another run")
            number, found = self._newest()
            if found is None or number != self._number or (found != last and not found.is_ended):
                raise self._refusal("another run uses this checkpoint: wait until it has ended, or stop it")
            last = found
        return last

    def _continue_in_a_copy(self) -> None:
        complete, copied = self._own.directory, f"{_DIRECTORY}-{self._number:08}"
        names = self._files.list(complete)
        first = [name for name in _COPIED_FIRST if name in names]
        for name in (*first, *(name for name in names if name not in first)):
            self._files.copy(f"{complete}/{name}", f"{copied}/{name}")
        self._store(directory=copied)

    def _sweep(self, complete: str) -> None:
        """Delete what no newer run can need: the next one continues in our directory, or in the one before."""
        for name in self._files.list(_RUNS):
            if name.isdecimal() and int(name) <= self._number - _KEPT:
                self._files.delete(f"{_RUNS}/{name}")
        for name in self._files.list(""):
            first, _, number = name.partition("-")
            # Those of newer runs have higher numbers: we may be the one that was taken over.
            is_older = first == _DIRECTORY and int(number or 0) < self._number
            if is_older and name not in (complete, self._own.directory):
                self._files.delete(name)

    def _check_store(self) -> None:
        if self._files.create(_name(self._number), msgspec.json.encode(_NOTHING)):
            rule = "this store ignores If-None-Match, so runs cannot exclude each other: use a store that supports it"
            raise InvalidInput("run.checkpoint", self._files.place, rule)

    def _beat(self) -> None:
        """The top of a thread: show others that this run lives."""
        while not self._released.wait(_BEAT_SECONDS):
            # If it fails, another run may take over; `check` finds that.
            with suppress(HeadraceError):
                self._store(beat=self._own.beat + 1)

    def _store(self, **changes: Any) -> None:
        with self._storing:
            self._own = msgspec.structs.replace(self._own, **changes)
            self._files.replace(_name(self._number), msgspec.json.encode(self._own))

    def _newest(self) -> tuple[int, Claimed | None]:
        number = self._newest_number()
        if number == 0:
            return 0, None
        content = self._files.read(_name(number))
        if content is None:
            raise self._refusal("another run changes this checkpoint")
        try:
            return number, msgspec.json.decode(content, type=Claimed)
        except msgspec.DecodeError as error:
            raise InvalidInput(
                "run.checkpoint", self._files.place, f"{_name(number)} cannot be read: {error}"
            ) from None

    def _newest_number(self) -> int:
        return max((int(name) for name in self._files.list(_RUNS) if name.isdecimal()), default=0)

    def _refusal(self, reason: str) -> StoreUnavailable:
        return StoreUnavailable(self._files.place, reason)


def _name(number: int) -> str:
    return f"{_RUNS}/{number:08}"
