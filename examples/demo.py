"""The first five minutes: a server, transactions in, two groups out, a retry, a restart, Spark, and tables.

`make demo` runs it. It starts `headrace serve` on a temporary store and a free port, talks to it over plain HTTP as a
program in any language would, and removes everything at its end.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from balances.demo import run as settle_on_spark
from balances.history import run as ask_both_engines
from rich.console import Console
from rich.table import Table

HEADRACE = Path(sys.executable).with_name("headrace")
ACCOUNTS = 500
TRANSFERS = 10_000
BATCH = 1_000

console = Console()


@contextmanager
def server(store: Path) -> Iterator[tuple[httpx.Client, str]]:
    """A running server: a client of its HTTP, and its address for Spark; stopped as an operator would stop it."""
    command = [str(HEADRACE), "serve", "--store", f"file:{store}", "--http", "127.0.0.1:0"]
    command += ["--flight", "127.0.0.1:0", "--log-level", "warning"]
    settings = {**os.environ, "HEADRACE_ARCHIVE_URL": str(store.parent / "archive")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=settings)
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().strip()
        if not ready:
            sys.exit("the server did not start")
        console.print(f"[green]$[/] headrace serve --store file:{store}\n[dim]{ready}[/]")
        url = next(word for word in ready.split() if word.startswith("http"))
        with httpx.Client(base_url=f"{url}/v1", timeout=30) as client:
            yield client, next(word for word in ready.split() if word.startswith("headrace://"))
        process.send_signal(signal.SIGTERM)
        if process.wait(20) != 0:
            sys.exit("the server did not stop cleanly")
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def say(line: str) -> None:
    """A line of a part that runs by itself."""
    console.print(line, highlight=False)


def transactions() -> list[dict[str, Any]]:
    """Transfers between accounts: each is two messages, so that all balances add up to nothing."""
    chance = random.Random(7)
    messages = []
    for _ in range(TRANSFERS):
        giver, taker = chance.sample(range(ACCOUNTS), 2)
        cents = chance.randint(1, 50_000)
        messages += [(giver, -cents), (taker, cents)]
    return [
        {"key": f"account-{account:03d}", "value": str(cents), "producer_id": "bank", "seqno": number}
        for number, (account, cents) in enumerate(messages, 1)
    ]


def call(client: httpx.Client, method: str, path: str, body: Any = None, **query: Any) -> Any:
    """One call of the API."""
    answer = client.request(method, path, json=body, params=query)
    answer.raise_for_status()
    return answer.json() if answer.content else None


def publish(client: httpx.Client, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Publish in one commit: a receipt for each message, once all of them are on the device."""
    receipts: list[dict[str, Any]] = call(client, "POST", "topics/transactions/messages", {"messages": messages})[
        "receipts"
    ]
    return receipts


def read_as(client: httpx.Client, group: str, member: str, most: int) -> Iterator[dict[str, Any]]:
    """Read as a member of a group, committing what was taken."""
    path = f"topics/transactions/groups/{group}"
    call(client, "PUT", f"{path}/members/{member}", {})
    taken = 0
    while taken < most:
        found = call(client, "GET", f"{path}/members/{member}/messages", max_messages=min(5_000, most - taken))
        if not found["messages"]:
            break
        yield from found["messages"]
        taken += len(found["messages"])
        call(client, "POST", f"{path}/offsets", {"offsets": found["positions"], "member": member})
    call(client, "DELETE", f"{path}/members/{member}")


def show(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    console.print(f"[bold]{title}[/]")
    table = Table()
    for place, column in enumerate(columns):
        is_number = all(not isinstance(row[place], str) for row in rows)
        table.add_column(column, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    console.print(table)


def show_groups(client: httpx.Client) -> None:
    groups = [call(client, "GET", f"topics/transactions/groups/{name}") for name in ("balances", "audit")]
    rows = [
        [group["name"], sum(at["position"] for at in group["partitions"]), group["lag_messages"],
         round(group["lag_seconds"], 1)]
        for group in groups
    ]  # fmt: skip
    show("Two groups read at their own pace", ["group", "messages read", "lag", "lag in seconds"], rows)


def run(store: Path) -> None:
    messages = transactions()
    with server(store) as (client, _):
        call(client, "POST", "topics", {"name": "transactions", "partitions": 4})
        started = time.perf_counter()
        receipts = [
            receipt for start in range(0, len(messages), BATCH)
            for receipt in publish(client, messages[start : start + BATCH])
        ]  # fmt: skip
        seconds = time.perf_counter() - started
        console.print(
            f"\nPublished {len(receipts):,} transactions of {ACCOUNTS} accounts as JSON in {seconds:.2f} s; "
            "every receipt came after its message was on the device.\n"
        )
        first = [
            [message["key"], int(message["value"]), receipt["partition"], receipt["offset"], receipt["status"]]
            for message, receipt in zip(messages[:6], receipts, strict=False)
        ]
        show("The first receipts: one account is always in one partition", ["key", "cents", "partition", "offset",
             "status"], first)  # fmt: skip

        again = Counter(receipt["status"] for receipt in publish(client, messages[:BATCH]))
        show("The first batch sent again, as after a lost answer", ["status", "messages"],
             [[status, count] for status, count in again.items()])  # fmt: skip
        assert again == {"duplicate": BATCH}, again

        balances: dict[str, int] = defaultdict(int)
        for message in read_as(client, "balances", "teller-1", len(messages) * 2):
            balances[message["key"]] += int(message["value"])
        audited = sum(1 for _ in read_as(client, "audit", "auditor-1", 7_500))
        richest = sorted(balances.items(), key=lambda each: -each[1])
        show(
            "Balances by the group `balances`",
            ["account", "balance"],
            [[name, f"{cents / 100:,.2f}"] for name, cents in richest[:3] + richest[-3:]],
        )
        assert len(balances) == ACCOUNTS and sum(balances.values()) == 0, "a transaction is lost or doubled"
        console.print(f"All {ACCOUNTS} balances together: {sum(balances.values()) / 100:.2f}, as it must be.\n")
        show_groups(client)

    console.print("\nThe server was stopped. Started again on the same store:\n")
    with server(store) as (client, flight):
        audited += sum(1 for _ in read_as(client, "audit", "auditor-1", len(messages)))
        assert audited == len(messages), f"the audit saw {audited} of {len(messages)} transactions"
        show_groups(client)
        console.print(f"\nThe audit resumed where it had stopped: {audited:,} transactions, each once.")
        console.print("\n[bold]Balances kept by Spark[/], with payments published live:", highlight=False)
        settle_on_spark(flight, store.parent / "spark", say)
        console.print("\n[bold]The payments as a table[/], by Spark and by DuckDB:", highlight=False)
        rows = ask_both_engines(flight, store.parent / "spark", say)
        answers = [[kind, count, f"{cents / 100:,.2f}"] for kind, count, cents in rows]
        show("Both say the same", ["kind", "payments", "sum"], answers)
    console.print("\nNow the store, offline:\n")
    doctor = subprocess.run([HEADRACE, "doctor", store], check=True, capture_output=True, text=True)
    console.print(f"[green]$[/] headrace doctor {store}\n{doctor.stdout.strip()}", highlight=False)
    console.print("\nNext: [bold]make run[/], then README.md.")


if __name__ == "__main__":
    with TemporaryDirectory(prefix="headrace-demo-") as directory:
        run(Path(directory) / "store")
