"""The `headrace` command: assembles all subcommands. The only place where a failure ends the process."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.exceptions import TyperException

from headrace.cli.commands import (
    backup,
    bench,
    console,
    consume,
    doctor,
    group,
    pipeline,
    produce,
    serve,
    source,
    token,
    topic,
    verify,
    version,
    whoami,
)
from headrace.cli.exits import Enough, Exit, Failure

app = typer.Typer(
    name="headrace",
    help="A durable topic broker: run a server, publish and read messages, administer it.",
    epilog="Exit codes: 0 success, 1 refused or damaged, 2 wrong usage or configuration, 3 server unreachable, "
    "4 access denied, 5 server temporarily unavailable, 6 produce --resume found no new lines, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.command("console", epilog=console.EXAMPLES)(console.console)
app.add_typer(topic.app, name="topic")
app.command("produce", epilog=produce.EXAMPLES)(produce.produce)
app.command("consume", epilog=consume.EXAMPLES)(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(source.app, name="source")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(token.app, name="token")
app.command("whoami", epilog=whoami.EXAMPLES)(whoami.whoami)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("backup", epilog=backup.EXAMPLES)(backup.backup)
app.command("bench", epilog=bench.EXAMPLES)(bench.bench)
app.add_typer(verify.app, name="verify")
app.command("version")(version.version)


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
