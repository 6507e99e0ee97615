"""All commands by package and name, with their lines in `headrace --help`. Modules are imported as they are used.

A test compares these lines with the commands' own help.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from typer import Typer
from typer.main import get_command, get_group

from headrace.cli.terminal.help import PlainCommand, PlainGroup

TITLES: Final[Mapping[str, str]] = {
    "servers": "Run a server",
    "topics": "Topics and messages",
    "access": "Access",
    "checks": "Check and measure",
}
SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "servers": {
        "serve": "Run a server until SIGTERM or Ctrl-C.",
        "console": "Run the console: topics, messages, groups and charts in a browser, until SIGTERM or Ctrl-C.",
        "config": "Show or check the settings of a server.",
        "status": "Show whether a server is up, how it is doing, and what needs attention.",
        "client": "Show who is connected.",
        "debug": "Collect what a bug report needs.",
        "top": "Watch the rates and the lag of topics and groups.",
    },
    "topics": {
        "topic": "Create, list, describe, alter and delete topics; delete, copy, export and import their messages.",
        "produce": "Publish each line of files or stdin as a message.",
        "consume": "Print the messages of topics. With --follow, wait for new messages too.",
        "group": "Create, list, describe, seek and delete consumer groups.",
        "outbox": "Publish messages that a program wrote in a transaction of its own.",
        "source": "List and reset the sources (producer id and message group id) of a topic.",
        "table": "Query topics as tables with SQL, infer the schema of values, and offer archives as Iceberg tables.",
        "pipeline": "Run pipelines on Spark: read a topic or files, transform with SQL, write a topic or a table.",
        "spark": "Look into the checkpoints of streaming queries.",
    },
    "access": {
        "token": "Manage access tokens. Takes effect on a running server within a second.",
        "whoami": "Show the name, expiry and rights of your token.",
        "profile": "Name servers with their tokens, and choose the one that commands use.",
    },
    "checks": {
        "doctor": "Check every frame, index, snapshot and catalog row of a disk store, also while a server runs.",
        "backup": "Copy a disk store to a directory. A server may keep running on the store.",
        "bench": "Measure throughput and latency of a server, and verify that every message arrived once and in order.",
        "verify": "Verify a server: many clients publish, read, commit and seek; then every guarantee is checked.",
        "version": "Show the versions of Headrace, Python and pyarrow.",
    },
}


class CommandIndex(PlainGroup):
    """The commands of `headrace`, each imported when it is asked for."""

    @property  # type: ignore[override]
    def commands(self) -> dict[str, Any]:
        """All commands, imported."""
        return {name: self.get_command(None, name) for section in SECTIONS.values() for name in section}

    @commands.setter
    def commands(self, commands: Any) -> None:
        """Typer assigns the commands that it knows of: none."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands."""
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name; none if there is no such command."""
        return next((_load(package, cmd_name) for package, names in SECTIONS.items() if cmd_name in names), None)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in sections, without importing them."""
        for package, commands in SECTIONS.items():
            with formatter.section(TITLES[package]):
                formatter.write_dl(list(commands.items()))


def _load(package: str, name: str) -> Any:
    from importlib import import_module

    module = import_module(f"headrace.cli.commands.{package}.{name}")
    app = getattr(module, "app", None)
    if isinstance(app, Typer):
        app.rich_markup_mode = None
        app.info.cls = PlainGroup
        for registered in app.registered_commands:
            if registered.cls is None or not issubclass(registered.cls, PlainCommand):
                registered.cls = PlainCommand
        command: Any = get_group(app)
    else:
        single = Typer(add_completion=False, rich_markup_mode=None)
        single.command(name, cls=PlainCommand, epilog=getattr(module, "EXAMPLES", None))(getattr(module, name))
        command = get_command(single)
    command.name = name
    return command
