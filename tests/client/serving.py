"""A Flight server in a process of its own: `python -m tests.client.serving STORE PORT`; prints its port when ready."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

from headrace.broker import Broker
from headrace.protocols.flight.server import FlightServer
from tests.ports import ReservedPort

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0


class ServerProcess:
    """A server that can be killed and started again at the same port, which is its own, on the same store."""

    def __init__(self, store: str) -> None:
        self.store = store
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        self.start()

    @property
    def url(self) -> str:
        return f"headrace://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.client.serving", self.store, str(self.port)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert int(self.process.stdout.readline()) == self.port

    def kill(self) -> None:
        self.process.kill()
        self._reap()

    def stop(self) -> None:
        self.process.terminate()
        self._reap()
        self._reserved.close()

    def _reap(self) -> None:
        self.process.wait(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


def serve(store: str, port: int) -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: over.set())
    with Broker.open(store) as broker:
        server = FlightServer(broker, broker.access, f"grpc+tcp://127.0.0.1:{port}")
        print(server.port, flush=True)
        over.wait()
        server.stop()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
