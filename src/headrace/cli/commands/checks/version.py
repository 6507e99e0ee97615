"""`headrace version`: the versions of Headrace, Python and pyarrow."""

from __future__ import annotations

import platform

from headrace.cli.options.shared import Json
from headrace.cli.terminal.output import print_json, print_line


def version(as_json: Json = False) -> None:
    """Show the versions of Headrace, Python and pyarrow."""
    # Imported here: it takes long, and the other commands do not need it.
    from importlib.metadata import version as version_of

    versions = {
        "headrace": version_of("headrace"),
        "python": platform.python_version(),
        "pyarrow": version_of("pyarrow"),
    }
    if as_json:
        print_json(versions)
    else:
        print_line(f"headrace {versions['headrace']} (Python {versions['python']}, pyarrow {versions['pyarrow']})")
