"""Tokens, TLS and several servers, as options of the source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import trustme

from headrace.broker import Broker
from headrace.core.errors import Forbidden, Unauthenticated, Untrusted
from headrace.protocols.flight.server import FlightServer
from headrace.spark.options import read_options, write_options
from headrace.spark.reader.batch_reader import BatchReader, row_reader
from headrace.spark.write.writers import BatchWriter


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.open("memory:") as opened:
        opened.create_topic("orders")
        yield opened


def write(options: dict[str, str], value: bytes) -> None:
    writer = BatchWriter(write_options({"topic": "orders", **options}, is_stream=False))
    writer.commit([writer.write(iter([pa.record_batch({"value": [value]})]))])


def read(options: dict[str, str]) -> list[bytes]:
    parsed = read_options({"topic": "orders", "columns": "value", **options})
    reader = BatchReader(parsed, row_reader(parsed)[0])
    # Nobody offers filters here.
    assert type(reader) is BatchReader
    return [
        value
        for split in reader.partitions()
        for batch in reader.read(split)
        for value in batch.column("value").to_pylist()
    ]


def test_tokens_and_tls_reach_the_tasks(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    pair = (certificate.cert_chain_pems[0].bytes(), certificate.private_key_pem.bytes())
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = FlightServer(broker, broker.access, "grpc+tls://localhost:0", tls_certificates=[pair])
    site = {"url": f"headrace+tls://localhost:{server.port}", "rootCertificates": str(tmp_path / "ca.pem")}
    _, publishing = broker.access.create("till", [("orders", ["publish"])])
    _, reading = broker.access.create("office", [("orders", ["read"])])
    write({**site, "token": publishing}, b"sale")
    with pytest.raises(Forbidden):
        read({**site, "token": publishing})
    with pytest.raises(Forbidden):
        write({**site, "token": reading}, b"no")
    with pytest.raises(Unauthenticated):
        read(site)
    monkeypatch.setenv("HEADRACE_TOKEN", reading)
    assert read(site) == [b"sale"]
    # A retry does not help, so it is told at once and not after the two minutes that a server is waited for.
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    with pytest.raises(Untrusted, match="trusted"):
        read({**site, "rootCertificates": str(tmp_path / "other.pem")})
    with pytest.raises(Untrusted, match="another host"):
        read({**site, "url": f"headrace+tls://127.0.0.1:{server.port}"})
    assert server.stop(60.0)


def test_a_token_for_one_sink_only(broker: Broker) -> None:
    server = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
    _, token = broker.access.create("etl", [("orders", ["publish"])], producers=["etl-*"])
    site = {"url": f"headrace://127.0.0.1:{server.port}", "token": token}
    write({**site, "sinkId": "etl-orders", "batchId": "0"}, b"sale")
    with pytest.raises(Forbidden):
        write({**site, "sinkId": "other", "batchId": "0"}, b"no")
    assert broker.offsets("orders") == {0: (0, 1)}
    assert server.stop(60.0)


def test_the_first_server_that_answers_is_taken(broker: Broker) -> None:
    server = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
    # Nobody listens at the first.
    options = {"url": f"headrace://127.0.0.1:1,headrace://127.0.0.1:{server.port}"}
    write(options, b"a")
    assert read(options) == [b"a"]
    with pytest.raises(Untrusted, match="does not use TLS"):
        read({"url": f"headrace+tls://127.0.0.1:{server.port}"})
    assert server.stop(60.0)
