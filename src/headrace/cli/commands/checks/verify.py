"""`headrace verify`: run many clients against a server, record their history, and check every guarantee."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json
from headrace.cli.server.tested_server import TestedServer
from headrace.cli.terminal.output import print_json, print_line, print_note
from headrace.core.errors import InvalidInput

if TYPE_CHECKING:
    from headrace.verify.checks.verdict import Verdict

EXAMPLES: Final = """
Without --url the command starts its own server on a temporary store and stops it at the end. The test topic is deleted.
Exit code 0: all guarantees held. 1: a guarantee was violated, or there was nothing to check.

Examples:

  headrace verify --seconds 20

  headrace verify --url headrace://127.0.0.1:7071 --seconds 60 --producers 4 --consumers 3 --history run.jsonl

  headrace verify check run.jsonl --json
"""
_SHOWN: Final = 20

app = typer.Typer(
    help="Verify a server: many clients publish, read, commit and seek; then every guarantee is checked.",
    epilog=EXAMPLES,
    invoke_without_command=True,
)


@app.callback()
@with_option_groups
def verify(
    context: typer.Context,
    *,
    seconds: Annotated[float, typer.Option(help="How many seconds the clients publish.", metavar="N")] = 60.0,
    producers: Annotated[int, typer.Option(help="Number of clients that publish.", metavar="N")] = 4,
    consumers: Annotated[int, typer.Option(help="Number of members in each group.", metavar="N")] = 3,
    groups: Annotated[int, typer.Option(help="Number of groups; each reads all messages.", metavar="N")] = 2,
    partitions: Annotated[int, typer.Option(help="Partitions of the test topic.", metavar="N")] = 4,
    rate: Annotated[float, typer.Option(help="Messages per second of each producer.", metavar="N")] = 500.0,
    seeks: Annotated[bool, typer.Option("--seeks/--no-seeks", help="Seek groups while their members read.")] = True,
    seed: Annotated[int | None, typer.Option(help="Seed of the random choices, to repeat a run.", metavar="N")] = None,
    patience: Annotated[
        float, typer.Option(help="How long a client retries to reach a server.", metavar="SECONDS")
    ] = 30.0,
    history: Annotated[
        Path | None, typer.Option(help="Keep the history in this new file. By default it is deleted.", metavar="FILE")
    ] = None,
    as_json: Json = False,
    server: TestedServer,
) -> None:
    """Verify a server: many clients publish, read, commit and seek; then every guarantee is checked."""
    if context.invoked_subcommand is not None:
        return
    from headrace.verify.run import VerifyRun
    from headrace.verify.workload import Workload

    chosen = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    workload = Workload(
        seconds=seconds,
        producers=producers,
        consumers=consumers,
        groups=groups,
        partitions=partitions,
        rate=rate,
        seeks=seeks,
        patience_seconds=patience,
        seed=chosen,
    )
    with ExitStack() as undo:
        if history is None:
            history = Path(undo.enter_context(TemporaryDirectory(prefix="headrace-verify-"))) / "history.jsonl"
        with server.running(workload.check) as target:
            if not as_json:
                print_note(f"verifying for {seconds:g} seconds with seed {chosen}")
            VerifyRun(target.url, workload, history, target.token, target.root_certificates).run()
        verdict = _checked(history)
    _tell(verdict, as_json, chosen)


@app.command("check", epilog="Example:\n\n  headrace verify check run.jsonl")
def check_history(
    file: Annotated[Path, typer.Argument(help="A history written with --history.", metavar="FILE")],
    as_json: Json = False,
) -> None:
    """Check a recorded history again, without a server."""
    _tell(_checked(file), as_json, None)


def _checked(history: Path) -> Verdict:
    from headrace.verify.checks.verdict import check
    from headrace.verify.history.file import read_history

    try:
        return check(read_history(history))
    except InvalidInput as error:
        raise Failure(Exit.USAGE, str(error)) from None
    except OSError as error:
        raise Failure(Exit.USAGE, f"{error.filename}: {error.strerror}") from None


def _tell(verdict: Verdict, as_json: bool, seed: int | None) -> None:
    if as_json:
        print_json({"verdict": verdict.word, "seed": seed, "report": verdict})
    else:
        for violation in verdict.violations[:_SHOWN]:
            print_line(str(violation))
        _explain(verdict)
        print_line(_line(verdict))
    if not verdict.is_good:
        raise typer.Exit(Exit.REFUSED)


def _explain(verdict: Verdict) -> None:
    """Say what each kind of violation that was found means."""
    from headrace.verify.checks.violation import MEANINGS

    for kind in dict.fromkeys(violation.kind for violation in verdict.violations):
        print_line(f"{kind} means: {MEANINGS[kind]}")


def _line(verdict: Verdict) -> str:
    """The verdict in one line."""
    figures = (
        f"{verdict.acknowledged:,} messages acknowledged, {verdict.unknown:,} of unknown outcome, "
        f"{verdict.read:,} delivered to members, {verdict.commits:,} commits, {verdict.seeks:,} seeks"
    )
    if verdict.violations:
        kinds = Counter(violation.kind for violation in verdict.violations)
        broken = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
        return f"violated: {broken} ({figures})"
    return f"{verdict.word}: {figures}"
