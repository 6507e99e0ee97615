"""A server that takes connections and answers nothing: pages say so, and the console answers on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx

from tests.console.conftest import Site
from tests.server_process import PATIENCE_SECONDS, ServerProcess

PATHS = ("/topics", "/topic?name=orders", "/access", "/server")


@contextmanager
def frozen(server: ServerProcess) -> Iterator[None]:
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


def test_pages_say_that_the_server_does_not_answer(site: Site) -> None:
    site.client.create_topic("orders")
    with (
        httpx.Client(base_url=site.console.url, trust_env=False, timeout=PATIENCE_SECONDS) as visitor,
        httpx.Client(base_url=site.console.url, trust_env=False, timeout=PATIENCE_SECONDS) as stranger,
        ThreadPoolExecutor(20) as threads,
    ):
        visitor.get("/")
        with frozen(site.server):
            # More than a session has threads for calls.
            asked = [threads.submit(visitor.get, path) for path in PATHS * 2]
            fresh = threads.submit(stranger.get, "/")
            assert visitor.get("/sign-in").status_code == 200
            for page in asked:
                answer = page.result()
                assert answer.status_code == 200 and "The server does not answer" in answer.text, answer.url
            assert fresh.result().status_code == 503
        assert visitor.get("/topics").status_code == 200
