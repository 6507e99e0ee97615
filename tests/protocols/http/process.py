"""A server process of its own: `python -m tests.protocols.http.process URL PORT` prints its port once it is ready."""

from __future__ import annotations

import sys

from headrace.broker import Broker
from headrace.edge.draining import Draining
from headrace.protocols.http.app import make_app
from headrace.protocols.http.server import bind, port_of, serve
from headrace.protocols.http.settings import HttpSettings


def main() -> None:
    """Open the store and serve it until told to stop."""
    listeners, settings, draining = bind("127.0.0.1", int(sys.argv[2])), HttpSettings(), Draining()
    with Broker.open(sys.argv[1]) as broker:
        app = make_app(broker, broker.access, settings, draining)
        serve(app, listeners, settings, draining, on_ready=lambda: print(port_of(listeners), flush=True))


if __name__ == "__main__":
    main()
