"""The audit log: denied requests and changes of tokens, topics and groups, one JSON object per line.

    {"time": …, "event": "refused", "operation": "seek", "principal": "till", "address": "10.0.0.7", …}

The last entries stay in memory too, so that administrators can look at them from afar: those of this server, since it
started. It uses the logger `headrace.audit`, so that it can have its own file. A line never contains a payload or a
secret, only names, which are shortened. Thread-safe.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from headrace.core.limits import AUDIT_KEPT

Event = Literal["refused", "done"]

_NAME_CHARACTERS_MAX: Final = 300

logger = logging.getLogger("headrace.audit")
# Appending to a deque and copying it are atomic.
_recent: Final[deque[dict[str, Any]]] = deque(maxlen=AUDIT_KEPT)


def record(event: Event, operation: str, principal: str, address: str, **more: Any) -> None:
    """Write a line; empty fields are omitted."""
    named = {"operation": operation, "principal": principal, "address": address, **more}
    fields = {name: _short(value) for name, value in named.items() if value not in (None, "")}
    _recent.append({"time_us": time.time_ns() // 1000, "event": event, **fields})
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", msgspec.json.encode({"event": event, **fields}).decode(), extra={"audit": fields})


def recent(max_entries: int) -> list[dict[str, Any]]:
    """The last entries of this process, newest first."""
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
