"""Arrays of very many structs that differ in some numbers only, such as all partitions of a topic.

    NumberRows(lambda number, leader: {"partition_index": number, "leader_id": leader}, number=numbers, leader=leaders)

One struct is encoded, and then copied for each row with its numbers in place: 10,000 partitions take less than a
millisecond. A column has the type of its fields, which are numbers of a fixed length, or elements of arrays of such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_NO_CODES: Final = np.zeros(0, np.int16)


class NumberRows:
    """The structs that a function makes of the numbers of each row; `columns` are their numbers, by parameter.

    A column of error codes is called `error_code`.
    """

    def __init__(self, element: Callable[..., Mapping[str, Any]], **columns: npt.NDArray[Any]) -> None:
        self._element = element
        self._columns = columns

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def first_error(self) -> int:
        """The first error code that is one; 0 if there is none."""
        codes = self._columns.get("error_code", _NO_CODES)
        errors = codes[codes != 0]
        return int(errors[0]) if len(errors) else 0

    def encoded(self, encode: Callable[[Mapping[str, Any]], bytes]) -> memoryview:
        """All structs, one after another; `encode` does it for one."""
        zeros = dict.fromkeys(self._columns, 0)
        zero = _bytes(encode(self._element(**zeros)))
        rows = np.tile(zero, (len(self), 1))
        for name, numbers in self._columns.items():
            size = numbers.itemsize
            # Every byte of a -1 differs from that of a 0: so it is found where a number stands.
            places = np.flatnonzero(_bytes(encode(self._element(**zeros | {name: -1}))) != zero)
            written = numbers.astype(numbers.dtype.newbyteorder(">")).view(np.uint8).reshape(-1, size)
            for place in places[::size]:
                rows[:, place : place + size] = written
        return rows.reshape(-1).data


def _bytes(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)
