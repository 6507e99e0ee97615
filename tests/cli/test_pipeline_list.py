"""`headrace pipeline list` against a running server."""

from __future__ import annotations

import httpx

from tests.cli.processes import Server


def test_listing(server: Server, topic: str) -> None:
    assert "headrace pipeline run FILE" in server.run("pipeline", "list").out
    report = {
        "run_id": "1",
        "state": "failed",
        "started_us": 1,
        "host": "etl-3",
        "messages": 1234,
        "error": "disk full",
    }
    path = f"{server.url}/v1/topics/{topic}/pipelines/land%20it"
    assert httpx.put(path, json=report, timeout=60).status_code == 204
    (found,) = [each for each in server.run("pipeline", "list", "--json").json() if each["topic"] == topic]
    assert (found["name"], found["state"], found["report"]["messages"]) == ("land it", "failed", 1234)
    (line,) = [line for line in server.run("pipeline", "list").lines() if topic in line]
    for shown in ("land it", "failed", "1,234", "etl-3", "disk full"):
        assert shown in line
