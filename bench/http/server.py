"""The server as `headrace serve` has it, with one more route that does nothing: `server DIRECTORY`; prints its port."""

from __future__ import annotations

import sys
from pathlib import Path

from litestar import post

from headrace.broker import Broker
from headrace.broker.access import Access
from headrace.edge.draining import Draining
from headrace.protocols.http import server
from headrace.protocols.http.app import make_litestar, with_edges
from headrace.protocols.http.settings import HttpSettings
from headrace.storage.open import open_store


@post("/empty", opt={"operation": "health"}, status_code=200)
async def empty() -> None:
    """Do nothing."""


def main() -> None:
    """Serve until told to stop."""
    settings, draining = HttpSettings(), Draining()
    listeners = server.bind("127.0.0.1", 0)
    store = open_store(f"file:{Path(sys.argv[1])}/store")
    with Broker(store) as broker:
        broker.start()
        access = Access(store.catalog)
        app = make_litestar(broker, access, settings, draining)
        app.register(empty)
        whole = with_edges(app, access, settings)

        def say_port() -> None:
            print(server.port_of(listeners), flush=True)

        server.serve(whole, listeners, settings, draining, say_port)


if __name__ == "__main__":
    main()
