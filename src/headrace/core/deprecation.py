"""Old names of the public API: they work for one more release, with a warning that names the new one."""

from __future__ import annotations

import warnings


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller of the calling function that the name it used is deprecated."""
    line = f"{old} is now {new}; the old form works until the next release"
    warnings.warn(line, DeprecationWarning, stacklevel=3)
