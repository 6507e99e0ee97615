"""Certificates on the Kafka port of `headrace serve`: those of clients, and one of the server that is renewed."""

from __future__ import annotations

import signal
import ssl
from pathlib import Path

import pytest

from tests.cli.processes import Server, eventually
from tests.cli.test_client_certificates import Authority, make_tokens, options
from tests.protocols.kafka.raw import RawClient

METADATA = 3
KAFKA = ("--kafka", "127.0.0.1:0")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def connected(
    server: Server, authority: Authority, pair: tuple[Path, Path] | None, host: str = "127.0.0.1"
) -> RawClient:
    context = ssl.create_default_context(cafile=authority.file)
    if pair is not None:
        context.load_cert_chain(*pair)
    url = next(word for word in server.ready.split() if word.startswith("kafka+tls:"))
    return RawClient(int(url.rpartition(":")[2]), context, host)


def topics(client: RawClient) -> list[str]:
    """The topics that the caller may see."""
    return [topic.name for topic in client.call(METADATA, 12, topics=None).topics]


def is_refused(server: Server, authority: Authority, pair: tuple[Path, Path] | None) -> bool:
    """Whether a request gets no answer; with TLS 1.3 a client learns after its handshake that it failed."""
    try:
        with connected(server, authority, pair) as client:
            topics(client)
    except (ssl.SSLError, EOFError, ConnectionError):
        return True
    return False


def test_a_certificate_has_the_grants_of_the_token_of_its_name(tmp_path: Path, authority: Authority) -> None:
    make_tokens(tmp_path / "store")
    reader = authority.issue("reader", "till-8.shop", common_name="admin")
    nobody = authority.issue("nobody", "admin.shop", common_name="admin")
    forged = Authority(tmp_path).issue("forged", common_name="admin")
    with Server(tmp_path / "store", *options(authority), *KAFKA) as server:
        with connected(server, authority, reader) as client:
            assert topics(client) == ["orders"]
        # No token of that name, no certificate, and one of an unknown authority.
        for pair in (nobody, None, forged):
            assert is_refused(server, authority, pair)
        assert server.stop() == 0


def test_a_renewed_certificate_is_taken_while_connections_continue(tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.issue("server", "127.0.0.1")
    files = "--tls-certificate", str(certificate), "--tls-key", str(key)

    def is_reached(host: str) -> bool:
        try:
            with connected(server, authority, None, host) as client:
                return topics(client) == []
        except ssl.SSLCertVerificationError:
            return False

    with Server(tmp_path / "store", *files, *KAFKA) as server, connected(server, authority, None) as client:
        assert is_reached("127.0.0.1") and not is_reached("localhost")
        authority.issue("server", "localhost")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: is_reached("localhost"))
        assert topics(client) == []
        assert server.stop() == 0
