"""A temporary server: `headrace serve` as a process, on loopback and free ports."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from headrace.load.interrupts import undisturbed
from headrace.load.load import LoadFailed

_END_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that runs: where it is, and its process id."""

    url: str
    http_url: str
    pid: int


@contextmanager
def serving(store: str, options: Sequence[str] = ()) -> Iterator[ServerProcess]:
    """A server on a store, ended with the block. It logs warnings and worse, on stderr."""
    command = [sys.executable, "-m", "headrace", "serve", "--store", store, "--log-level", "warning"]
    command += ["--http", "127.0.0.1:0", "--flight", "127.0.0.1:0", *options]
    process: subprocess.Popen[str] | None = None
    try:
        with undisturbed():
            # In its own session, so that Ctrl-C reaches only the parent.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
        assert process.stdout is not None
        yield _ready(process.stdout.readline(), process.pid)
    finally:
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


@contextmanager
def temporary_store(directory: Path | None, options: str = "") -> Iterator[str]:
    """The URL of an empty store below a directory, else below the system's one for such things; removed at the end."""
    with TemporaryDirectory(prefix="headrace-bench-", dir=directory) as made:
        yield f"file:{Path(made).absolute()}/store{options}"


def _ready(line: str, pid: int) -> ServerProcess:
    url, http_url = re.search(r"headrace://\S+", line), re.search(r"http://\S+", line)
    if url is None or http_url is None:
        raise LoadFailed(f"the server of the load did not start: it printed {line!r}")
    return ServerProcess(url.group(), http_url.group(), pid)
