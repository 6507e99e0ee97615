"""A JSON value as a tree that the browser folds, node by node, out of text alone. Pure.

A node is a list: its kind, and what it shows.

    ["s", "\\"text\\""]  ["n", "1.50"]  ["w", "true"]      text, a number as it was written, a word (true, false, null)
    ["{", 2, [key, node, key, node]]                      an object and how many fields it has
    ["[", 3, [node, node, node]]                          an array and how many items it has

console.js draws it into elements `[data-tree]` with `textContent`, a level at a time when it is opened, so a deep or
wide value costs nothing until somebody looks. What is left out above a limit is counted: the number in a node is larger
than the nodes in it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from headrace.console.messages.payload import JSON_BYTES_MAX, begins_as_json
from headrace.console.view.text import visible

NODES_MAX: Final = 20_000
CHARACTERS_MAX: Final = 256 << 10
# What is shown of one text or name.
TEXT_CHARACTERS_MAX: Final = 4_000
_WORDS: Final = {True: "true", False: "false", None: "null"}


class _Number(str):
    """A number as it was written: a browser would round large ones."""


def tree_of(value: bytes) -> str | None:
    """The tree of a value as JSON text, or None if it is no object or array."""
    if len(value) > JSON_BYTES_MAX or not begins_as_json(value):
        return None
    try:
        decoded = json.loads(value, parse_int=_Number, parse_float=_Number, parse_constant=_Number)
        return json.dumps(_Tree().node(decoded), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


class _Tree:
    """Builds the nodes of one value, up to the limits."""

    def __init__(self) -> None:
        self._nodes = NODES_MAX
        self._characters = CHARACTERS_MAX

    @property
    def _is_full(self) -> bool:
        return self._nodes <= 0 or self._characters <= 0

    def node(self, decoded: Any) -> list[Any]:
        self._nodes -= 1
        if isinstance(decoded, dict):
            fields: list[Any] = []
            for name, each in decoded.items():
                if self._is_full:
                    break
                fields += [self._text(json.dumps(name, ensure_ascii=False)), self.node(each)]
            return ["{", len(decoded), fields]
        if isinstance(decoded, list):
            items: list[Any] = []
            for each in decoded:
                if self._is_full:
                    break
                items.append(self.node(each))
            return ["[", len(decoded), items]
        if isinstance(decoded, _Number):
            return ["n", self._text(decoded)]
        if isinstance(decoded, str):
            return ["s", self._text(json.dumps(decoded, ensure_ascii=False))]
        return ["w", _WORDS[decoded]]

    def _text(self, whole: str) -> str:
        shown = visible(whole[:TEXT_CHARACTERS_MAX]) + ("…" if len(whole) > TEXT_CHARACTERS_MAX else "")
        self._characters -= len(shown)
        return shown
