"""Rules for names and ids, and which names are equal.

Topic names keep their case but are found case-insensitively. Group and member names are case-sensitive.
"""

from __future__ import annotations

import unicodedata

from headrace.core.errors import InvalidInput
from headrace.core.limits import ID_CHARACTERS_MAX, NAME_CHARACTERS_MAX

# Control characters, lone surrogates, line and paragraph separators: they break terminals, logs and encodings.
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})


def check_topic_name(name: object) -> str:
    """The name in composed form (NFC); raises an error if it is invalid."""
    return _check("topic name", name, NAME_CHARACTERS_MAX)


def check_group_name(name: object) -> str:
    """The group's name in composed form."""
    return _check("group name", name, NAME_CHARACTERS_MAX)


def composed(text: str) -> str:
    """A text in composed form (NFC), as ids and writers are stored."""
    return unicodedata.normalize("NFC", text)


def check_id(field: str, value: object) -> str:
    """A member, writer or stage id."""
    return _check(field, value, ID_CHARACTERS_MAX)


def topic_key(name: str) -> str:
    """The key of a topic name: equal for names that differ only in case."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _check(field: str, value: object, characters_max: int) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, repr(value)[:100], "it must be text")
    composed = unicodedata.normalize("NFC", value)
    if not 1 <= len(composed) <= characters_max:
        shown = f"{composed[:40]!r}… of {len(composed)} characters" if composed else "empty"
        raise InvalidInput(field, shown, f"it must have 1 to {characters_max} characters")
    for position, character in enumerate(composed):
        if unicodedata.category(character) in _FORBIDDEN_CATEGORIES:
            rule = f"character {position} ({character!a}) is a control character or separator"
            raise InvalidInput(field, ascii(composed[:100]), rule)
    return composed
