"""The README of release 0.1.0, unchanged but for addresses: what it showed still works.

`released_readme.md` is that page. Each Python block gets a store of its own, since they were written to be tried one
by one. Its Spark block is run by tests/spark/test_pages.py.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from tests.cli.processes import Server
from tests.docs.pages import Block, Scratch, blocks

PAGE = "tests/docs/released_readme.md"
PYTHON = [block for block in blocks(PAGE) if block.language == "python" and "spark" not in block.text]
COMMANDS = [
    line
    for block in blocks(PAGE)
    for line in block.text.replace("\\\n", "").splitlines()
    if block.language == "" and line.startswith(("headrace ", "curl "))
]
# They go on until Ctrl-C.
ENDLESS = ("--follow", "curl -N")


def test_nothing_of_the_page_is_forgotten() -> None:
    assert len(PYTHON) == 2
    assert [command.split()[:2] for command in COMMANDS if command.startswith("headrace")] == [
        ["headrace", word] for word in ("topic", "produce", "consume", "consume", "group", "bench")
    ]
    assert sum(command.startswith("curl") for command in COMMANDS) == 4


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_runs(block: Block, tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        Scratch(tmp_path, server).run(block)


def test_commands_run_in_order(tmp_path: Path) -> None:
    (tmp_path / "orders.txt").write_text("user-1:42.00\nuser-2:7.50\n")
    with Server(tmp_path / "store") as server:
        scratch = Scratch(tmp_path, server)
        for command in COMMANDS:
            if any(word in command for word in ENDLESS):
                assert "7.50" in _first_lines(scratch, server, command)
            else:
                assert scratch.run(Block(PAGE, 0, "bash", command)) != "", command


def _first_lines(scratch: Scratch, server: Server, command: str) -> str:
    """What a command prints up to the first 7.50, while orders arrive; then it is interrupted."""
    printed, ended = "", threading.Event()
    orders = threading.Thread(target=_publish, args=(server, ended))
    orders.start()
    with scratch.start(Block(PAGE, 0, "bash", f"exec {command}")) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                printed += line
                if "7.50" in line:
                    break
            process.send_signal(signal.SIGINT)
            process.wait(60)
        finally:
            process.kill()
            ended.set()
            orders.join()
    return printed


def _publish(server: Server, ended: threading.Event) -> None:
    while not ended.wait(0.2):
        server.post("topics/orders/messages", {"messages": [{"value": "7.50"}]})
