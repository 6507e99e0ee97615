"""HTTPS with certificates that are made here."""

from __future__ import annotations

import signal
import ssl
import time
from pathlib import Path

import httpx
import pytest
import trustme

import headrace as headrace_client
from headrace.core.errors import Unreachable, Untrusted
from tests.cli.processes import PATIENCE_SECONDS, Server, eventually, headrace


class Certificates:
    """An authority and what it signed, as files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._authority = trustme.CA()
        self.authority = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.authority))
        self.certificate, self.key = directory / "server.pem", directory / "server.key"
        self.issue("127.0.0.1")

    def issue(self, *names: str) -> None:
        made = self._authority.issue_cert(*names)
        self.key.write_bytes(made.private_key_pem.bytes())
        self.certificate.write_bytes(b"".join(part.bytes() for part in made.cert_chain_pems))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


def options(certificates: Certificates) -> tuple[str, ...]:
    return "--tls-certificate", str(certificates.certificate), "--tls-key", str(certificates.key)


def is_trusted(url: str, trusted: ssl.SSLContext) -> bool:
    try:
        return httpx.get(f"{url}/health/live", verify=trusted, timeout=PATIENCE_SECONDS).status_code == 200
    except httpx.ConnectError:
        return False


def test_commands_over_https(tmp_path: Path, certificates: Certificates) -> None:
    with Server(tmp_path / "store", *options(certificates)) as server:
        assert server.url.startswith("https://")
        authority = str(certificates.authority)
        assert server.run("topic", "create", "orders", HEADRACE_CA=authority).code == 0
        assert server.run("topic", "list", "--ca", authority, "--json").json()[0]["name"] == "orders"
        assert "certificate" in server.run("topic", "list").refused(3)
        assert "speaks TLS" in server.run("topic", "list", "--url", server.url.replace("https", "http")).refused(3)
        assert "cannot use --ca" in server.run("topic", "list", "--ca", str(certificates.key)).refused(2)
        assert server.stop() == 0


def test_a_renewed_certificate_is_taken_without_a_stop(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    trusted = ssl.create_default_context(cafile=certificates.authority)
    with Server(tmp_path / "store", *options(certificates)) as server:
        renamed = server.url.replace("127.0.0.1", "localhost")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{renamed}/health/live", verify=trusted, timeout=PATIENCE_SECONDS)
        certificates.key.write_text("nothing good")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: "the old one stays in use" in server.err)
        assert server.get("/health/live", verify=trusted).status_code == 200
        certificates.issue("localhost")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: is_trusted(renamed, trusted))
        assert server.stop() == 0


def test_flight_takes_a_renewed_certificate_while_streams_continue(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)

    def connected(host: str) -> headrace_client.Client:
        url = flight_url.replace("127.0.0.1", host)
        return headrace_client.connect(url, root_certificates=certificates.authority, timeout_seconds=0.5)

    def is_reached(host: str) -> bool:
        with connected(host) as client:
            try:
                return client.list_topics() == ["orders"]
            except (Unreachable, Untrusted):
                return False

    with Server(tmp_path / "store", *options(certificates)) as server:
        flight_url = server.ready.split(" and ")[1].split()[0]
        with connected("127.0.0.1") as client:
            client.create_topic("orders", partitions=1)
            with (
                client.producer("orders", producer_id="p") as producer,
                client.follow("orders", start="earliest") as following,
            ):
                arriving = (row for batch in following for row in batch["value"].to_pylist())
                producer.send(b"one").result(PATIENCE_SECONDS)
                assert next(arriving) == b"one"
                assert not is_reached("localhost")
                certificates.key.write_text("nothing good")
                server.process.send_signal(signal.SIGHUP)
                eventually(lambda: "the old one stays in use" in server.err)
                assert is_reached("127.0.0.1")
                for renewals in (1, 2):
                    certificates.issue("localhost", "127.0.0.1")
                    server.process.send_signal(signal.SIGHUP)
                    eventually(lambda: server.err.count("Flight uses the renewed") == renewals)  # noqa: B023
                    assert is_reached("localhost")
                # Both began before and go on.
                producer.send(b"two").result(PATIENCE_SECONDS)
                assert next(arriving) == b"two"
        assert server.stop() == 0


def test_sighup_without_tls_changes_nothing(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert server.get("/health/live").status_code == 200
        assert server.stop() == 0


def test_files_that_are_refused(tmp_path: Path, certificates: Certificates) -> None:
    (tmp_path / "text").write_text("no certificate")
    encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGb\n-----END ENCRYPTED PRIVATE KEY-----\n"
    (tmp_path / "encrypted").write_text(encrypted)
    other = Certificates(tmp_path)
    pairs = [
        (tmp_path / "missing", certificates.key),
        (tmp_path / "text", certificates.key),
        (certificates.certificate, tmp_path / "text"),
        (certificates.certificate, tmp_path / "encrypted"),
        (certificates.certificate, other.key),
    ]
    for certificate, key in pairs:
        files = ("--tls-certificate", str(certificate), "--tls-key", str(key))
        line = headrace("serve", "--store", f"file:{tmp_path}/store", "--http", "127.0.0.1:0", *files).refused(2)
        assert line.startswith(f"cannot use TLS with {certificate} and {key}: "), line
