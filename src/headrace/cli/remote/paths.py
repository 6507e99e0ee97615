"""The paths that commands ask a server for."""

from __future__ import annotations

from urllib.parse import quote


def path_of(*parts: str | int) -> str:
    """A path under /v1 with each part quoted, so that any name can be in it."""
    return "/v1/" + "/".join(_quoted(str(part)) for part in parts)


def _quoted(part: str) -> str:
    # A part of nothing but dots would be taken for a step up, or for none.
    return quote(part, safe="") if part.strip(".") else part.replace(".", "%2E")
