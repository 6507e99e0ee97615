"""Names of writers of commit keys: most make one commit after another, some make a single one.

A write without a name, such as a DataFrame that is appended to a topic, needs a key so that its commit can be asked for
again if the answer was lost; nobody asks once it is over. Writers for one commit are remembered apart and not for long.
So any number of them makes no other writer forgotten: if that were a sink, a repeated batch would be published again.
"""

from __future__ import annotations

from typing import Final

# Writers' names have no control characters, so this is none; the second key of a commit with a fingerprint has it.
FINGERPRINT_MARK: Final = "\x1f"

_ONCE: Final = "-once-"
_TOKEN_CHARACTERS: Final = 32
# The same rule as a pattern of SQL.
ONE_TIME_PATTERN: Final = f"%{_ONCE}{'_' * _TOKEN_CHARACTERS}"


def one_time_writer(program: str, token: str) -> str:
    """The writer of a single commit; the token, of 32 characters, must be random."""
    return f"{program}{_ONCE}{token}"


def is_one_time(writer: str) -> bool:
    """Whether a writer makes a single commit: its name ends with `-once-` and 32 characters."""
    return writer.removesuffix(FINGERPRINT_MARK)[:-_TOKEN_CHARACTERS].endswith(_ONCE)
