"""Finds errors of Headrace in the text of Spark's exceptions.

Spark passes the error of a Python worker as text, with the tracebacks of both languages. Errors of Headrace appear in
it with their full class name.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.core.errors import HeadraceError, all_errors

_NAMED: Final = re.compile(r"headrace\.core\.errors\.(\w+): (.+)")
_TOLD: Final = re.compile(r"(Caused by: |[\w.]+(Error|Exception): |\[[A-Z_.0-9]+\])")

_OF_JAVA: Final = "Py4JJavaError: "


class PipelineFailed(Exception):
    """A pipeline failed; `kind` is the class of the Headrace error that caused it, if there is one."""

    def __init__(self, reason: str, kind: type[HeadraceError] | None = None) -> None:
        super().__init__(reason)
        self.kind = kind


def failure_of(text: str) -> PipelineFailed:
    """The failure described by a text of Spark."""
    return carried(text) or PipelineFailed(_reason_of(text))


def carried(text: str) -> PipelineFailed | None:
    """The last error of Headrace that is named in a text, or none."""
    kinds = {kind.__name__: kind for kind in all_errors()}
    named = [found for found in _NAMED.finditer(text) if found.group(1) in kinds]
    if not named:
        return None
    return PipelineFailed(named[-1].group(2).strip(), kinds[named[-1].group(1)])


def _reason_of(text: str) -> str:
    """The line that says most about a failure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [_told(lines[place:]) for place, line in enumerate(lines) if _TOLD.match(line)]
    return (told[-1] if told else lines[-1] if lines else "no reason given")[:500]


def _told(lines: list[str]) -> str:
    """The first of some lines; what Java said about it where it only says that Java was called."""
    if _OF_JAVA in lines[0]:
        return next((line.removeprefix(": ") for line in lines[1:] if line.startswith(": ")), lines[0])
    return lines[0]
