"""The HTTP paths that commands request."""

from __future__ import annotations

from urllib.parse import quote


def path_of(*parts: str | int) -> str:
    """A path under /v1, each part quoted so that any name is allowed."""
    return "/v1/" + "/".join(_quoted(str(part)) for part in parts)


def _quoted(part: str) -> str:
    # A part made of dots only would be normalised away.
    return quote(part, safe="") if part.strip(".") else part.replace(".", "%2E")
