"""Which server a command calls, and as whom: from flags, the environment, a profile or the default.

The URL comes from the first of: --url, --profile, HEADRACE_URL, HEADRACE_PROFILE, the profile in use
(`headrace profile use`), the server of this machine. Token and CA go with it: those of a profile are never sent to a
server that was named otherwise. Light to import, since every command does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.cli.exits import Exit, Failure
from headrace.cli.remote.profiles import Profile, Profiles

URL_DEFAULT: Final = "headrace://127.0.0.1:7071"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server, and the token to send it; `field` is what gave the URL, for errors."""

    url: str
    token: str | None
    ca: Path | None
    field: str

    @classmethod
    def of(cls, url: str | None, token: str | None, ca: Path | None) -> ServerAddress:
        """The server that options, environment and profiles name."""
        token_named, ca_named = os.environ.get("HEADRACE_TOKEN"), os.environ.get("HEADRACE_CA")
        token, ca_file = token or token_named or None, ca or (Path(ca_named) if ca_named else None)
        if url is not None:
            return cls(url, token, ca_file, "--url")
        profile = asked_profile()
        if profile is None and (named := os.environ.get("HEADRACE_URL")):
            return cls(named, token, ca_file, "HEADRACE_URL")
        profile = profile or os.environ.get("HEADRACE_PROFILE") or Profiles.load().active
        if profile is None:
            return cls(URL_DEFAULT, token, ca_file, "--url")
        found = Profiles.load().get(profile)
        return _with_profile(cls, found, profile, token, ca_file)


def _with_profile(
    kind: type[ServerAddress], found: Profile | None, name: str, token: str | None, ca: Path | None
) -> ServerAddress:
    if found is None:
        known = ", ".join(Profiles.load().profiles) or "none"
        raise Failure(Exit.USAGE, f"profile {name!r} does not exist: profiles are {known}; see headrace profile add")
    from_profile = Path(found.ca) if found.ca else None
    return kind(found.url, found.token or token, from_profile or ca, f"the URL of profile {name}")


def is_http(url: str) -> bool:
    """Whether a URL is an HTTP address, as commands had them up to version 0.1."""
    return url.partition("://")[0].lower() in ("http", "https")


def unreachable(url: str, reason: str) -> str:
    """What is said of a server that cannot be reached, or of a port of another kind."""
    from headrace.client.transport.listener import wrong_port

    told = wrong_port(url)
    if told is not None:
        return told
    return f"no server at {url} ({reason}): start one with `headrace serve`, or give another address with --url"


_asked: str | None = None


def ask_profile(name: str | None) -> None:
    """Use this profile for the rest of the process: `headrace --profile NAME …`."""
    global _asked
    _asked = name


def asked_profile() -> str | None:
    """The profile that `headrace --profile NAME` asked for."""
    return _asked
