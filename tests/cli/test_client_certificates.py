"""Client certificates on the ports of `headrace serve`: who comes in by one, and who does not."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
import trustme

import headrace
from headrace.core.errors import Forbidden, InvalidInput, Unauthenticated, Unreachable
from tests.cli.processes import PATIENCE_SECONDS, Server, eventually
from tests.cli.processes import headrace as command


class Authority:
    """Who signs servers and clients; every certificate is a pair of files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._authority = trustme.CA()
        self.file = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def issue(self, file: str, *names: str, common_name: str | None = None) -> tuple[Path, Path]:
        made = self._authority.issue_cert(*names, common_name=common_name)
        certificate, key = self.directory / f"{file}.pem", self.directory / f"{file}.key"
        certificate.write_bytes(b"".join(part.bytes() for part in made.cert_chain_pems))
        key.write_bytes(made.private_key_pem.bytes())
        return certificate, key


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that the server does not know."""
    return Authority(tmp_path_factory.mktemp("stranger"))


def options(authority: Authority) -> tuple[str, ...]:
    certificate, key = authority.issue("server", "127.0.0.1")
    files = "--tls-certificate", str(certificate), "--tls-key", str(key)
    return *files, "--tls-client-ca", str(authority.file), "--require-tokens", "--native", "127.0.0.1:0"


def make_tokens(store: Path) -> dict[str, str]:
    """A store with a topic and some tokens: their texts by name."""
    with Server(store) as server:
        assert server.run("topic", "create", "orders").code == 0
        assert server.stop() == 0
    made = {}
    for name, right in (("admin", ()), ("till-7", ("--publish", "orders")), ("till-8.shop", ("--read", "orders"))):
        line = command("token", "create", name, *right, "--yes", "--store", f"file:{store}", "--json")
        made[name] = line.json()["token"]
    return made


def flight_url(server: Server) -> str:
    """Where Flight listens, as the server said."""
    return server.ready.split(" and ")[1].split()[0]


def http(server: Server, authority: Authority, pair: tuple[Path, Path] | None) -> httpx.Client:
    context = ssl.create_default_context(cafile=authority.file)
    if pair is not None:
        context.load_cert_chain(*pair)
    return httpx.Client(base_url=server.url, verify=context, timeout=PATIENCE_SECONDS)


def flight(server: Server, authority: Authority, pair: tuple[Path, Path] | None, token: str = "") -> headrace.Client:
    certificate, key = pair or (None, None)
    return headrace.connect(
        flight_url(server),
        token,
        root_certificates=authority.file,
        client_certificate=certificate,
        client_key=key,
        timeout_seconds=1.0,
    )


def test_a_certificate_has_the_grants_of_the_token_of_its_name(tmp_path: Path, authority: Authority) -> None:
    tokens = make_tokens(tmp_path / "store")
    publisher = authority.issue("publisher", common_name="till-7")
    reader = authority.issue("reader", "till-8.shop", "admin", common_name="admin")
    nobody = authority.issue("nobody", "admin.shop", common_name="admin")
    with Server(tmp_path / "store", *options(authority)) as server:
        # The common name, where there is no alternative name.
        with http(server, authority, publisher) as client:
            assert client.get("/v1/whoami").json()["name"] == "till-7"
            body = {"messages": [{"value": "a"}]}
            assert client.post("/v1/topics/orders/messages", json=body).status_code == 200
            assert client.get("/v1/topics/orders").status_code == 403
        with flight(server, authority, publisher) as remote:
            with remote.producer("orders") as producer:
                producer.send(b"b").result(PATIENCE_SECONDS)
            assert "native" in {each.protocol for each in remote.list_clients()}
            with pytest.raises(Forbidden):
                remote.offsets("orders")
        # The first alternative name, where there are several.
        with http(server, authority, reader) as client:
            assert client.get("/v1/whoami").json()["name"] == "till-8.shop"
        with flight(server, authority, reader) as remote:
            assert remote.whoami().name == "till-8.shop"
            assert sum(end for _, end in remote.offsets("orders").values()) == 2
            with pytest.raises(Forbidden):
                remote.producer("orders")
        # No token of that name: the common name does not count then.
        with http(server, authority, nobody) as client:
            answer = client.get("/v1/topics")
            assert answer.status_code == 401 and "'admin.shop'" in answer.json()["detail"]
        with flight(server, authority, nobody) as remote, pytest.raises(Unauthenticated, match=r"admin\.shop"):
            remote.list_topics()
        # A token that is sent counts; the certificate only opens the connection.
        with http(server, authority, publisher) as client:
            headers = {"Authorization": f"Bearer {tokens['admin']}"}
            assert client.get("/v1/whoami", headers=headers).json()["name"] == "admin"
            assert client.get("/v1/whoami", headers={"Authorization": "Bearer hr_no_no"}).status_code == 401
        with flight(server, authority, publisher, tokens["admin"]) as remote:
            assert remote.whoami().name == "admin"
        # Commands take it from the environment.
        environment = {"HEADRACE_CLIENT_CERTIFICATE": str(publisher[0]), "HEADRACE_CLIENT_KEY": str(publisher[1])}
        said = server.run("whoami", "--json", "--ca", str(authority.file), **environment)
        assert said.json()["name"] == "till-7"
        lines = ("produce", "orders", "--ca", str(authority.file), "--url", flight_url(server))
        assert server.run(*lines, stdin="d\n", **environment).code == 0
        broken = environment | {"HEADRACE_CLIENT_KEY": str(authority.file)}
        assert "cannot use HEADRACE_CLIENT_CERTIFICATE" in server.run("whoami", **broken).refused(2)
        assert server.stop() == 0


def test_who_has_no_certificate_is_refused_at_the_handshake(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    tokens = make_tokens(tmp_path / "store")
    forged = stranger.issue("forged", common_name="admin")
    with Server(tmp_path / "store", *options(authority)) as server:
        for pair in (None, forged):
            with http(server, authority, pair) as client, pytest.raises(httpx.TransportError):
                client.get("/health/live", headers={"Authorization": f"Bearer {tokens['admin']}"})
            with flight(server, authority, pair, tokens["admin"]) as remote, pytest.raises(Unreachable):
                remote.list_topics()
        assert server.stop() == 0


def test_where_certificates_are_optional_tokens_do(tmp_path: Path, authority: Authority, stranger: Authority) -> None:
    tokens = make_tokens(tmp_path / "store")
    pair = authority.issue("publisher", common_name="till-7")
    forged = stranger.issue("forged", common_name="admin")
    optional = ("--set", "tls_client_certificates=optional")
    with Server(tmp_path / "store", *options(authority), *optional) as server:
        with http(server, authority, None) as client:
            assert client.get("/v1/topics").status_code == 401
            headers = {"Authorization": f"Bearer {tokens['admin']}"}
            assert client.get("/v1/topics", headers=headers).json() == {"topics": ["orders"]}
        with http(server, authority, pair) as client:
            assert client.get("/v1/whoami").json()["name"] == "till-7"
        with http(server, authority, forged) as client, pytest.raises(httpx.TransportError):
            client.get("/health/live")
        # Flight does not ask for certificates that are optional, and takes none for granted.
        for given in (None, pair, forged):
            with flight(server, authority, given) as remote, pytest.raises(Unauthenticated):
                remote.list_topics()
            with flight(server, authority, given, tokens["admin"]) as remote:
                assert remote.list_topics() == ["orders"]
        assert server.stop() == 0


def test_a_token_that_is_revoked_lets_no_certificate_in(tmp_path: Path, authority: Authority) -> None:
    store = tmp_path / "store"
    tokens = make_tokens(store)
    pair = authority.issue("publisher", common_name="till-7")
    with Server(store, *options(authority)) as server:
        with http(server, authority, pair) as client, flight(server, authority, pair) as remote:
            assert client.get("/v1/whoami").status_code == 200
            assert remote.list_topics() == ["orders"]
            token_id = tokens["till-7"].split("_")[1]
            assert command("token", "revoke", token_id, "--store", f"file:{store}").code == 0
            eventually(lambda: client.get("/v1/whoami").status_code == 401)
            with pytest.raises(Unauthenticated):
                remote.list_topics()
        assert server.stop() == 0


def test_settings_that_are_refused(tmp_path: Path, authority: Authority) -> None:
    serve = ("serve", "--store", f"file:{tmp_path}/store", "--http", "127.0.0.1:0", "--flight", "127.0.0.1:0")
    assert "tls_client_ca needs TLS" in command(*serve, "--tls-client-ca", str(authority.file)).refused(2)
    certificate, key = authority.issue("server", "127.0.0.1")
    files = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    missing = tmp_path / "missing"
    assert f"clients by {missing}" in command(*serve, *files, "--tls-client-ca", str(missing)).refused(2)
    with pytest.raises(InvalidInput, match="only the certificate"):
        headrace.connect("headrace+tls://127.0.0.1:1", client_certificate=certificate)
    with pytest.raises(InvalidInput, match="only the key"):
        headrace.connect("headrace+tls://127.0.0.1:1", client_key=key)
