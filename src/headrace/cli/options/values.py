"""Values of options and arguments, converted without pydantic, which Typer would import for every command.

Commands have texts, numbers, flags and paths only. A parameter of any other type, or a Typer that keeps its converter
elsewhere, is left alone: it works as well, and starts slower.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any, Final, get_args, get_origin

from typer import BadParameter

_FLAGS: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def use_plain_values(parameters: list[Any]) -> list[Any]:
    """The parameters, whose values are converted here from now on."""
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)
        kind = _kind(getattr(descriptor, "annotation", None))
        if kind in _CONVERTERS and getattr(parameter, "_runtime_param", parameter) is None:
            info = descriptor.parameter_info  # type: ignore[union-attr]
            parameter._runtime_param = _Converter(_CONVERTERS[kind], info.min, info.max)
    return parameters


def _kind(annotation: Any) -> Any:
    """The type of one value: without `| None`, and of an item of a list."""
    parts = [part for part in get_args(annotation) if part is not NoneType]
    if get_origin(annotation) is list or (len(parts) == 1 and len(get_args(annotation)) == 2):
        return _kind(parts[0])
    return annotation if isinstance(annotation, type) else None


class _Converter:
    """Converts the values of one parameter, within its bounds."""

    def __init__(self, convert: Callable[[Any], Any], least: float | None, most: float | None) -> None:
        self._convert = convert
        self._least = least
        self._most = most

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter, or a list of them; Typer calls it so."""
        if param.multiple or param.nargs == -1:
            return [self._one(each, param, ctx) for each in value or ()] or (() if value is None else [])
        return None if value is None else self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            converted = self._convert(value)
        except (ValueError, KeyError) as error:
            raise BadParameter(f"{value!r} is not {error.args[0]}.", ctx=ctx, param=param) from None
        if self._least is not None and converted < self._least:
            raise BadParameter(f"it must be at least {self._least} (got {value}).", ctx=ctx, param=param)
        if self._most is not None and converted > self._most:
            raise BadParameter(f"it must be at most {self._most} (got {value}).", ctx=ctx, param=param)
        return converted


def _whole(value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError("a whole number") from None


def _number(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError("a number") from None


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in _FLAGS:
        raise ValueError("yes or no")
    return _FLAGS[str(value).lower()]


_CONVERTERS: Final[dict[Any, Callable[[Any], Any]]] = {str: str, int: _whole, float: _number, bool: _flag, Path: Path}
