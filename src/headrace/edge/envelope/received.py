"""Bytes that have arrived on connections and are not served yet. What a caller announces counts nothing.

    budget = ReceivedBytes(512 << 20, limits.bodies)
    receiver = budget.receiver(name, resume)
    receiver.add(len(data))       False: stop reading; call `wait` once more is needed, and read again at `resume`
    receiver.release(size)        what they asked for is done

A caller holds at most its share, over all protocols, and all together at most `bytes_max`. Those who wait are served in
turn, but whoever is at its share waits alone. Half of a request frees nothing, so if all room is taken by halves, one
connection is given a pass: it may read the rest of its request, and has the pass until that is done. There is one for
each caller, and only one at all while the whole budget is used up; so each pass exceeds the bounds by one request.

Runs on the event loop; shares are thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.edge.envelope.allocator import Peak
from headrace.edge.limits import Slots

# What a connection that reads again may bring before it is stopped once more: what the event loop reads at once.
READ_BYTES: Final = 256 << 10


class ReceivedBytes:
    """What all connections of a protocol hold."""

    def __init__(self, bytes_max: int, shares: Slots) -> None:
        self._bytes_max = bytes_max
        self._shares = shares
        self.taken = 0
        self.peak = Peak()
        # Receivers that wait, by owner; an owner that was served goes to the end. Nobody has an empty line.
        self._lines: dict[str, deque[Receiver]] = {}
        self._passes: dict[str, Receiver] = {}

    def receiver(self, owner: str, resume: Callable[[], None]) -> Receiver:
        """The bytes of one connection; `resume` is called when a wait is over."""
        return Receiver(self, owner, resume)

    def is_wanted(self, owner: str) -> bool:
        """Whether somebody waits for room that this owner holds."""
        return owner in self._lines or (bool(self._lines) and self.taken >= self._bytes_max)

    def serve(self) -> None:
        """Let those read again for whom there is room; other protocols may have made some in a caller's share."""
        for owner in list(self._lines):
            room = self.room(owner)
            while (line := self._lines.get(owner)) and (room > 0 or self._may_pass(owner)):
                receiver = line.popleft()
                del self._lines[owner]
                if line:
                    self._lines[owner] = line
                if room <= 0:
                    self._passes[owner] = receiver
                room -= READ_BYTES
                receiver.resume()

    def room(self, owner: str) -> int:
        """How much more a caller may send."""
        return min(self._bytes_max - self.taken, self._shares.room(owner))

    def _may_pass(self, owner: str) -> bool:
        return owner not in self._passes and (self.taken < self._bytes_max or not self._passes)

    def _count(self, owner: str, size: int) -> None:
        self.taken += size
        self.peak.see(self.taken)
        self._shares.add(owner, size)

    def _wait(self, receiver: Receiver) -> None:
        self._shares.count_refusal(receiver.owner)
        self._lines.setdefault(receiver.owner, deque()).append(receiver)
        self.serve()

    def _leave(self, receiver: Receiver) -> None:
        line = self._lines.get(receiver.owner, deque())
        if receiver in line:
            line.remove(receiver)
            if not line:
                del self._lines[receiver.owner]

    def _end_pass(self, receiver: Receiver) -> None:
        if self._passes.get(receiver.owner) is receiver:
            del self._passes[receiver.owner]

    def _has_pass(self, receiver: Receiver) -> bool:
        return self._passes.get(receiver.owner) is receiver


class Receiver:
    """What one connection holds."""

    def __init__(self, budget: ReceivedBytes, owner: str, resume: Callable[[], None]) -> None:
        self.resume = resume
        self.owner = owner
        self.held = 0
        self._budget = budget

    def add(self, size: int) -> bool:
        """Count bytes that arrived; whether more may be read."""
        self.held += size
        self._budget._count(self.owner, size)
        return self.has_room()

    def has_room(self) -> bool:
        """Whether more may be read."""
        return self._budget.room(self.owner) > 0 or self._budget._has_pass(self)

    def wait(self) -> None:
        """Wait for a turn: `resume` is called, perhaps at once."""
        self._budget._wait(self)

    def release(self, size: int) -> None:
        """Bytes take no memory any more."""
        self.held -= size
        self._budget._end_pass(self)
        self._budget._count(self.owner, -size)
        self._budget.serve()

    def move(self, budget: ReceivedBytes, owner: str) -> None:
        """Count what is held for another owner: the caller is known now."""
        if (budget, owner) == (self._budget, self.owner):
            return
        held = self.held
        self.close()
        self._budget, self.owner = budget, owner
        self.add(held)

    def is_wanted(self) -> bool:
        """Whether others wait for what this connection holds."""
        return self.held > 0 and self._budget.is_wanted(self.owner)

    def close(self) -> None:
        """Hold and want nothing."""
        self._budget._leave(self)
        self.release(self.held)
