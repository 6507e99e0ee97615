"""The server process: opens a store, its broker and the protocol servers, and runs until a signal."""

from __future__ import annotations

import gc
import logging
import os
import shlex
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import pyarrow as pa

from headrace import tracing
from headrace.broker import Broker
from headrace.broker.access import Access
from headrace.cli.exits import Exit, Failure
from headrace.cli.options.listen_address import is_wildcard, parse_address, url_of
from headrace.cli.server import logs
from headrace.cli.server.console_process import console_beside
from headrace.cli.server.protocols import PROTOCOLS, Shared, running
from headrace.cli.server.settings import ServeSettings, described, unknown_variables
from headrace.cli.server.stop_deadline import StopDeadline, leave
from headrace.cli.server.store_check import check_store
from headrace.cli.terminal.output import print_line
from headrace.core.errors import HeadraceError
from headrace.core.health.findings import Place
from headrace.core.health.readings import Expiry
from headrace.core.rights import Right
from headrace.edge import audit
from headrace.edge.certificates import validities
from headrace.edge.draining import Draining
from headrace.edge.limits import Limits
from headrace.edge.settings import OFF
from headrace.extras import needing
from headrace.protocols.http import server
from headrace.protocols.http.app import make_app
from headrace.storage.open import shown

VERSION: Final = version("headrace")

# New objects after which the garbage collector looks for cycles; Python's own default is 700.
_COLLECT_AFTER: Final = 20_000
# How long a thread that computes keeps an event loop waiting for its turn; Python's own default is 5 ms, and a call
# needs several turns.
_SWITCH_SECONDS: Final = 0.001

logger = logging.getLogger(__name__)


