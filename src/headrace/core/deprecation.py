"""Old names of the public API: they work for one more release, with a warning that says the new one."""

from __future__ import annotations

import warnings


def warn_renamed(old: str, new: str) -> None:
    """Tell whoever called the caller of this that what they used has another name now."""
    line = f"{old} is now {new}; the old form works until the next release"
    warnings.warn(line, DeprecationWarning, stacklevel=3)
