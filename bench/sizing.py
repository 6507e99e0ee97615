"""What a server needs for a rate of messages: its cores, memory and disk, as the table of docs/sizing.md.

    python -m bench.sizing [--seconds 20] [--directory DIR] [--postgres]

Each row is a load at a fixed rate for that long, by `headrace bench`'s processes beside the server: producers with keys
over 8 partitions, and a group that reads everything while it arrives. Every row has a server and a store of its own.
Cores are the processor time of the server, and with --postgres that of the database too, over the time of the load: it
depends little on what else the machine does. Memory is the most that was resident, disk what the topic takes. A row
whose rate was not reached says so: its figures are for the rate that was.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.memory import watching
from bench.report import machine
from bench.rounds import processor_seconds
from headrace import connect
from headrace.core.errors import HeadraceError
from headrace.load.load import Load
from headrace.load.run import run
from headrace.load.server import ServerProcess, serving, temporary_store

# Messages a second, how many are sent together, bytes of a value, groups.
ROWS: Final = (
    (100, 1, 100, 1),
    (1_000, 1, 100, 1),
    (10_000, 100, 100, 1),
    (10_000, 100, 1_000, 1),
    (10_000, 100, 100, 4),
    (100_000, 1_000, 100, 1),
    (100_000, 1_000, 100, 4),
    (300_000, 10_000, 100, 1),
)
_HEAD: Final = (
    "| messages/s | sent together | bytes | groups | cores | memory MB | disk, bytes a message | disk a day |\n"
    "|---:|---:|---:|---:|---:|---:|---:|---:|"
)
_REACHED: Final = 0.95
_DAY_SECONDS: Final = 86_400


@dataclass
class Stored:
    """The size of the topic of a load, as it was last seen."""

    bytes_stored: int = 0
    messages: int = 0


@contextmanager
def looking(url: str) -> Iterator[Stored]:
    """Look at the only topic of a server twice a second: the load deletes it at its end."""
    seen, over = Stored(), threading.Event()

    def look() -> None:
        with connect(url) as client:
            while not over.wait(0.5):
                try:
                    for name in client.list_topics():
                        found = client.describe_topic(name)
                        messages = sum(end - start for start, end in found.offsets.values())
                        if messages >= seen.messages:
                            seen.bytes_stored, seen.messages = found.bytes_stored, messages
                except HeadraceError:
                    continue

    thread = threading.Thread(target=look, name="bench-sizing", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def row(server: ServerProcess, others: tuple[int, ...], given: tuple[int, int, int, int], seconds: float) -> str:
    """One row of the table."""
    rate, batch, value_bytes, groups = given
    load = Load(messages=int(rate * seconds), batch=batch, value_bytes=value_bytes, groups=groups, rate=rate)
    pids = server.pid, *others
    with watching(server.pid) as watch, looking(server.url) as stored:
        # What starting the workers costs the server is counted too: it is little.
        before = processor_seconds(*pids)
        outcome = run(load, server.url)
        used, took = processor_seconds(*pids) - before, outcome.publish_seconds
    if not outcome.is_good:
        raise RuntimeError(f"not everything arrived once and in order: {outcome.findings}")
    reached = outcome.published_per_second
    each = stored.bytes_stored / max(1, stored.messages)
    shown = f"{rate:,}" if reached >= _REACHED * rate else f"{reached:,.0f} of {rate:,}"
    cells = (
        shown,
        f"{batch:,}",
        f"{value_bytes:,}",
        str(groups),
        f"{used / took:.2f}",
        f"{watch.most_of_its_own_bytes / 1e6:.0f}",
        f"{each:.0f}",
        _size(each * min(rate, reached) * _DAY_SECONDS),
    )
    return f"| {' | '.join(cells)} |"


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count < 1e12 else f"{count / 1e12:,.1f} TB"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each load runs")
    parser.add_argument("--directory", type=Path, default=Path(), help="where the store is put: choose the disk")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL, whose cores count too")
    arguments = parser.parse_args()
    print(f"{machine()}\n\n{_HEAD}", flush=True)
    for given in ROWS:
        others: tuple[int, ...] = ()
        with ExitStack() as stack:
            if arguments.postgres:
                from tests.postgres_server import PostgresServer

                postgres = PostgresServer({"autovacuum": "on"}, room=str(arguments.directory.resolve()))
                stack.callback(postgres.stop)
                store, others = postgres.url(postgres.fresh_database()), (postgres.pid,)
            else:
                store = stack.enter_context(temporary_store(arguments.directory))
            server = stack.enter_context(serving(store))
            print(row(server, others, given, arguments.seconds), flush=True)


if __name__ == "__main__":
    main()
