"""A Spark driver that can be killed, with its Java and its executors: `tests.spark.driver` in a process of its own."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.spark.driver import CLUSTER, ROOT


class Driver:
    """A driver and its executors; they live and die together."""

    def __init__(self, master: str = CLUSTER) -> None:
        self._directory = tempfile.mkdtemp(prefix="headrace-driver-")
        self._ended: dict[str, str | None] = {}
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self._errors = open(Path(self._directory) / "errors", "w+b")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", master, self._directory],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        assert self._answer() == {"ready": True}

    def begin(self, **query: str) -> None:
        """Start a query."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(query) + "\n")
        self._process.stdin.flush()

    def finish(self, sink: str) -> None:
        """Wait for the end of the query into a sink, which must be a good one."""
        while sink not in self._ended:
            self._note(self._answer())
        assert self._ended.pop(sink) is None

    def check_running(self) -> None:
        """Raise if a query that runs for ever has ended."""
        while not self._answers.empty():
            self._note(self._answer())
        assert not self._ended, f"these queries ended: {self._ended}"

    def kill(self) -> None:
        """Kill the driver with its Java and all executors, as a power cut does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        self._listener.join(60)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            stream.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _listen(self) -> None:
        """The top of a thread: take answers in."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _note(self, answer: Any) -> None:
        self._ended[answer["sink"]] = answer["error"]

    def _answer(self) -> Any:
        line = self._answers.get()
        if line is None:
            self._errors.seek(0)
            raise AssertionError(self._errors.read().decode()[-4000:])
        return json.loads(line)
