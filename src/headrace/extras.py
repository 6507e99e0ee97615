"""The parts of Headrace that are installed by name, and what to say where one is missing.

`pip install headrace` brings the client and the command line. A broker, in this process or as a server, needs more:

    headrace[broker]    the broker as a library, and the pytest fixtures
    headrace[server]    `headrace serve`, and the commands that work on a store itself
"""

from __future__ import annotations

from typing import Final

# By the package that is imported; others say it themselves, where they are used.
_OF_BROKER: Final = frozenset({"crc32c", "sqlalchemy"})
_OF_SERVER: Final = frozenset({"httptools", "litestar", "uvicorn", "uvloop"})


def cure(error: ModuleNotFoundError, *, is_command: bool) -> str | None:
    """What to install so that this import succeeds; none if the module belongs to no extra."""
    package = (error.name or "").partition(".")[0]
    if package not in _OF_BROKER | _OF_SERVER:
        return None
    extra, what = ("server", "the server") if is_command or package in _OF_SERVER else ("broker", "the broker")
    return f"{what} is not installed ({package} is missing): pip install 'headrace[{extra}]'"
