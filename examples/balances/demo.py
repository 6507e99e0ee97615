"""Balances on Spark, live: transactions are published while a pipeline settles them, is killed, and is started again.

A part of `make demo`; `run` needs a server and an empty directory. At the end every refusal was answered once, and
Spark's balances are those of a plain loop over the transactions.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace

HEADRACE = Path(sys.executable).with_name("headrace")
HERE = Path(__file__).parent
PATIENCE_SECONDS = 600.0
ACCOUNTS = 200
TRANSACTIONS = 6_000
BATCH = 100

Transaction = dict[str, Any]


def transactions() -> list[Transaction]:
    """Top-ups and purchases of all accounts, mixed; more is spent than there is, so that some are refused."""
    chance = random.Random(11)
    made = []
    for number in range(TRANSACTIONS):
        account = f"account-{chance.randrange(ACCOUNTS):03d}"
        kind = "top-up" if chance.random() < 0.45 else "purchase"
        made.append({"account": account, "id": number, "kind": kind, "cents": chance.randint(1, 20_000)})
    return made


def statements() -> list[Transaction]:
    """The question for its balance to every account."""
    return [
        {"account": f"account-{number:03d}", "id": TRANSACTIONS + number, "kind": "statement", "cents": 0}
        for number in range(ACCOUNTS)
    ]


def settled(published: list[Transaction]) -> tuple[set[int], dict[str, int]]:
    """What must come out: the purchases that are refused, and the balances."""
    balances: dict[str, int] = dict.fromkeys((each["account"] for each in statements()), 0)
    refused = set()
    for each in published:
        account, cents = each["account"], each["cents"]
        if each["kind"] == "top-up":
            balances[account] += cents
        elif cents > balances[account]:
            refused.add(each["id"])
        else:
            balances[account] -= cents
    return refused, balances


def publish(client: headrace.Client, messages: list[Transaction], is_settling: threading.Event) -> None:
    """Publish live: the second half waits until Spark is at work."""
    for start in range(0, len(messages), BATCH):
        if start >= len(messages) // 2:
            is_settling.wait(PATIENCE_SECONDS)
        with client.producer("payments", producer_id="till") as producer:
            for each in messages[start : start + BATCH]:
                producer.send(json.dumps(each).encode(), key=each["account"].encode())
        time.sleep(0.02)


@contextmanager
def pipeline(url: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """The pipeline, in a process group of its own, so that Spark's Java goes with it."""
    variables = {"SERVER": url, "TOPIC": "payments", "CHECKPOINT": str(directory / "checkpoint")}
    command = [str(HEADRACE), "pipeline", "run", str(HERE / "balances.toml"), "--master", "local[2]", "--json"]
    with open(directory / "spark.log", "a") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            text=True, start_new_session=True,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def await_messages(process: subprocess.Popen[str], least: int, directory: Path) -> int:
    """Wait until a run of the pipeline has settled N messages."""
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "progress" and event["messages"] >= least:
            return int(event["messages"])
    sys.exit(f"the pipeline ended by itself:\n{(directory / 'spark.log').read_text()[-2000:]}")


def await_end(client: headrace.Client, topic: str, least: int) -> None:
    """Wait until N messages were published."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(end for _, end in client.offsets(topic).values()) < least:
        if time.monotonic() > deadline:
            sys.exit("the transactions were not published")
        time.sleep(0.01)


def await_answers(client: headrace.Client, count: int) -> list[Transaction]:
    """All answers, once N statements are among them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        answers = [json.loads(value) for value in client.read("answers", 0, 0, 1_000_000).column("value").to_pylist()]
        if sum(answer["kind"] == "statement" for answer in answers) >= count:
            return answers
        time.sleep(0.2)
    sys.exit("the statements were not answered")


def run(url: str, directory: Path, say: Any) -> None:
    """Publish, settle, kill, continue, compare; ends the process if a sum is wrong."""
    directory.mkdir(parents=True, exist_ok=True)
    messages, goes_on = transactions(), threading.Event()
    with headrace.connect(url) as client:
        client.create_topic("payments", partitions=4, archive="on", archive_after_seconds=1)
        client.create_topic("answers")
        # Whatever fails below, it holds nobody.
        till = threading.Thread(target=publish, args=(client, messages, goes_on), daemon=True)
        till.start()
        with pipeline(url, directory) as process:
            settled_messages = await_messages(process, 1, directory)
            goes_on.set()
            await_end(client, "payments", settled_messages + 5 * BATCH)
            os.killpg(process.pid, signal.SIGKILL)
            say(f"Spark has settled {settled_messages:,} transactions, and is killed while more arrive.")
        with pipeline(url, directory) as process:
            till.join()
            # Whatever the first run left, there is something to settle now.
            publish(client, statements(), goes_on)
            await_messages(process, 1, directory)
            say("Restarted, it resumes where it had stopped.")
            answers = await_answers(client, ACCOUNTS)
            process.send_signal(signal.SIGTERM)
            if process.wait(PATIENCE_SECONDS) != 0:
                sys.exit("the pipeline did not stop cleanly")
    compare(messages, answers, say)


def compare(messages: list[Transaction], answers: list[Transaction], say: Any) -> None:
    """Spark's answers beside those of a plain loop."""
    refused, balances = settled(messages)
    found = Counter(answer["id"] for answer in answers if answer["kind"] == "refusal")
    held = {answer["account"]: answer["balance"] for answer in answers if answer["kind"] == "statement"}
    if found != Counter(refused) or held != balances or len(answers) != len(refused) + ACCOUNTS:
        sys.exit(f"the sums differ: {sum(found.values())} refusals for {len(refused)}, "
                 f"{sum(held.values())} cents for {sum(balances.values())}")  # fmt: skip
    say(
        f"{len(refused):,} purchases were refused, each answered once; {ACCOUNTS} balances add up to "
        f"{sum(held.values()) / 100:,.2f}, to the cent what a plain loop gives."
    )
