"""Rules for names and ids, and which names are equal.

Topic names keep their case but are found case-insensitively. Group and member names are case-sensitive.

Anyone may send a name, of any length and of any characters, so what is done with it takes time in proportion to its
length. To compose a text takes the square of the length of a run of combining marks, with the interpreter's lock held:
what has too many of them in a row is no name, and is left as it is.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Final

from headrace.core.errors import InvalidInput
from headrace.core.limits import COMBINING_MARKS_MAX, ID_CHARACTERS_MAX, NAME_CHARACTERS_MAX

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Control characters, lone surrogates, line and paragraph separators: they break terminals, logs and encodings.
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
# No character is composed of more (Unicode Standard Annex 15).
_PARTS_MAX: Final = 4
# All combining marks are between these.
_MARKS: Final = range(0x300, 0x1F000)
# These are none by themselves.
_MARKS_OF_MARKS: Final = "\u0f73\u0f75\u0f81"


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
    """Whether a text has so many combining marks in a row that it is no name."""
    if len(text) <= COMBINING_MARKS_MAX or text.isascii():
        return False
    # Here and below, since a command that only checks a name should not wait for it.
    import numpy as np

    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    others = np.flatnonzero(~_marks()[np.minimum(codes, _MARKS.stop)])
    return bool(np.diff(others, prepend=-1, append=len(text)).max() > COMBINING_MARKS_MAX + 1)


@cache
def _marks() -> npt.NDArray[np.bool_]:
    """Whether a character is a combining mark, or composed of such alone; the last stands for all others."""
    import numpy as np

    marks = np.zeros(_MARKS.stop + 1, np.bool_)
    marks[_MARKS.start : _MARKS.stop] = np.fromiter(map(unicodedata.combining, map(chr, _MARKS)), np.uint8)
    marks[list(map(ord, _MARKS_OF_MARKS))] = True
    return marks


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
