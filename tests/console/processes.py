"""A real `headrace console` in a process of its own, beside a real server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

from tests.server_process import PATIENCE_SECONDS, ROOT


class ConsoleProcess:
    """A console of a server; `url` is where browsers find it."""

    def __init__(self, server_url: str, *arguments: str, token: str = "") -> None:
        command = [sys.executable, "-m", "headrace", "console", "--url", server_url, "--http", "127.0.0.1:0"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        # So that a test need not wait for a sample.
        command += ["--poll-seconds", "0.5", *arguments]
        variables = kept | ({"HEADRACE_TOKEN": token} if token else {})
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=variables)
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        found = re.search(r"ready on (\S+) for", line)
        assert found is not None, f"the console ended with {self._process.wait()}"
        self.url = found.group(1)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End it cleanly."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.stdout is not None
        code = self._process.wait(PATIENCE_SECONDS)
        assert code in (0, -signal.SIGTERM), f"the console ended with {code}"
        self._process.stdout.close()
