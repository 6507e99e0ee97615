"""Processes that are quick to start: one that has everything imported, and becomes a command by forking.

`python -m tests.cli.zygote SOCKET` answers each connection with a process of its own: it takes the arguments, the
environment and the three standard files of the caller, runs the command on them, and says its exit code.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from headrace.cli import main

_MESSAGE_BYTES: Final = 1 << 20


class Zygote:
    """The process to fork from."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        command = [sys.executable, "-W", "error", "-m", "tests.cli.zygote", self._path]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def start(self, arguments: list[str], environment: dict[str, str], files: list[int]) -> socket.socket:
        """Start a command on these files; what comes back is its exit code, once it has ended."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._path)
        message = json.dumps([arguments, environment, os.getcwd()]).encode()
        socket.send_fds(connection, [message], files)
        return connection

    def close(self) -> None:
        """End it."""
        assert self._process.stdout is not None
        self._process.kill()
        self._process.stdout.close()
        self._process.wait()


def exit_code(connection: socket.socket) -> int:
    """Wait for a command that was started."""
    with connection:
        answer = connection.recv(16)
    return int(answer)


def serve(path: str) -> None:
    """Become whatever is asked for."""
    # Imported by the commands themselves only when they are needed.
    import headrace.cli.running  # noqa: F401

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _become(connection)
        connection.close()


def _become(connection: socket.socket) -> None:
    message, files, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 3)
    arguments, environment, directory = json.loads(message)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code: Any = 70
    child = os.fork()
    if child:
        # This half stays connected, and says how the other one ended whatever it ended by.
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    try:
        code = main.run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
