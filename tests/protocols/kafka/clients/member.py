"""A member of a group in a process of its own, so that it can be killed, and what its parent knows of it.

The process writes a line of JSON when its partitions changed and before it commits messages, so what a killed member
committed is known. It closes itself when it gets SIGTERM.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from types import FrameType

from tests.protocols.kafka.clients.adapters import CLIENTS, Target


class MemberProcess:
    """A member of a group that reads a topic with one of the clients until it is closed or killed."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        self.values: list[str] = []
        self.partitions: list[int] = []
        command = [sys.executable, "-m", __name__, client, bootstrap, group, topic, strategy]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                said = json.loads(line)
                self.values += said.get("values", [])
                self.partitions = said.get("partitions", self.partitions)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def close(self) -> int:
        """Let the member leave its group; its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> int:
        self._process.send_signal(by)
        code = self._process.wait()
        self._thread.join()
        return code


def main(client: str, bootstrap: str, group: str, topic: str, strategy: str) -> None:
    is_over = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        is_over.set()

    signal.signal(signal.SIGTERM, end)
    member = CLIENTS[client].member(Target(bootstrap), group, topic, strategy)
    known: list[int] = []
    while not is_over.is_set():
        values = member.poll()
        if (now := sorted(member.partitions())) != known:
            known = now
            print(json.dumps({"partitions": known}), flush=True)
        if values:
            print(json.dumps({"values": [value.decode() for value in values]}), flush=True)
            member.commit()
    member.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
