"""The help of a command in plain text: arguments as they are typed, options by section, no types.

Rich would take as long to import as everything else, and cuts long names of options.
"""

from __future__ import annotations

import re
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from headrace.cli.options.values import use_plain_values

_RANGE: Final = re.compile(r"([\d.]+)<=x<=([\d.]+)")
_LEAST: Final = re.compile(r"x>=([\d.]+)")


def collect_usage_pieces(command: Any, context: Any) -> list[str]:
    """What stands behind the name of a command in its usage line."""
    arguments = [parameter for parameter in command.get_params(context) if parameter.param_type_name == "argument"]
    return ["[OPTIONS]", *(_shown(argument) for argument in arguments)]


def format_options(command: Any, context: Any, formatter: Any) -> None:
    """Write the arguments and the options of a command, those of a section of their own behind the others."""
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        if parameter.param_type_name == "argument":
            sections["Arguments"].append((_shown(parameter), parameter.help or ""))
        else:
            panel = getattr(parameter, "rich_help_panel", None) or "Options"
            sections.setdefault(panel, []).append((record[0], _in_words(record[1])))
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def _in_words(text: str) -> str:
    """Help with the bounds of a number as people say them."""
    return _LEAST.sub(r"at least \1", _RANGE.sub(r"\1 to \2", text))


def _shown(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


class PlainCommand(TyperCommand):
    """A command with plain help, whose values are converted without pydantic."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, also those that Typer adds."""
        return use_plain_values(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind its name in the usage line."""
        return collect_usage_pieces(self, ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write its arguments and options."""
        format_options(self, ctx, formatter)


class PlainGroup(TyperGroup):
    """A group of commands with plain help, whose values are converted without pydantic."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, also those that Typer adds."""
        return use_plain_values(super().get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write its options and commands."""
        format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)
