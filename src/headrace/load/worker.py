"""A process of a load: `python -m headrace.load.worker`.

Its input is a job as a line of JSON, later `go` and `stop`; the end of the input ends it at once, so that none is left
behind when its parent process has ended. Its output is lines of JSON. The input is read by a thread and never buffered.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, Final

import msgspec

from headrace.client import Client, connect
from headrace.core.errors import HeadraceError
from headrace.load.consumer import Consuming
from headrace.load.load import Job
from headrace.load.producer import Producing

_READ_BYTES: Final = 1 << 16
_STDIN: Final = 0


class Orders:
    """What the input said so far."""

    def __init__(self) -> None:
        self.job: bytes = b""
        self.has_job = threading.Event()
        self.go = threading.Event()
        self.stop = threading.Event()

    def listen(self) -> None:
        """The top of a thread: read until the input ends, and with it the process."""
        rest = b""
        while chunk := os.read(_STDIN, _READ_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(line)
        os._exit(0)

    def _take(self, line: bytes) -> None:
        if line == b"go":
            self.go.set()
        elif line == b"stop":
            self.stop.set()
        else:
            self.job = line
            self.has_job.set()


def send(**message: Any) -> None:
    """Write a line to the parent process."""
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Do one job."""
    # Ctrl-C is for the one who started this, who ends all.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = Orders()
    threading.Thread(target=orders.listen, name="headrace-orders", daemon=True).start()
    orders.has_job.wait()
    job = msgspec.json.decode(orders.job, type=Job)
    try:
        with connect(job.url, job.token, root_certificates=job.root_certificates) as client:
            _produce(client, job, orders) if job.producer is not None else _consume(client, job, orders)
    except HeadraceError as error:
        send(kind="failed", reason=str(error))
        sys.exit(1)


def _produce(client: Client, job: Job, orders: Orders) -> None:
    producing = Producing(client, job)
    send(kind="ready")
    orders.go.wait()
    producing.run(lambda sent: send(kind="progress", sent=sent))
    counts = producing.acknowledgements.counts()
    send(kind="done", began_ns=producing.began_ns, ended_ns=producing.ended_ns, latencies=counts)


def _consume(client: Client, job: Job, orders: Orders) -> None:
    consuming = Consuming(client, job)
    for progress in consuming.run(orders.stop.is_set):
        send(**progress)
    send(kind="done", **consuming.summary())


if __name__ == "__main__":
    main()
