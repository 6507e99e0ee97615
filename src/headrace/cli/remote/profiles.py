"""Profiles: named servers with their tokens, in one file that only its owner can read.

The file is `headrace/profiles.json` under `$XDG_CONFIG_HOME`, or under `~/.config`, with mode 0600. It is replaced as a
whole, so a command that is killed leaves the old one. Not for several writers at once: the last one wins.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from headrace.cli.exits import Exit, Failure

_MODE: Final = 0o600


class Profile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A server: its URL, and the token and CA file to use for it."""

    url: str
    token: str | None = None
    ca: str | None = None


class Profiles(msgspec.Struct, forbid_unknown_fields=True):
    """All profiles, and which one is in use."""

    profiles: dict[str, Profile] = {}
    active: str | None = None

    @classmethod
    def load(cls) -> Profiles:
        """The profiles of this user; none if there is no file."""
        path = profiles_file()
        try:
            content = path.read_bytes()
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise Failure(Exit.USAGE, f"cannot read the profiles in {path}: {error.strerror}") from None
        if mode & 0o077 and b'"token"' in content:
            raise Failure(Exit.USAGE, f"others can read the tokens in {path}: run chmod 600 {path}")
        try:
            return msgspec.json.decode(content, type=cls)
        except msgspec.DecodeError as error:
            raise Failure(Exit.USAGE, f"the profiles in {path} cannot be read: {error}; repair or delete it") from None

    def get(self, name: str) -> Profile | None:
        """A profile by its name."""
        return self.profiles.get(name)

    def save(self) -> None:
        """Write the file, for its owner only."""
        path = profiles_file()
        content = msgspec.json.format(msgspec.json.encode(self), indent=2)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Made with mode 0600.
            handle, written = tempfile.mkstemp(dir=path.parent, prefix=".profiles-")
            with os.fdopen(handle, "wb") as file:
                file.write(content + b"\n")
            os.chmod(written, _MODE)
            os.replace(written, path)
        except OSError as error:
            raise Failure(Exit.USAGE, f"cannot write the profiles in {path}: {error.strerror}") from None


def profiles_file() -> Path:
    """Where the profiles are."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "headrace" / "profiles.json"
