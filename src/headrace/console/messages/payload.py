"""Values as people read them: JSON, text or hex, always as text, never more than a page can bear. Pure."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

from headrace.console.view.text import visible

NULL: Final = "null"
PREVIEW_CHARACTERS: Final = 240
# What one value may bring into a page.
SHOWN_BYTES: Final = 256 << 10
JSON_BYTES_MAX: Final = 1 << 20
_HEX_ROW: Final = 16
_HEX_BYTES: Final = 64 << 10


def preview(value: bytes | None, characters: int = PREVIEW_CHARACTERS) -> str:
    """One line of a value for a list; bytes that are no text as hex, and null by its name."""
    if value is None:
        return NULL
    # A character has at most four bytes.
    head = value[: 4 * characters]
    text = as_text(head, is_cut=len(value) > len(head))
    if text is None:
        return "0x" + value[: characters // 4].hex() + ("…" if len(value) > characters // 4 else "")
    line = visible(" ".join(text[: characters * 2].split()))
    return line if len(line) <= characters and len(value) <= len(head) else line[:characters] + "…"


def as_text(value: bytes, is_cut: bool = False) -> str | None:
    """The value as UTF-8 text, or None; a value that was cut may end inside a character."""
    for dropped in range(4 if is_cut else 1):
        try:
            text = value[: len(value) - dropped].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return None if "\x00" in text else text
    return None


def begins_as_json(value: bytes) -> bool:
    """Whether a value may be an object or array."""
    return value[:64].lstrip()[:1] in (b"{", b"[")


def as_json(value: bytes) -> Any | None:
    """The object or array in a value, or None if it is none."""
    if len(value) > JSON_BYTES_MAX or not begins_as_json(value):
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def forms(value: bytes | None) -> dict[str, str]:
    """The ways to show a value, the best first: JSON, Text, Hex; null has one of its own."""
    if value is None:
        return {"Null": NULL}
    shown: dict[str, str] = {}
    decoded = as_json(value)
    if decoded is not None:
        with suppress(ValueError, RecursionError):
            shown["JSON"] = _limited(visible(_indented(decoded)))
    text = as_text(value[:SHOWN_BYTES], is_cut=len(value) > SHOWN_BYTES)
    if text is not None:
        shown["Text"] = _limited(visible(text), len(value) > SHOWN_BYTES)
    shown["Hex"] = as_hex(value)
    return shown


def _indented(decoded: Any) -> str:
    """JSON on many lines, no more of it than is shown: deep nesting makes indentation larger than any value."""
    pieces: list[str] = []
    characters = 0
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(decoded):
        pieces.append(piece)
        characters += len(piece)
        if characters > SHOWN_BYTES:
            break
    return "".join(pieces)


def _limited(text: str, is_cut: bool = False) -> str:
    if len(text) <= SHOWN_BYTES and not is_cut:
        return text
    return text[:SHOWN_BYTES] + "\n… cut: download the message to see all of it"


def as_hex(value: bytes) -> str:
    """Offset, bytes and printable characters, 16 bytes a line."""
    lines = []
    for start in range(0, min(len(value), _HEX_BYTES), _HEX_ROW):
        row = value[start : start + _HEX_ROW]
        printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{_HEX_ROW * 3}} {printable}")
    if len(value) > _HEX_BYTES:
        lines.append(f"… {len(value) - _HEX_BYTES:,} more bytes")
    return "\n".join(lines)
