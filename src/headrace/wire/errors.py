"""Errors of the core tree as bytes, so that the client raises what the broker raised, fields and all."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.core.errors import HeadraceError, all_errors


class _Carried(msgspec.Struct):
    code: str
    fields: dict[str, Any]


def encode_error(error: HeadraceError) -> bytes:
    """An error as bytes."""
    return msgspec.json.encode(_Carried(error.code, error.details()))


def decode_error(carried: bytes) -> HeadraceError | None:
    """The error in these bytes, or none if they hold no error that is known here."""
    try:
        given = msgspec.json.decode(carried, type=_Carried)
        return _by_code()[given.code](**given.fields)
    except (msgspec.DecodeError, KeyError, TypeError):
        return None


def _by_code() -> dict[str, type[HeadraceError]]:
    return {kind.code: kind for kind in all_errors()}
