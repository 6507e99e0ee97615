"""Starting and ending the servers of peers, on loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from bench.peers.work import Missing

START_SECONDS = 60.0
END_SECONDS = 30.0


_running: list[subprocess.Popen[bytes]] = []


class NotStarted(Exception):
    """A server ended or did not listen, with the end of its log."""


def find(program: str, package: str) -> str:
    """A program, or the package that has it."""
    path = shutil.which(program, path="/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin")
    if path is None:
        raise Missing(f"{program} is not installed (package {package})")
    return path


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def run(command: list[str], directory: Path) -> None:
    """Run something to its end that must succeed."""
    ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    if ended.returncode:
        raise NotStarted(f"{command[0]} ended with {ended.returncode}: {(ended.stdout + ended.stderr)[-500:]}")


def start(command: list[str], port: int, directory: Path) -> subprocess.Popen[bytes]:
    """Start a server and wait until it listens."""
    log = (directory / "log").open("wb")
    process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    _running.append(process)
    log.close()
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
            return process
        except OSError:
            time.sleep(0.05)
    if process.poll() is None:
        stop(process)
    raise NotStarted(f"{command[0]} did not start: {(directory / 'log').read_text()[-500:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server that was started here."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _running.remove(process)


def stop_all() -> None:
    """End what was started and not stopped: a peer that failed at its start leaves nothing behind."""
    while _running:
        stop(_running[-1])
