"""Logs on stderr: text on a terminal, otherwise one JSON object per line. Token secrets are removed."""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from headrace.edge.monitoring.process_report import RecentLogs

_TOKEN: Final = re.compile(r"\bhr_([0-9a-f]{12})_[A-Za-z0-9_-]{16,}")
_ACCESS: Final = ("client", "method", "path", "http_version", "status")


def set_up(level: str, format: Literal["auto", "text", "json"]) -> None:
    """Send all logs of this process to stderr, and keep the last lines for a bug report."""
    is_text = format == "text" or (format == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    recent = RecentLogs()
    recent.setFormatter(TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler, recent]
    root.setLevel(level.upper())
    # Uvicorn's lifecycle messages repeat ours.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(True)


class TextFormatter(logging.Formatter):
    """`2026-07-01 12:00:00.123 WARNING headrace.storage.disk.log: …`, in local time."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).isoformat(" ", "milliseconds")
        return without_tokens(f"{moment} {record.levelname:7} {record.name}: {_message(record)}{_trace(self, record)}")


class JsonFormatter(logging.Formatter):
    """One object: time (UTC), level, logger, message; those of a request or an audit; a trace."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        audited: dict[str, Any] | None = getattr(record, "audit", None)
        if audited is not None:
            # Its fields are ours, and its message would be the same as JSON within JSON.
            entry = {**audited, **entry, "message": f"{audited['event']}: {audited['operation']}"}
        if record.name == "uvicorn.access" and isinstance(record.args, tuple):
            entry |= dict(zip(_ACCESS, record.args, strict=True))
        if trace := _trace(self, record):
            entry["trace"] = trace.strip()
        return without_tokens(msgspec.json.encode(entry).decode())


def without_tokens(text: str) -> str:
    """Replace the secret of every token in the text; the id stays, to identify the token."""
    return _TOKEN.sub(r"hr_\1_***", text)


def _message(record: logging.LogRecord) -> str:
    """The message on one line: a name with a line break must not forge a log line."""
    return record.getMessage().replace("\r", "\\r").replace("\n", "\\n")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return "\n" + formatter.formatException(record.exc_info) if record.exc_info else ""
