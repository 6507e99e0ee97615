"""A message as the fields of a form, and back: what somebody publishes, or publishes again with changes. Pure.

Fields are text. Bytes that are no text are written as `base64:` and the bytes in base64, as in a downloaded file; so is
text that begins with that word. What the form cannot say of a message that is published again stays as it was: values
larger than a form bears, codecs that cannot be decoded here, attributes whose names have a `=`.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from headrace.client.message import Message
from headrace.console.messages.payload import as_text
from headrace.console.view import text
from headrace.core.messages import ATTRIBUTES

PREFIX: Final = "base64:"
# A larger value is published as it is, and not edited.
EDITED_BYTES_MAX: Final = 256 << 10

Attributes = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Draft:
    """The fields of a form. `kept_value` and `kept_attributes` are those that it cannot show."""

    key: str = ""
    value: str = ""
    is_null: bool = False
    attributes: str = ""
    partition: int | None = None
    kept_value: bytes | None = None
    codec: str | None = None
    kept_attributes: Attributes = field(default_factory=list)

    @classmethod
    def of(cls, message: Message) -> Draft:
        """The fields for a message that is published again; its partition is chosen anew."""
        value, shown, kept = message.value, "", list[tuple[str, bytes | None]]()
        is_kept = value is not None and (len(value) > EDITED_BYTES_MAX or message.codec is not None)
        lines = []
        for name, each in (message.attributes or {}).items():
            if each is None or "=" in name or name != name.strip() or not name or len(name.splitlines()) != 1:
                kept.append((name, each))
            else:
                lines.append(f"{name}={_typed_line(each)}")
        if value is not None and not is_kept:
            shown = typed(value)
        return cls(
            key="" if message.key is None else typed(message.key) or PREFIX,
            value=shown,
            is_null=value is None,
            attributes="\n".join(lines),
            kept_value=value if is_kept else None,
            codec=message.codec if is_kept else None,
            kept_attributes=kept,
        )

    def batch(self) -> pa.RecordBatch:
        """The message; raises ValueError with what is wrong in which field."""
        value = self.kept_value
        if value is None and not self.is_null:
            value = _bytes("Value", self.value)
        columns: dict[str, pa.Array] = {"value": pa.array([value], pa.binary())}
        if self.codec is not None:
            columns["codec"] = pa.array([self.codec], pa.string())
        if self.key:
            columns["key"] = pa.array([_bytes("Key", self.key)], pa.binary())
        attributes = [*_attributes(self.attributes), *self.kept_attributes]
        if attributes:
            columns["attributes"] = pa.array([attributes], ATTRIBUTES)
        if self.partition is not None:
            columns["partition"] = pa.array([self.partition], pa.int32())
        return pa.RecordBatch.from_pydict(columns)


def typed(value: bytes) -> str:
    """How bytes are written in a field: as text, or as base64."""
    shown = as_text(value)
    # A field of a browser has no carriage returns.
    if shown is None or shown.startswith(PREFIX) or "\r" in shown:
        return PREFIX + base64.b64encode(value).decode()
    return shown


def _typed_line(value: bytes) -> str:
    """The same for what is one line."""
    shown = typed(value)
    is_line = shown == shown.strip() and len(shown.splitlines()) <= 1
    return shown if is_line else PREFIX + base64.b64encode(value).decode()


def _bytes(name: str, shown: str) -> bytes:
    if not shown.startswith(PREFIX):
        return shown.encode()
    try:
        return base64.b64decode(shown.removeprefix(PREFIX), validate=True)
    except (ValueError, binascii.Error) as error:
        raise ValueError(f"{name}: what follows {PREFIX} is not base64 ({error})") from None


def _attributes(lines: str) -> Attributes:
    found: Attributes = []
    for line in filter(None, (line.strip() for line in lines.splitlines())):
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"Attributes: write {text.visible(line[:60])!r} as NAME=VALUE")
        found.append((name.strip(), _bytes(f"Attribute {text.visible(name.strip())}", value)))
    return found
