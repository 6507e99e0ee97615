"""The audit log: denied requests and changes of tokens, topics and groups, one JSON object per line.

    {"time": …, "event": "refused", "operation": "seek", "principal": "till", "address": "10.0.0.7", …}

The last entries stay in memory too, so that administrators can look at them from afar: those of this server, since it
started. Of one caller's refusals some are written each minute, and then one line with the number of the others
(`left_out`), so that nobody fills the log or pushes out what others did. It uses the logger `headrace.audit`, so that
it can have its own file. A line never contains a payload or a secret, only names, which are shortened. Thread-safe.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from headrace.core.limits import AUDIT_KEPT, AUDIT_REFUSALS_PER_MINUTE

Event = Literal["refused", "done"]

_NAME_CHARACTERS_MAX: Final = 300
# Who has no token is told apart by address. So many are counted each, and all others as one.
UNKNOWN: Final = "unknown"
_COUNTED_MAX: Final = 1_000
_OTHERS: Final = (UNKNOWN, "others")
_PERIOD_SECONDS: Final = 60.0

logger = logging.getLogger("headrace.audit")
# Appending to a deque and copying it are atomic.
_recent: Final[deque[dict[str, Any]]] = deque(maxlen=AUDIT_KEPT)


class Refusals:
    """How many refusals each caller has had in this minute. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until = 0.0
        # By principal and address: the address is that of a caller without a token.
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, principal: str, address: str) -> bool:
        """Count one; whether it is to be written."""
        who = principal, address if principal == UNKNOWN else ""
        with self._lock:
            if principal == UNKNOWN and who not in self._counts and len(self._counts) >= _COUNTED_MAX:
                who = _OTHERS
            self._counts[who] += 1
            return self._counts[who] <= AUDIT_REFUSALS_PER_MINUTE

    def left_out(self) -> list[tuple[str, str, int]]:
        """Once a minute is over: by principal and address how many were not written."""
        with self._lock:
            now = self._clock()
            if now < self._until:
                return []
            counts, self._counts, self._until = self._counts, Counter(), now + _PERIOD_SECONDS
        most = AUDIT_REFUSALS_PER_MINUTE
        return [(*who, count - most) for who, count in counts.items() if count > most]


_refusals: Final = Refusals()


def record(event: Event, operation: str, principal: str, address: str, **more: Any) -> None:
    """Write a line; empty fields are omitted. Of very many refusals of a caller most are only counted."""
    _summarise()
    if event == "done" or _refusals.add(principal, address):
        _write(event, operation, principal, address, **more)


def _summarise() -> None:
    for principal, address, count in _refusals.left_out():
        _write("refused", "any", principal, address, left_out=count)


def _write(event: Event, operation: str, principal: str, address: str, **more: Any) -> None:
    named = {"operation": operation, "principal": principal, "address": address, **more}
    fields = {name: _short(value) for name, value in named.items() if value not in (None, "")}
    _recent.append({"time_us": time.time_ns() // 1000, "event": event, **fields})
    if logger.isEnabledFor(logging.INFO):
        entry = {"event": event, **fields}
        logger.info("%s", msgspec.json.encode(entry).decode(), extra={"audit": entry})


def recent(max_entries: int) -> list[dict[str, Any]]:
    """The last entries of this process, newest first."""
    _summarise()
    return list(_recent.copy())[::-1][:max_entries]


def write_to(file: str) -> None:
    """Write the lines to a file that only its owner may read; it is recreated after log rotation."""
    from logging.handlers import WatchedFileHandler

    class Private(WatchedFileHandler):
        def _open(self) -> Any:
            descriptor = os.open(self.baseFilename, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
            return os.fdopen(descriptor, "a", encoding="utf-8")

    handler = Private(file, encoding="utf-8")
    handler.setFormatter(_Line())
    for before in logger.handlers[:]:
        logger.removeHandler(before)
        before.close()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _Line(logging.Formatter):
    """The object with its time first."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return f'{{"time":"{moment}",{record.getMessage()[1:]}'


def _short(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # Text of a request may be invalid.
    return value.encode("utf-8", "backslashreplace").decode()[:_NAME_CHARACTERS_MAX]
