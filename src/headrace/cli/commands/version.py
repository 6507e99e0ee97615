"""`headrace version`: the versions of Headrace, Python and pyarrow."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of
from typing import Annotated, Final

import typer

from headrace.cli.output import print_json, print_line

VERSION: Final = version_of("headrace")


def version(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the versions of Headrace, Python and pyarrow."""
    if as_json:
        versions = {"headrace": VERSION, "python": platform.python_version(), "pyarrow": version_of("pyarrow")}
        print_json(versions)
    else:
        print_line(f"headrace {VERSION} (Python {platform.python_version()}, pyarrow {version_of('pyarrow')})")
