"""The `headrace` command. The only place where a failure ends the process."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from headrace.cli.commands.index import CommandIndex
from headrace.cli.exits import Enough, Exit, Failure, exit_of
from headrace.core.errors import HeadraceError, InvalidInput
from headrace.extras import cure

app = typer.Typer(
    name="headrace",
    cls=CommandIndex,
    epilog="Exit codes: 0 success, 1 refused or damaged, 2 wrong usage or configuration, 3 server unreachable, "
    "4 access denied, 5 server temporarily unavailable, 6 --resume found nothing new, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain: the help of the whole must appear at once, and rich takes long to import.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from headrace.cli.commands.checks.version import version

        version()
        raise typer.Exit


@app.callback()
def headrace(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    profile: Annotated[
        str | None, typer.Option(help="Use the server of this profile, see `headrace profile`.", metavar="NAME")
    ] = None,
) -> None:
    """A durable topic broker: run a server, publish and read messages, administer it."""
    from headrace.cli.remote.address import ask_profile

    ask_profile(profile)


def main() -> None:
    """Run the command line of this process and exit with its code."""
    sys.exit(run())


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    try:
        code = app(args=arguments, prog_name="headrace", standalone_mode=False)
        sys.stdout.flush()
        return int(code or Exit.OK)
    except Failure as failure:
        return _end(failure.exit, str(failure))
    except TyperException as error:
        return _end(Exit.USAGE, _with_help(error))
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except HeadraceError as error:
        return _end(Exit.USAGE if isinstance(error, InvalidInput) else exit_of(type(error)), str(error))
    except ModuleNotFoundError as error:
        line = cure(error, is_command=True)
        if line is None:
            raise
        return _end(Exit.USAGE, line)
    except Enough:
        # Python flushes the buffered output at exit; with the real stdout closed that would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK


def _end(exit: Exit, line: str) -> int:
    sys.stderr.write(f"headrace: {line}\n")
    return exit


def _with_help(error: TyperException) -> str:
    context: Any = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    return error.format_message().replace("\n", " ") + hint