def _settle_memory() -> None:
    """Spare the garbage collector what stays as long as the process, and most rounds: requests make few cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])


class _NoPandas(MetaPathFinder):
    """Finds everything but pandas, as if that were not installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def _leave_pandas_out() -> None:
    """Let pyarrow look for pandas once, in vain: a server has no use for it.

    pyarrow imports it with the first array that it makes, which would take a quarter of a second of the first request,
    and memory for as long as the server runs.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


def run(settings: ServeSettings, environment: Mapping[str, str], places: Mapping[str, str]) -> None:
    """Run a server with these settings, which come from these places."""
    logs.set_up(settings.log_level, settings.log_format)
    sys.setswitchinterval(_SWITCH_SECONDS)
    _leave_pandas_out()
    _open_audit_log(settings.audit_log)
    for line in unknown_variables(environment):
        logger.warning("%s", line)
    tls = _tls_files(settings)
    for each in PROTOCOLS:
        each.check(settings)
    stop_tracing = _start_tracing() if settings.tracing else None
    bound: dict[str, list[socket.socket]] = {}
    # stop_seconds for running requests, and again for closing the store.
    deadline = StopDeadline(2 * settings.stop_seconds)
    left_open: list[str] = []
    try:
        for protocol, address in _addresses(settings).items():
            bound[protocol] = _bind(address, protocol)
        listeners, flight = bound["http"], bound.get("flight")
        with _opened(settings) as broker:
            broker.described_settings = described(settings, places)
            _create_first_token(broker.access, settings.first_token_file)
            access = broker.access
            # Every protocol is asked, since each warns for itself.
            answers = [_must_authenticate(sockets, access, protocol, settings) for protocol, sockets in bound.items()]
            if any(answers):
                access.require_tokens()
            draining = Draining()
            draining.on_begin(deadline.begin)
            # One for all protocols: what a token has under way counts once.
            limits, http = Limits(settings.limits), settings.http_settings()
            flight_port = None if flight is None else server.port_of(flight)
            app = make_app(broker, access, http, draining, limits, flight_port)
            authorities = _expiries(tls, "client_ca")
            broker.health.certificates = _expiries(tls, "certificate") + authorities
            native_port = server.port_of(bound["native"]) if "native" in bound else None
            shared = Shared(broker, access, settings, tls, limits, native_port)
            with ExitStack() as stack:
                endpoints = stack.enter_context(running(shared, bound, left_open))
                urls = {endpoint.protocol: endpoint.url for endpoint in endpoints}
                console_url = stack.enter_context(console_beside(settings, urls.get("flight"), access))
                host, port = parse_address(settings.http)[0], server.port_of(listeners)
                urls = {"http": url_of("http" if tls is None else "https", host, port), **urls}

                def say_ready() -> None:
                    _settle_memory()
                    _announce(broker, settings, urls, console_url)

                def reload() -> None:
                    for endpoint in endpoints:
                        endpoint.reload()
                    broker.health.certificates = _expiries(tls, "certificate") + authorities

                server.serve(app, listeners, http, draining, say_ready, tls, settings.access_log, reload)
                _tell_systemd("STOPPING=1")
            logger.info("all requests finished, closing the store")
    finally:
        server.close_all([each for sockets in bound.values() for each in sockets])
        if stop_tracing is not None:
            stop_tracing()
        deadline.cancel()
    logger.info("stopped")
    leave(is_clean=not left_open)


def check_settings(settings: ServeSettings) -> list[str]:
    """What would keep a server with these settings from starting; binds no port and creates no store."""
    problems = []

    def check(look: Callable[[], object]) -> None:
        try:
            look()
        except (Failure, HeadraceError) as error:
            problems.append(str(error))

    check(lambda: _tls_files(settings))
    for protocol, address in _addresses(settings).items():
        check(partial(parse_address, address, protocol))
    for each in PROTOCOLS:
        check(partial(each.check, settings))
    check(lambda: check_store(settings.store))
    return problems


def _announce(broker: Broker, settings: ServeSettings, urls: Mapping[str, str], console_url: str | None) -> None:
    """Tell other servers, the terminal and systemd that requests are answered on these URLs, by protocol."""
    consoles = {"console": console_url} if console_url else {}
    broker.servers.advertise(_advertised(settings, {**urls, **consoles}))
    where, seen = " and ".join(urls.values()), f", console on {console_url}" if console_url else ""
    print_line(f"headrace {VERSION} is ready on {where} with store {shown(settings.store)}{seen}")
    sys.stdout.flush()
    _tell_systemd("READY=1")


def _advertised(settings: ServeSettings, urls: Mapping[str, str]) -> dict[str, str]:
    """The URLs under which others reach this server, by protocol."""
    found = {}
    for protocol, url in urls.items():
        parts = urlsplit(url)
        assert parts.port is not None, "a server listens on a port"
        own_host = socket.gethostname() if is_wildcard(parts.hostname) else parts.hostname or ""
        found[protocol] = url_of(parts.scheme, settings.advertised_name or own_host, parts.port)
    for each in PROTOCOLS:
        if each.name in found and each.advertised(settings):
            found[each.name] = f"{urlsplit(found[each.name]).scheme}://{each.advertised(settings)}"
    return found | ({"console": settings.console_url} if settings.console_url else {})


def _addresses(settings: ServeSettings) -> dict[str, str]:
    """The listen address of each protocol that is not off."""
    given = {protocol.name: protocol.listen(settings) for protocol in PROTOCOLS}
    return {"http": settings.http} | {name: address for name, address in given.items() if address != OFF}


def _tls_files(settings: ServeSettings) -> server.TlsFiles | None:
    """Certificate and key, once they are known to be good."""
    if not settings.tls_certificate and not settings.tls_key:
        if settings.tls_client_ca:
            raise Failure(Exit.USAGE, "tls_client_ca needs TLS: set tls_certificate and tls_key too")
        return None
    if not settings.tls_certificate or not settings.tls_key:
        raise Failure(Exit.USAGE, "TLS needs both tls_certificate and tls_key: set the missing one")
    client_ca = Path(settings.tls_client_ca) if settings.tls_client_ca else None
    is_optional = settings.tls_client_certificates == "optional"
    files = server.TlsFiles(Path(settings.tls_certificate), Path(settings.tls_key), client_ca, is_optional)
    try:
        server.load_tls(files)
    except (OSError, ValueError) as error:
        # An OpenSSL error is an OSError without a file name.
        reason = (error.reason or str(error)) if isinstance(error, ssl.SSLError) else str(error)
        shown_files = f"{files.certificate} and {files.key}" + (f", clients by {client_ca}" if client_ca else "")
        raise Failure(Exit.USAGE, f"cannot use TLS with {shown_files}: {reason}") from None
    return files


def _expiries(tls: server.TlsFiles | None, field: Literal["certificate", "client_ca"]) -> list[Expiry]:
    """When the first certificate of a file ends, for the server's health; the authority of clients is read once."""
    file: Path | None = getattr(tls, field, None)
    if file is None:
        return []
    try:
        begin_us, end_us = min(validities(file.read_text()), key=lambda validity: validity[1])
    except (OSError, ValueError) as error:
        logger.warning("cannot tell when the certificate in %s expires: %s", file, error)
        return []
    return [Expiry(Place("certificate", name=str(file)), begin_us, end_us)]


