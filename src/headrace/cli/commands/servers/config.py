"""`headrace config`: show and check the settings that `headrace serve` would have here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json
from headrace.cli.terminal.output import print_json, print_line, print_note, print_table

if TYPE_CHECKING:
    from headrace.cli.server.settings import ServeSettings

app = typer.Typer(help="Show or check the settings of a server.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where settings come from, as for `headrace serve`."""

    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings. Default: HEADRACE_CONFIG.", metavar="FILE")
    ] = None
    set: Annotated[list[str] | None, typer.Option(help="Set any setting.", metavar="NAME=VALUE")] = None

    def load(self) -> tuple[ServeSettings, Mapping[str, str]]:
        """The settings, and where each that is not the default comes from."""
        from headrace.cli.server.settings import load, origins

        named = os.environ.get("HEADRACE_CONFIG")
        file = self.config or (Path(named) if named else None)
        settings = load({}, self.set or (), os.environ, file)
        return settings, origins({}, self.set or (), os.environ, file)


@app.command("show", epilog="Example: headrace config show --config /etc/headrace/headrace.toml")
@with_option_groups
def show(
    *,
    sources: Sources,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that are not the default.")] = False,
    as_json: Json = False,
) -> None:
    """Show every setting with its value and where it comes from. Passwords in store URLs are hidden."""
    from headrace.cli.server.settings import described

    rows = [each for each in described(*sources.load()) if not changed or each.origin != "default"]
    if as_json:
        print_json({each.name: {"value": each.value, "from": each.origin} for each in rows})
    else:
        print_table(("setting", "value", "from"), [(each.name, _text(each.value), each.origin) for each in rows])


@app.command("check", epilog="Example: headrace config check --config /etc/headrace/headrace.toml")
@with_option_groups
def check(*, sources: Sources) -> None:
    """Check settings without starting a server: names, values, addresses, TLS files and whether the store exists."""
    from headrace.cli.server.process import check_settings
    from headrace.cli.server.settings import unknown_variables

    settings, places = sources.load()
    for line in unknown_variables(os.environ):
        print_note(line)
    problems = check_settings(settings)
    for problem in problems:
        print_note(problem)
    if problems:
        raise Failure(Exit.USAGE, f"{len(problems)} of the settings would keep a server from starting")
    count = len(places)
    print_line(f"the settings are good: {count} of them {'differs' if count == 1 else 'differ'} from the default")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
