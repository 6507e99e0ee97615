"""What an attack costs a server and the others, in figures that a busy machine changes little, and their bounds.

    with Trial(directory) as trial:
        cost = trial.cost(lambda address: ...)     what it used, and how long others waited meanwhile
        assert not cost.excess()

A witness does what the victim does, in threads of this process. How long it waited is told twice: by the clock, and by
how much the server's process worked between a request and its answer, which no other process can lengthen. The bound
for the former is therefore far above what it should be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.hostile.target import Address, Target
from tests.hostile.victim import FAILURES, OPERATIONS, Operation

MIB: Final = 1 << 20
PAUSE_SECONDS: Final = 0.03
PATIENCE_SECONDS: Final = 20.0


@dataclass(frozen=True)
class Cost:
    """The cost of an attack; `wait` is the longest of all waits of the witness."""

    answer_bytes: int = 0
    memory_bytes: int = 0
    processor_seconds: float = 0.0
    wait_processor_seconds: float = 0.0
    wait_seconds: float = 0.0
    errors: tuple[str, ...] = ()

    def excess(self, bounds: Mapping[str, float] | None = None) -> dict[str, object]:
        """What is above its bound, and what others were refused."""
        limits = (bounds or BOUNDS).items()
        above = {name: getattr(self, name) for name, most in limits if getattr(self, name) > most}
        return above | ({"errors": self.errors[:3]} if self.errors else {})

    def __str__(self) -> str:
        return (
            f"answer {self.answer_bytes / MIB:.1f} MiB, memory {self.memory_bytes / MIB:+.0f} MiB, "
            f"{self.processor_seconds:.1f} s of a core, others wait {self.wait_seconds:.2f} s "
            f"({self.wait_processor_seconds:.2f} s of a core), {len(self.errors)} errors"
        )


# Of one request, whatever is in it.
BOUNDS: Final = {
    "answer_bytes": 32 * MIB,
    "memory_bytes": 256 * MIB,
    "processor_seconds": 5.0,
    "wait_processor_seconds": 1.0,
    "wait_seconds": 10.0,
}
# What may be left of attacks that have ended: allocators keep some of it for the next one.
KEPT_BYTES_MAX: Final = 128 * MIB
# An attack, which returns the bytes of the answer.
Attack = Callable[[Address], int]


class Trial:
    """A server and a witness; others, on a store of their own, after an attack that cost too much."""

    def __init__(self, directory: Path, *arguments: str, bounds: Mapping[str, float] | None = None) -> None:
        self._bounds = bounds
        self._directories = (directory / str(number) for number in count())
        self._arguments = arguments
        self._begin()

    def _begin(self) -> None:
        self._target = Target(next(self._directories), *self._arguments)
        self._witness = Witness(self._target.address)

    def _end(self) -> None:
        self._witness.stop()
        self._target.close()
        self._witness.join()

    @property
    def address(self) -> Address:
        return self._target.address

    def cost(self, attack: Attack) -> Cost:
        """The cost of an attack."""
        cost = self._witness.cost(attack)
        if cost.excess(self._bounds):
            self._end()
            self._begin()
        return cost

    def kept_bytes(self, before: int) -> int:
        """What is left of what attacks took; allocators give back what they keep a moment later."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (kept := self.address.memory_bytes() - before) >= KEPT_BYTES_MAX and time.monotonic() < deadline:
            time.sleep(0.1)
        return kept

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


class Witness:
    """All operations of the victim, each in a thread, one call after another."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._callers = [Caller(address, operation) for operation in OPERATIONS.values()]

    def cost(self, attack: Attack) -> Cost:
        """The cost of an attack, and of what it leaves to be done."""
        address = self._address
        for each in self._callers:
            each.waits()
        address.forget_peak()
        used, memory = address.processor_seconds(), address.memory_bytes()
        answer_bytes = attack(address)
        waits = [each.waits_to_the_end(BOUNDS["wait_seconds"]) for each in self._callers]
        if not address.is_running:
            return Cost(answer_bytes, errors=("the server has ended",))
        return Cost(
            answer_bytes,
            address.memory_bytes("VmHWM") - memory,
            address.processor_seconds() - used,
            max(each.processor_seconds for each in waits),
            max(each.seconds for each in waits),
            tuple(error for each in waits for error in each.errors),
        )

    def stop(self) -> None:
        """Make no more calls; one that is made now ends with the server, if not before."""
        for each in self._callers:
            each.stop()

    def join(self) -> None:
        """Wait for the end of the last calls."""
        for each in self._callers:
            each.join()


@dataclass
class LongestWait:
    """The longest wait of an operation since the last look, and what failed."""

    seconds: float = 0.0
    processor_seconds: float = 0.0
    errors: list[str] = field(default_factory=list)


class Caller:
    """One operation in a thread."""

    def __init__(self, address: Address, operation: Operation) -> None:
        self._address = address
        self._operation = operation
        self._over = threading.Event()
        self._changed = threading.Condition()
        self._longest = LongestWait()
        # When the call that is made now began, by the clock and by what the server had used.
        self._began: tuple[float, float] | None = None
        self._calls = 0
        self._connected = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._connected.wait()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with self._operation(self._address) as do:
                    self._connected.set()
                    while not self._over.wait(PAUSE_SECONDS):
                        with self._changed:
                            self._began = time.monotonic(), self._used()
                        do()
                        self._end_call()
            except FAILURES as error:
                self._end_call(f"{type(error).__name__}: {error}"[:200])
                self._over.wait(PAUSE_SECONDS)

    def _end_call(self, *errors: str) -> None:
        with self._changed:
            self._look()
            self._began = None
            self._calls += 1
            self._longest.errors += errors
            self._changed.notify_all()

    def _look(self) -> None:
        if self._began is not None:
            longest, (began, used) = self._longest, self._began
            longest.seconds = max(longest.seconds, time.monotonic() - began)
            longest.processor_seconds = max(longest.processor_seconds, self._used() - used)

    def _used(self) -> float:
        return self._address.processor_seconds() if self._address.is_running else 0.0

    def waits(self) -> LongestWait:
        """What was seen since the last time, with the call that is made now."""
        with self._changed:
            self._look()
            longest, self._longest = self._longest, LongestWait()
            return longest

    def waits_to_the_end(self, patience_seconds: float) -> LongestWait:
        """The same, once the call that is made now has ended, or for so long."""
        with self._changed:
            ended = self._calls + (self._began is not None)
            self._changed.wait_for(lambda: self._calls >= ended, patience_seconds)
        return self.waits()

    def stop(self) -> None:
        """Make no more calls."""
        self._over.set()

    def join(self) -> None:
        """Wait for the end of the last call."""
        self._thread.join()
