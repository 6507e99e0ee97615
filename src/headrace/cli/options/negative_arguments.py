"""A command whose last argument may begin with a minus, as `-100` or `-10m` does; any other such word is an option."""

from __future__ import annotations

import re
from typing import Any, Final

from headrace.cli.terminal.help import PlainCommand

_NEGATIVE: Final = re.compile(r"-[0-9]+[a-z]?", re.ASCII)


class NegativeArguments(PlainCommand):
    """Moves arguments with a minus behind the options, so that an unknown option stays an error."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line."""
        negative = [word for word in args if _NEGATIVE.fullmatch(word)]
        if negative and "--" not in args:
            args = [*(word for word in args if word not in negative), "--", *negative]
        return super().parse_args(ctx, args)
