"""Expressions that choose messages: `value.amount > 100 and attributes.kind == "sale"`.

The text is parsed by Python's own parser and translated, node by node, into the few conditions below; whatever else it
contains is refused by name. Nothing is ever evaluated as Python.

    value.customer.name     a field of a JSON object, also value["customer name"]; value alone is the whole text
    key, producer_id        text; attributes.NAME an attribute as text
    partition, offset, seqno    numbers
    == != < <= > >=         with a number, text, True, False or None on one side
    "text" in value         part of a text; value.country in ("DE", "FR") one of several
    and, or, not, ( )

A comparison with a field that is missing, or of another type, is false.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from headrace.core.errors import InvalidInput

Operator = Literal["==", "!=", "<", "<=", ">", ">="]
Literals = str | float | bool | None

EXPRESSION_CHARACTERS_MAX: Final = 1_000
TEXT_FIELDS: Final = ("key", "producer_id", "message_group_id")
NUMBER_FIELDS: Final = ("partition", "offset", "seqno")

_OPERATORS: Final[dict[type[ast.cmpop], Operator]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_FLIPPED: Final[dict[Operator, Operator]] = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class FieldPath:
    """A part of a message: a column, and for value and attributes the names that lead to it."""

    column: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.column, *self.path))


@dataclass(frozen=True)
class Comparison:
    """A field compared with a literal."""

    field: FieldPath
    operator: Operator
    literal: Literals


@dataclass(frozen=True)
class Contains:
    """A text within a field."""

    field: FieldPath
    text: str


@dataclass(frozen=True)
class Anywhere:
    """A text within the key, any attribute or the value, whatever its case."""

    text: str


@dataclass(frozen=True)
class Not:
    """The opposite."""

    condition: Condition


@dataclass(frozen=True)
class Every:
    """All of some conditions."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class AnyOf:
    """At least one of some conditions."""

    conditions: tuple[Condition, ...]


Condition = Comparison | Contains | Anywhere | Not | Every | AnyOf


def parse(text: str) -> Condition:
    """The condition in a text, or an error that says what is wrong with it."""
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise _wrong(text, f"at most {EXPRESSION_CHARACTERS_MAX} characters")
    try:
        # Python's parser takes half of a surrogate pair in an escape; no message contains one.
        tree = ast.parse(text.strip(), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value.encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _wrong(text, f"it is no expression ({reason}); write for example value.amount > 100") from None
    try:
        return _Translation(text).condition(tree.body)
    except RecursionError:
        raise _wrong(text, "it is nested too deeply") from None


def fields(condition: Condition) -> Iterator[Comparison | Contains]:
    """All comparisons within a condition."""
    if isinstance(condition, Comparison | Contains):
        yield condition
    elif isinstance(condition, Not):
        yield from fields(condition.condition)
    elif isinstance(condition, Every | AnyOf):
        for each in condition.conditions:
            yield from fields(each)


def _wrong(text: str, rule: str) -> InvalidInput:
    return InvalidInput("expression", repr(text[:100]), rule)


class _Translation:
    """From Python's syntax tree to conditions."""

    def __init__(self, text: str) -> None:
        self._text = text

    def condition(self, node: ast.expr) -> Condition:
        if isinstance(node, ast.BoolOp):
            parts = tuple(self.condition(each) for each in node.values)
            return Every(parts) if isinstance(node.op, ast.And) else AnyOf(parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return Not(self.condition(node.operand))
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if self._is_field(node):
            return Comparison(self._checked(self._field(node), True), "==", True)
        raise self._refusal(node, "is no condition: compare a field with something, such as value.amount > 100")

    def _compare(self, node: ast.Compare) -> Condition:
        sides = [node.left, *node.comparators]
        pairs = [
            self._pair(left, operator, right) for left, operator, right in zip(sides, node.ops, sides[1:], strict=False)
        ]
        return pairs[0] if len(pairs) == 1 else Every(tuple(pairs))

    def _pair(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Condition:
        if isinstance(operator, ast.In | ast.NotIn):
            found = self._membership(left, right)
            return found if isinstance(operator, ast.In) else Not(found)
        if type(operator) not in _OPERATORS:
            raise self._refusal(left, "is compared with an operator that is not allowed: use == != < <= > >= in")
        wanted = _OPERATORS[type(operator)]
        if not self._is_field(left):
            left, right, wanted = right, left, _FLIPPED[wanted]
        literal = self._literal(right)
        if wanted not in ("==", "!=") and not isinstance(literal, str | float):
            raise self._refusal(right, "has no order: compare it with == or !=")
        return Comparison(self._checked(self._field(left), literal), wanted, literal)

    def _membership(self, left: ast.expr, right: ast.expr) -> Condition:
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            field = self._field(left)
            literals = [self._literal(each) for each in right.elts]
            if not literals:
                raise self._refusal(right, 'is empty: write value.country in ("DE", "FR")')
            return AnyOf(tuple(Comparison(self._checked(field, each), "==", each) for each in literals))
        text = self._literal(left)
        if not isinstance(text, str):
            raise self._refusal(left, 'is no text: write "text" in value, or value.country in ("DE", "FR")')
        return Contains(self._checked(self._field(right), text), text)

    def _checked(self, field: FieldPath, literal: Literals) -> FieldPath:
        """A column has one type; a field of JSON may have any."""
        if field.column in NUMBER_FIELDS and (isinstance(literal, str | bool)):
            raise _wrong(self._text, f"{field} is a number: compare it with one")
        is_text = field.column in (*TEXT_FIELDS, "attributes") or (field.column == "value" and not field.path)
        if is_text and not (isinstance(literal, str) or literal is None):
            raise _wrong(self._text, f'{field} is text: compare it with text in quotes, such as "{literal}"')
        return field

    def _is_field(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name | ast.Attribute | ast.Subscript)

    def _field(self, node: ast.expr) -> FieldPath:
        names: list[str] = []
        while isinstance(node, ast.Attribute | ast.Subscript):
            if isinstance(node, ast.Attribute):
                names.append(node.attr)
            elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                names.append(node.slice.value)
            else:
                raise self._refusal(node, 'is no field: write value.name or value["name"]')
            node = node.value
        if not isinstance(node, ast.Name):
            raise self._refusal(node, "is no field: fields begin with value, key, attributes, partition or offset")
        column, path = node.id, tuple(reversed(names))
        if column == "value" or (column == "attributes" and len(path) == 1):
            return FieldPath(column, path)
        if column in (*TEXT_FIELDS, *NUMBER_FIELDS) and not path:
            return FieldPath(column)
        known = "value, value.NAME, attributes.NAME, " + ", ".join((*TEXT_FIELDS, *NUMBER_FIELDS))
        raise _wrong(self._text, f"{ast.unparse(node)[:60]} is no field: there are {known}")

    def _literal(self, node: ast.expr) -> Literals:
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            sign, node = -1, node.operand
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bool) or node.value is None or isinstance(node.value, str):
                if sign == 1:
                    return node.value
            elif isinstance(node.value, int | float):
                try:
                    return sign * float(node.value)
                except OverflowError:
                    raise self._refusal(node, "is too large") from None
        raise self._refusal(node, "is neither a number, nor text in quotes, nor True, False or None")

    def _refusal(self, node: ast.expr, rule: str) -> InvalidInput:
        return _wrong(self._text, f"{ast.unparse(node)[:60]} {rule}")
