"""Groups of options: a dataclass whose fields are options, which several commands take as one parameter.

    @app.command("list")
    @with_option_groups
    def list_topics(*, as_json: Json = False, server: ServerOptions) -> None: ...

`with_option_groups` shows Typer a function with the fields of each group in its place, and builds the groups for each
call. So an option that several commands share is written once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of its groups in place of the groups."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            shown += _options(groups[name])
        else:
            shown.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> None:
        built = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()
        }
        command(**given, **built)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    empty = inspect.Parameter.empty
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
