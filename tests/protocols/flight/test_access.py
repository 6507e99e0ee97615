"""Tokens, rights and TLS over Flight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from headrace.broker import Broker
from headrace.client import connect
from headrace.core.errors import Forbidden, Unauthenticated, Untrusted
from headrace.protocols.flight.server import FlightServer


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.open("memory:") as opened:
        opened.create_topic("orders")
        opened.create_topic("secrets")
        yield opened


@pytest.fixture
def url(broker: Broker) -> Iterator[str]:
    server = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
    yield f"headrace://127.0.0.1:{server.port}"
    assert server.stop(60.0)


def test_rights_count_for_every_way_in(broker: Broker, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = broker.access.create("till", [("orders", ["publish"])])
    with connect(url, timeout_seconds=0.2) as nobody, pytest.raises(Unauthenticated):
        nobody.list_topics()
    with connect(url, "hr_wrong_token") as wrong, pytest.raises(Unauthenticated):
        wrong.list_topics()
    monkeypatch.setenv("HEADRACE_TOKEN", token)
    with connect(url) as till:
        assert till.list_topics() == ["orders"]
        with till.producer("orders", producer_id="p") as producer:
            assert producer.send(b"sale").result(60).offset == 0
        with pytest.raises(Forbidden) as forbidden:
            till.read("orders")
        assert (forbidden.value.caller, forbidden.value.right) == ("till", "read")
        with pytest.raises(Forbidden):
            till.producer("secrets")
        with pytest.raises(Forbidden):
            till.consumer("orders", group="g")
        with pytest.raises(Forbidden):
            till.delete_topic("orders")


def test_tls_with_a_certificate_that_is_trusted(broker: Broker, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    pair = (certificate.cert_chain_pems[0].bytes(), certificate.private_key_pem.bytes())
    server = FlightServer(broker, broker.access, "grpc+tls://localhost:0", tls_certificates=[pair])
    url = f"headrace+tls://localhost:{server.port}"
    with connect(url, root_certificates=authority.cert_pem.bytes()) as client:
        assert client.list_topics() == ["orders", "secrets"]
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with connect(url, root_certificates=tmp_path / "ca.pem") as client:
        assert client.list_topics() == ["orders", "secrets"]
    other = trustme.CA().cert_pem.bytes()
    with connect(url, root_certificates=other, timeout_seconds=0.1) as client, pytest.raises(Untrusted):
        client.list_topics()
    assert server.stop(60.0)
