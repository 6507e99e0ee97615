"""Error answers of the middleware (limits, origins), in the format of the path.

A caller of the queue API gets that API's failure format, all others problem+json. The connection is closed afterwards,
because the rest of the request must not be parsed as the next one.
"""

from __future__ import annotations

from typing import Final

import msgspec
from litestar.types import Send

from headrace.protocols.http.errors import MEDIA_TYPE, Problem, retry_after_seconds
from headrace.protocols.http.routes import queue_api

_JSON: Final = "application/json"


def refusal(path: str, problem: Problem) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of an answer to a path."""
    if queue_api.is_path(path):
        kind, body = _JSON, msgspec.json.encode({"status": "failure", "message": problem.detail})
    else:
        kind, body = MEDIA_TYPE, msgspec.json.encode(problem)
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    if problem.retry:
        headers.append((b"retry-after", b"%d" % retry_after_seconds(problem)))
    return headers, body


async def send_refusal(send: Send, path: str, problem: Problem) -> None:
    """Answer in place of the application."""
    headers, body = refusal(path, problem)
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