def _bind(address: str, protocol: str) -> list[socket.socket]:
    host, port = parse_address(address, protocol)
    try:
        return server.bind(host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Failure(
            Exit.USAGE, f"cannot listen on {address}: {reason}; choose another address with --{protocol}"
        ) from None


@contextmanager
def _opened(settings: ServeSettings) -> Iterator[Broker]:
    """The broker of the store, closed at the end."""
    check_store(settings.store)
    try:
        broker = Broker.open(
            settings.store,
            settings.broker,
            queue_api=settings.queue_api,
            topic_defaults=settings.topic_defaults,
            archive=settings.archive,
        )
    except HeadraceError as error:
        raise Failure(Exit.USAGE, f"cannot serve {shown(settings.store)}: {error}") from None
    try:
        yield broker
    finally:
        broker.close(settings.stop_seconds)


def _create_first_token(access: Access, file: str) -> None:
    """Create a token with all rights and write it to a file, if one is named and the store has no tokens."""
    if not file or access.list():
        return
    try:
        # Opened first: a token whose text is nowhere would lock everybody out.
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as written:
            _, text = access.create("admin", [("*", list(Right))])
            written.write(text + "\n")
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot write first_token_file {file}: {error.strerror}") from None
    logger.info("the store had no tokens: created one with all rights and wrote it to %s", file)


def _must_authenticate(
    listeners: Sequence[socket.socket],
    access: Access,
    protocol: str,
    settings: ServeSettings,
) -> bool:
    """Whether every request needs a token, even after the last one is revoked: if other machines can connect."""
    if server.is_loopback(listeners):
        if settings.require_tokens and not access.list():
            rule = f"create one with `{_first_token(settings)}`, or unset require_tokens"
            raise Failure(Exit.USAGE, f"require_tokens is set and the store has no tokens: {rule}")
        return settings.require_tokens
    address = _addresses(settings)[protocol]
    if not access.list():
        raise Failure(
            Exit.USAGE,
            f"{address} can be reached from other machines and the store has no tokens: anyone would have full access; "
            f"create one with `{_first_token(settings)}`, name a first_token_file, or listen on 127.0.0.1",
        )
    if not settings.tls_certificate:
        logger.warning(
            "%s on %s has no TLS: tokens and messages are sent in plain text; set tls_certificate and tls_key, or put "
            "it behind a proxy that encrypts",
            protocol,
            address,
        )
    return True


def _first_token(settings: ServeSettings) -> str:
    """The command that creates the first token of this store, which exists by now."""
    return f"headrace token create admin --store {shlex.quote(shown(settings.store))}"


def _start_tracing() -> Callable[[], None]:
    """Send spans to the collector that OTEL_… variables name; returns what sends the last ones."""
    with needing("tracing"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    # Variables of OpenTelemetry win over this name.
    resource = Resource.create() if "OTEL_SERVICE_NAME" in os.environ else Resource.create({SERVICE_NAME: "headrace"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracing.enable(provider)
    return provider.shutdown


def _open_audit_log(file: str) -> None:
    if file:
        try:
            audit.write_to(file)
        except OSError as error:
            raise Failure(Exit.USAGE, f"cannot write the audit log {file}: {error.strerror}") from None


def _tell_systemd(state: str) -> None:
    """Notify systemd of the state of the server, if it asked for that (Type=notify)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            notifier.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
