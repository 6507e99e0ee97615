"""`headrace client list`: one row for each process, with what it reads and writes, and nobody who has left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace import connect
from tests.cli.processes import Server


def test_a_process_is_one_row_and_commands_say_which_they_are(tmp_path: Path) -> None:
    with Server(tmp_path / "store", "--native", "127.0.0.1:0") as server:
        server.post("topics", {"name": "orders"})
        assert server.run("produce", "orders", stdin="a\n").code == 0
        with (
            connect(server.flight_url, client_id="billing") as client,
            client.producer("orders") as producer,
            client.consumer("orders", group="books") as consumer,
        ):
            producer.send(b"b").result()
            assert consumer.poll(timeout=60.0).num_rows
            found: list[dict[str, Any]] = server.run("client", "list", "--json").json()
            of_billing = {each["protocol"] for each in found if each["client_id"] == "billing"}
            assert of_billing == {"flight", "native"}
            assert {"headrace produce", "headrace client list"} <= {each["client_id"] for each in found}
            rows = [line.split() for line in server.run("client", "list").lines() if "billing" in line]
            (row,) = rows
            assert {"flight,", "native", "orders", "books"} <= set(row)
            only = server.run("client", "list", "--topic", "orders", "--all").out
            assert "billing" in only and "headrace client list" not in only
