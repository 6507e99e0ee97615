"""Whether this user can write a store, checked before a server opens it: ready means that messages can be written.

The usual mistake is a store that root made, by a first `sudo headrace serve` or a restored backup, for a service that
runs as another user. SQLite would open its catalog read-only, and the first write would fail long after the start.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from headrace.cli.exits import Exit, Failure
from headrace.core.errors import HeadraceError
from headrace.storage.open import disk_directory, open_store, shown

_ENGINES = ("file", "postgresql", "postgres", "memory")


def check_store(url: str) -> None:
    """Raise for a URL that names no store, or a disk store that this user cannot write; creates nothing."""
    scheme = url.partition(":")[0]
    try:
        if scheme not in _ENGINES:
            open_store(url).close()
        if scheme == "file":
            check_writable(disk_directory(url))
    except HeadraceError as error:
        raise Failure(Exit.USAGE, f"cannot serve {shown(url)}: {error}") from None


def check_writable(directory: Path) -> None:
    """Raise if this user cannot write something of a store, and say how to repair it."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    # Where a directory should be and is none, opening the store says so.
    blocked = next(_blocked(existing, existing == directory), None) if existing.is_dir() else None
    if blocked is None:
        return
    user, owner = _name(os.geteuid()), _name(blocked.stat().st_uid)
    if existing != directory:
        cure = f"create it for this user: install -d -m 700 -o {user} {directory}"
    else:
        cure = f"give it to this user: chown -R {user} {directory}"
    line = f"cannot write {blocked}, which belongs to {owner}, as {user}: run the server as {owner}, or {cure}"
    raise Failure(Exit.USAGE, line)


def _blocked(root: Path, is_store: bool) -> Iterator[Path]:
    """What cannot be written, of a directory and all that is in a store."""
    if not os.access(root, os.W_OK | os.X_OK):
        yield root
    elif is_store:
        for folder, folders, files in os.walk(root):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                if not os.access(path, os.W_OK, follow_symlinks=True):
                    yield Path(path)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
