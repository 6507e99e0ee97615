"""`headrace table` against a running server: topics that are not archived are tables too."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.processes import Server


def test_sql_over_a_topic_with_the_schema_that_was_inferred(server: Server, topic: str, tmp_path: Path) -> None:
    lines = "".join(json.dumps({"id": number, "country": "FR"}) + "\n" for number in range(5))
    server.run("produce", topic, stdin=lines)
    inferred = server.run("table", "infer", topic)
    schema = tmp_path / "schema.json"
    schema.write_text(inferred.out)
    assert inferred.json()["required"] == ["id", "country"]
    query = f"SELECT country, sum(id)::INT AS total, min(timestamp) < now() AS past FROM {topic} GROUP BY ALL"
    asked = ("table", "sql", query, "--schema", str(schema))
    assert server.run(*asked, "--json").json() == [{"country": "FR", "total": 10, "past": True}]
    assert "FR" in server.run(*asked).out
    assert server.run("table", "sql", f"SELECT value FROM {topic} LIMIT 1", "--json").json()[0]["value"].startswith("{")


def test_maps_are_objects(server: Server) -> None:
    query = "SELECT MAP {'a': {'b': MAP {1: 0.50}}} AS m, MAP {[1]: 2} AS l"
    assert server.run("table", "sql", query, "--json").json() == [
        {"m": {"a": {"b": {"1": "0.50"}}}, "l": [[[1], 2]]},
    ]


def test_refusals(server: Server, topic: str, tmp_path: Path) -> None:
    for code, arguments, told in (
        (1, ("sql", "SELEC 1"), "Parser Error"),
        (1, ("sql", "SELECT * FROM nowhere"), "topic 'nowhere' does not exist"),
        (1, ("sql", f"COPY (SELECT 1) TO '{tmp_path}/made.csv'"), "it must be one SELECT, not COPY"),
        (1, ("sql", "FROM read_text('/etc/passwd')"), "it may read topics only"),
        (2, ("sql", "SELECT 1", "--schema", str(tmp_path / "none")), "No such file"),
        (1, ("infer", topic), "none of the messages"),
        (2, ("iceberg", topic), "--catalog NAME"),
        (1, ("iceberg", topic, "--catalog-uri", f"sqlite:///{tmp_path}/c.db"), "archive.url"),
    ):
        assert told in server.run("table", *arguments).refused(code)
    assert not (tmp_path / "made.csv").exists()


def test_the_schema_of_a_topic(server: Server, topic: str, tmp_path: Path) -> None:
    server.run("produce", topic, stdin='{"id": 1, "country": "FR"}\n{"id": 2}\nno JSON\n')
    inferred = server.run("table", "infer", topic, "--apply").json()
    rows = server.run("table", "sql", f'SELECT id, country, value_error FROM "{topic}" ORDER BY id', "--json").json()
    assert [(row["id"], row["country"]) for row in rows] == [(1, "FR"), (2, None), (None, None)]
    assert "not JSON" in rows[2]["value_error"]
    file = tmp_path / "grown.json"
    inferred["properties"] |= {"amount": {"type": "number"}}
    file.write_text(json.dumps(inferred))
    changed = server.run("topic", "alter", topic, "--value-schema", str(file), "--json").json()
    assert json.loads(changed["settings"]["value_schema"]) == inferred
    inferred["properties"]["id"] = {"type": "string"}
    refused = server.run("topic", "alter", topic, "--value-schema", "-", stdin=json.dumps(inferred)).refused(1)
    assert "value_schema.id is 'string': its type was integer and cannot change" in refused
    assert "No such file" in server.run("topic", "alter", topic, "--value-schema", str(tmp_path / "none")).refused(2)
    gone = server.run("topic", "alter", topic, "--value-schema", "none", "--json").json()
    assert gone["settings"]["value_schema"] is None
