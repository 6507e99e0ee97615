"""Rules for names and ids, and which names are equal.

Topic names keep their case but are found case-insensitively. Group and member names are case-sensitive.

Anyone may send a name, of any length and of any characters, so what is done with it takes time in proportion to its
length. To compose a text takes the square of the length of a run of combining marks, with the interpreter's lock held:
what has too many of them in a row is no name, and is left as it is.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from headrace.core.errors import InvalidInput
from headrace.core.limits import COMBINING_MARKS_MAX, ID_CHARACTERS_MAX, NAME_CHARACTERS_MAX

# Control characters, lone surrogates, line and paragraph separators: they break terminals, logs and encodings.
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
# No character is composed of more (Unicode Standard Annex 15).
_PARTS_MAX: Final = 4
# All combining marks are between these.
_MARKS: Final = range(0x300, 0x1F000)


def check_topic_name(name: object) -> str:
    """The name in composed form (NFC); raises an error if it is invalid."""
    return _check("topic name", name, NAME_CHARACTERS_MAX)


def check_group_name(name: object) -> str:
    """The group's name in composed form."""
    return _check("group name", name, NAME_CHARACTERS_MAX)


def composed(text: str) -> str:
    """A text in composed form (NFC), as ids and writers are stored; one that can be neither is left as it is."""
    if text.isascii() or len(text) > _PARTS_MAX * ID_CHARACTERS_MAX or _has_many_marks(text):
        return text
    return unicodedata.normalize("NFC", text)


def _has_many_marks(text: str) -> bool:
    return len(text) > COMBINING_MARKS_MAX and _many_marks().search(text) is not None


@cache
def _many_marks() -> re.Pattern[str]:
    """Too many combining marks in a row, or characters that are composed of such alone."""
    marks = [chr(number) for number in _MARKS if all(map(unicodedata.combining, _parts(chr(number))))]
    return re.compile(f"[{''.join(marks)}]{{{COMBINING_MARKS_MAX + 1}}}")


def _parts(character: str) -> str:
    return unicodedata.normalize("NFD", character)


def check_id(field: str, value: object) -> str:
    """A member, writer or stage id."""
    return _check(field, value, ID_CHARACTERS_MAX)


def topic_key(name: str) -> str:
    """The key of a topic name: equal for names that differ only in case."""
    return composed(composed(name).casefold())


def _check(field: str, value: object, characters_max: int) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, repr(value)[:100], "it must be text")
    name = composed(value)
    # What is composed may have more of them, and would not be composed again.
    if _has_many_marks(value) or _has_many_marks(name):
        rule = f"it may have at most {COMBINING_MARKS_MAX} combining marks in a row"
        raise InvalidInput(field, ascii(value[:100]), rule)
    if not 1 <= len(name) <= characters_max:
        shown = f"{name[:40]!r}… of {len(name)} characters" if name else "empty"
        raise InvalidInput(field, shown, f"it must have 1 to {characters_max} characters")
    for position, character in enumerate(name):
        if unicodedata.category(character) in _FORBIDDEN_CATEGORIES:
            rule = f"character {position} ({character!a}) is a control character or separator"
            raise InvalidInput(field, ascii(name[:100]), rule)
    return name
