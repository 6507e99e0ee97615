"""What people see: questions, a progress bar and text logs on a terminal, and only there."""

from __future__ import annotations

import os
import pty
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.processes import PATIENCE_SECONDS, Server, environment
from tests.zygote import zygote


class Terminal:
    """A command on a terminal; its input may be a file instead."""

    def __init__(self, *arguments: str, stdin: Path | None = None, **variables: str) -> None:
        self._screen, inside = pty.openpty()
        given = os.dup(inside) if stdin is None else os.open(stdin, os.O_RDONLY)
        variables = {"TERM": "xterm", "COLUMNS": "120"} | variables
        self.process = zygote().start(list(arguments), environment(**variables), [given, inside, inside])
        os.close(given)
        os.close(inside)
        self.seen = ""

    def write(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def read_until(self, is_there: Callable[[str], bool]) -> str:
        """What is on the screen, once something is there."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_there(self.seen):
            assert time.monotonic() < deadline, self.seen
            try:
                self.seen += os.read(self._screen, 65536).decode(errors="replace")
            except OSError:
                assert is_there(self.seen), self.seen
        return self.seen

    def end(self) -> tuple[int, str]:
        """Exit code, and all that was shown."""
        try:
            while part := os.read(self._screen, 65536):
                self.seen += part.decode(errors="replace")
        except OSError:
            # The other side of a terminal was closed.
            pass
        return self.process.wait(PATIENCE_SECONDS), self.seen

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)
        os.close(self._screen)


def test_deleting_asks_first(server: Server, topic: str) -> None:
    server.post(f"topics/{topic}/messages", {"messages": [{"value": "a"}]})
    arguments = ("topic", "delete", topic, "--url", server.flight_url)
    with Terminal(*arguments) as terminal:
        terminal.read_until(lambda seen: f"Delete topic {topic} with 1 message?" in seen)
        terminal.write("n\n")
        assert terminal.end()[0] == 130
    assert server.run("topic", "describe", topic).code == 0
    with Terminal(*arguments) as terminal:
        terminal.read_until(lambda seen: "?" in seen)
        terminal.write("y\n")
        code, seen = terminal.end()
    assert code == 0 and "deleted" in seen
    assert "does not exist" in server.run("topic", "describe", topic).refused(1)


def test_deleting_a_group_asks_first(server: Server, topic: str) -> None:
    server.run("consume", topic, "--group", "billing")
    with Terminal("group", "delete", topic, "billing", "--url", server.flight_url) as terminal:
        terminal.read_until(lambda seen: "Delete group billing" in seen)
        terminal.write("y\n")
        assert terminal.end()[0] == 0


def test_a_progress_bar_with_a_rate(server: Server, topic: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("line\n" * 5_000)
    with Terminal("produce", topic, "--batch", "1000", "--url", server.flight_url, stdin=lines) as terminal:
        code, seen = terminal.end()
    assert code == 0
    assert "5,000 lines" in seen and "/s" in seen
    assert f"{topic}: 5,000 of 5,000 lines written" in seen
    # Elsewhere there is none.
    quiet = server.run("produce", topic, stdin="line\n" * 5_000)
    assert quiet.err == "" and quiet.out.count("\n") == 1


def test_typing_messages(server: Server, topic: str) -> None:
    with Terminal("produce", topic, "--url", server.flight_url) as terminal:
        terminal.read_until(lambda seen: "end with Ctrl-D" in seen)
        terminal.write("hello\n")
        terminal.write("\x04")
        code, seen = terminal.end()
    assert code == 0 and "1 of 1 lines written" in seen
    assert server.run("consume", topic).lines() == ["hello"]


def test_logs_are_text(tmp_path: Path) -> None:
    with Terminal("serve", "--store", f"file:{tmp_path}/store", "--http", "127.0.0.1:0", "--flight", "off") as terminal:
        terminal.read_until(lambda seen: "is ready on" in seen)
        terminal.process.send_signal(signal.SIGINT)
        code, seen = terminal.end()
    assert code == 0
    assert "INFO    headrace.cli.server.process: stopped" in seen
    assert "{" not in seen


def test_tables_fit_the_screen(server: Server, topic: str) -> None:
    with Terminal("topic", "list", "--url", server.flight_url, COLUMNS="40") as terminal:
        code, seen = terminal.end()
    assert code == 0
    assert max(len(re.sub("\x1b\\[[0-9;]*m", "", line)) for line in seen.splitlines()) <= 40


def test_messages_cannot_act_on_a_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07 \x9b31m tab\there \x7f"
    with Server(tmp_path / "store") as server:
        assert server.run("topic", "create", "t").code == 0
        assert server.run("produce", "t", stdin=evil + "\n").code == 0
        plain = server.run("consume", "t").out
        assert plain.strip("\n") == evil, "elsewhere it is given out as it is"
        for more in ((), ("--json",)):
            with Terminal("consume", "t", *more, HEADRACE_URL=server.flight_url) as terminal:
                code, seen = terminal.end()
            assert code == 0 and "owned" in seen
            assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", seen)
        assert server.stop() == 0


def test_a_terminal_asks_how_long_a_new_topic_keeps_its_messages(server: Server) -> None:
    answered = (("asked", "\n", 604_800), ("typed", "soon\n90m\n", 5_400), ("chosen", "none\n", None))
    for name, answers, seconds in answered:
        with Terminal("topic", "create", name, "--url", server.flight_url) as terminal:
            terminal.read_until(lambda seen: "Delete messages of" in seen)
            terminal.write(answers)
            code, seen = terminal.end()
        assert code == 0 and f"created topic {name}" in seen
        assert ("the answer is 'soon': it must be a whole number" in seen) == (name == "typed")
        settings = server.run("topic", "describe", name, "--json").json()["settings"]
        assert settings["retention_seconds"] == seconds
