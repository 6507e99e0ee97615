"""`headrace serve --cursus`: its port, and certificates of clients on it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from headrace.core.errors import InvalidInput
from headrace.protocols.cursus.settings import CursusSettings
from tests.cli.processes import Server
from tests.cli.test_client_certificates import Authority, make_tokens, options
from tests.protocols.cursus.raw import RawCursus


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1", "127.0.0.1:9000"),
        ("127.0.0.1:9001", "127.0.0.1:9001"),
        ("[::1]", "[::1]:9000"),
        ("[::1]:0", "[::1]:0"),
        ("off", "off"),
    ],
)
def test_the_port_is_9000_unless_given(listen: str, address: str) -> None:
    assert CursusSettings(listen=listen).address == address


def test_an_address_for_clients_has_a_port() -> None:
    with pytest.raises(InvalidInput, match="advertised"):
        CursusSettings(advertised="broker")


def test_a_certificate_has_the_grants_of_the_token_of_its_name(tmp_path: Path) -> None:
    """The clients in Python and Java send no token with most requests: this is how they sign in."""
    make_tokens(tmp_path / "store")
    authority = Authority(tmp_path)
    pair = authority.issue("reader", "till-8.shop", common_name="admin")
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(*pair)
    with Server(tmp_path / "store", *options(authority), "--cursus", "127.0.0.1:0") as server:
        url = next(word for word in server.ready.split() if word.startswith("cursus+tls:"))
        with RawCursus(int(url.rpartition(":")[2]), tls=context) as client:
            assert client.ask("LIST") == "OK count=1 topics=orders"
            assert client.ask("DELETE topic=orders").startswith("ERROR: NOT_AUTHORIZED_FOR_TOPIC topic=orders")
        assert server.stop() == 0
