"""A request in text: a word, and what it says in `key=value`.

    CONSUME topic=orders partition=0 offset=12 member=m-1234

Clients put it into an envelope, which begins with the length of a topic's name and that name; both are ignored. A bare
text is accepted too, if its first word is a command. `message=` takes the rest, blanks inside and all.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from headrace.protocols.cursus.errors import CursusRefusal, Quoted

# What comes before a message: offsets of ten thousand partitions take less.
HEAD_BYTES_MAX: Final = 256 << 10
# A word is no longer; what is longer is no command.
_WORD_BYTES_MAX: Final = 64
_NAME_SIZE: Final = struct.Struct(">H")
_BLANKS: Final = b" \t\n\r\x0b\x0c"
_MESSAGE: Final = b"message="
# Some clients write their credentials behind the message of this command, where they would become a part of it.
_TRAILED: Final = "TXN_PUBLISH"
_CREDENTIALS: Final = re.compile(rb"(?: principal=\S+)? auth_token=(\S+)\Z")


@dataclass(frozen=True, slots=True)
class Command:
    """A command, its arguments, the words among them that are none, its message, and the bytes it had."""

    name: str
    arguments: Mapping[str, str]
    words: tuple[str, ...] = ()
    message: bytes | None = None
    size: int = 0

    def get(self, name: str) -> str:
        """An argument, or nothing."""
        return self.arguments.get(name, "")

    def required(self, name: str, code: str = "") -> str:
        """An argument that must be there."""
        value = self.get(name)
        if not value:
            raise CursusRefusal(code or f"missing_{name}", command=self.name)
        return value

    def number(self, name: str, code: str = "", default: int | None = None, least: int = 0) -> int:
        """A whole number, `default` if it is not there and there is one."""
        text = self.get(name)
        if not text:
            if default is None:
                raise CursusRefusal(f"missing_{name}", command=self.name)
            return default
        return whole(text, code or f"invalid_{name}", least)

    def flag(self, name: str) -> bool:
        """Whether something is said to be true."""
        return self.get(name).lower() in ("true", "1", "t")


def whole(text: str, code: str, least: int = 0) -> int:
    """A whole number of at most 63 bits."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) < 20 and least <= (number := int(text)) < 1 << 63:
        return number
    raise CursusRefusal(code, value=text[:100])


def read_command(frame: bytes | bytearray, names: Container[str]) -> Command | None:
    """The command of a frame; None for one of blanks alone."""
    text = _text(frame, names)
    if not text:
        return None
    name = _first_word(text)
    if name not in names:
        raise CursusRefusal("malformed_input", reason="missing_topic_or_payload")
    return _parsed(name, text[len(name) :], len(frame))


def _text(frame: bytes | bytearray, names: Container[str]) -> bytes:
    bare = bytes(frame).strip(_BLANKS)
    if not bare or _first_word(bare) in names:
        return bare
    if len(frame) < _NAME_SIZE.size:
        raise CursusRefusal("decode_failed", reason=Quoted("data too short"))
    start = _NAME_SIZE.size + _NAME_SIZE.unpack_from(frame)[0]
    if start > len(frame):
        raise CursusRefusal("decode_failed", reason=Quoted("the name is longer than the request"))
    return bytes(frame[start:]).strip(_BLANKS)


def _first_word(text: bytes) -> str:
    word = text[: _WORD_BYTES_MAX + 1].split(maxsplit=1)[0] if text else b""
    return word.decode("ascii", "replace").upper()


def _parsed(name: str, rest: bytes, size: int) -> Command:
    head, message = _cut(rest)
    if len(head) > HEAD_BYTES_MAX:
        rule = f"a command without its message may have {HEAD_BYTES_MAX} bytes, not {len(head)}"
        raise CursusRefusal("malformed_input", reason=Quoted(rule))
    try:
        fields = head.decode().split()
    except UnicodeDecodeError:
        raise CursusRefusal("malformed_input", reason=Quoted("a command must be UTF-8")) from None
    arguments: dict[str, str] = {}
    words: list[str] = []
    for field in fields:
        key, separator, value = field.partition("=")
        if separator:
            arguments[key] = value
        else:
            words.append(field)
    if name == _TRAILED and message is not None and (trailing := _CREDENTIALS.search(message)):
        arguments["auth_token"] = trailing[1].decode(errors="replace")
        message = message[: trailing.start()]
    return Command(name, arguments, tuple(words), message, size)


def _cut(rest: bytes) -> tuple[bytes, bytes | None]:
    """What is before the message, and the message."""
    place = rest.find(_MESSAGE)
    while place > 0 and rest[place - 1] not in _BLANKS:
        place = rest.find(_MESSAGE, place + 1)
    if place < 0:
        return rest, None
    return rest[:place], rest[place + len(_MESSAGE) :].strip(_BLANKS)
