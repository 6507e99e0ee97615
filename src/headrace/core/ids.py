"""The ids of the PgQueue HTTP API: number in its topic, then the topic's id with 9 digits, then a flag.

The flag is 0 for consumers and 1 for producers. All three parts are checked when an id is used: the
kind, the topic, and that the number was assigned.
"""

from __future__ import annotations

from typing import Final, Literal

from headrace.core.errors import IdNotFound

Kind = Literal["consumer", "producer"]

NUMBER_DIGITS_MAX: Final = 18
_TOPIC_DIGITS: Final = 9
_ID_END: Final = 10 ** (NUMBER_DIGITS_MAX + _TOPIC_DIGITS + 1)
_FLAGS: Final[dict[Kind, int]] = {"consumer": 0, "producer": 1}


def make_id(kind: Kind, number: int, topic_id: int) -> int:
    """The id of the n-th consumer or producer of a topic, counted from 1."""
    return (number * 10**_TOPIC_DIGITS + topic_id) * 10 + _FLAGS[kind]


def topic_id_of(value: int) -> int:
    """The id of the topic that an id names."""
    return value // 10 % 10**_TOPIC_DIGITS


def number_of(value: int) -> int:
    """The number of a consumer or producer in its topic."""
    return value // (10 * 10**_TOPIC_DIGITS)


def check_id_of(kind: Kind, value: int, topic_id: int, given_out: int) -> int:
    """The number in an id of this kind and topic; `given` numbers were assigned so far."""
    rest, flag = divmod(value, 10)
    number, topic = divmod(rest, 10**_TOPIC_DIGITS)
    if flag != _FLAGS[kind]:
        raise IdNotFound(kind, _shown(value), f"it is not the id of a {kind}")
    if topic != topic_id:
        raise IdNotFound(kind, _shown(value), f"it is not the id of a {kind} of this topic")
    if not 1 <= number <= given_out:
        raise IdNotFound(kind, _shown(value), f"this topic has no {kind} with this id: register first")
    return number


def _shown(value: int) -> str:
    """An id as shown in an error; an invalid one may have any number of digits."""
    return str(value) if abs(value) < _ID_END else "longer than any id"
