"""`headrace doctor`: check a store that no server has open, and mend what can be mended without loss."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

EXAMPLES: Final = """
Exit code 0: whole. 1: damage was found, or is left after --repair. 2: the store cannot be checked.

Examples:

  headrace doctor /var/lib/headrace

  headrace doctor /var/lib/headrace --repair --json
"""


def doctor(
    directory: Annotated[Path, typer.Argument(help="The directory of the store.", metavar="DIR")],
    repair: Annotated[bool, typer.Option(help="Mend what can be mended.")] = False,
) -> None:
    """Check every frame, index, snapshot and catalog row of a store, offline."""
