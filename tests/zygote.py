"""Processes that are quick to start: one that has everything imported, and becomes a command by forking.

`python -m tests.zygote SOCKET` answers each connection with a process of its own: it takes the arguments, the
environment and the three standard files of the caller, runs the command on them, and says its exit code.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from headrace.cli import main
from tests.tuned import tuned

_MESSAGE_BYTES: Final = 1 << 20


class Zygote:
    """The process to fork from."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        command = [sys.executable, "-W", "error", "-m", "tests.zygote", self._path]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def start(
        self, arguments: list[str], environment: dict[str, str], files: list[int], directory: Path | None = None
    ) -> Forked:
        """Start a command on these files: input, output and errors; in a directory, or in that of this process."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._path)
        message = json.dumps([arguments, environment, str(directory or Path.cwd())]).encode()
        socket.send_fds(connection, [message], files)
        return Forked(connection)

    def close(self) -> None:
        """End it."""
        assert self._process.stdout is not None
        self._process.kill()
        self._process.stdout.close()
        self._process.wait()


class Forked:
    """A command that was started; like a process of the module subprocess as far as that is needed."""

    def __init__(self, connection: socket.socket) -> None:
        self._answers = connection.makefile("r")
        self._connection = connection
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            # It may have ended a moment ago, before its end was told.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def poll(self) -> int | None:
        """Its exit code, or none if it goes on."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait(1.0)
        return self.returncode

    def wait(self, timeout_seconds: float) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            self._connection.settimeout(timeout_seconds)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode


@cache
def zygote() -> Zygote:
    """One for all tests of this process."""
    directory = TemporaryDirectory(prefix="headrace-zygote-")
    made = Zygote(Path(directory.name) / "socket")
    atexit.register(directory.cleanup)
    atexit.register(made.close)
    return made


def serve(path: str) -> None:
    """Become whatever is asked for."""
    # Imported by the commands themselves only when they are needed.
    import headrace.cli.commands.checks.doctor
    import headrace.cli.messages.consumption
    import headrace.cli.messages.production
    import headrace.cli.server.process
    import headrace.load.run
    import headrace.protocols.kafka.server
    import headrace.storage.disk.doctor.doctor  # noqa: F401

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # What is here already is not looked at by the collectors of the processes to come, so its memory stays shared.
    gc.collect()
    gc.freeze()
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
        connection.sendall(b"%d\n" % child)
        ended = os.pidfd_open(child)
        watched: list[Any] = [ended, connection]
        if connection in select.select(watched, [], [])[0]:
            # Nothing is ever sent: the test process is dead, and its command must not outlive it.
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with suppress(OSError):
            connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    connection.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    try:
        code = main.run(tuned(arguments))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
