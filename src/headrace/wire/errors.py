"""Errors of the core tree as bytes, so that the client raises the error of the broker with all its fields."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace.core.errors import HeadraceError, all_errors

# The server ends the text of an unexpected error with these words, and the client recognises it by them.
UNEXPECTED_MARK: Final = "the server's log has it"


class _Carried(msgspec.Struct):
    code: str
    fields: dict[str, Any]


_CARRIED: Final = msgspec.json.Decoder(_Carried)


def encode_error(error: HeadraceError) -> bytes:
    """Encode an error."""
    return msgspec.json.encode(_Carried(error.code, error.details()))


def decode_error(carried: bytes) -> HeadraceError | None:
    """Decode an error; None if the bytes hold no known error."""
    try:
        given = _CARRIED.decode(carried)
        return _by_code()[given.code](**given.fields)
    except (msgspec.DecodeError, KeyError, TypeError):
        return None


def _by_code() -> dict[str, type[HeadraceError]]:
    return {kind.code: kind for kind in all_errors()}
