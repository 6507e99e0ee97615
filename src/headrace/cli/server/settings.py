"""The settings of `headrace serve` and their precedence: flag > environment > file > default.

A setting is named `store` or, inside a layer, `broker.queue_bytes`. In a TOML file the layer is a table; in the
environment the name is HEADRACE_BROKER_QUEUE_BYTES; on the command line `--set broker.queue_bytes=…`. Unknown names in
the file or on the command line are errors. In the environment they only cause a warning, because other programs set
such variables too: Kubernetes sets HEADRACE_PORT for everything that runs beside a service called headrace.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_origin

import msgspec
from msgspec import structs

from headrace.broker.settings import ArchiveSettings, BrokerSettings, QueueApiSettings, TopicDefaults
from headrace.cli.exits import Exit, Failure
from headrace.cli.options.listen_address import parse_address as parse_address
from headrace.core.errors import HeadraceError
from headrace.core.limits import STOP_SECONDS
from headrace.core.reports.server_settings import SettingDescription, describe_settings, is_fixed
from headrace.edge.settings import LimitSettings
from headrace.protocols.cursus.settings import CursusSettings
from headrace.protocols.http.settings import HttpSettings
from headrace.protocols.kafka.settings import KafkaSettings
from headrace.protocols.native.settings import NativeSettings
from headrace.protocols.ydb.settings import YdbSettings
from headrace.storage.open import shown

PREFIX: Final = "HEADRACE_"
# What other commands read from the environment.
_OTHERS: Final = frozenset(
    {
        "HEADRACE_URL",
        "HEADRACE_PROFILE",
        "HEADRACE_TOKEN",
        "HEADRACE_CA",
        "HEADRACE_CLIENT_CERTIFICATE",
        "HEADRACE_CLIENT_KEY",
        "HEADRACE_CONFIG",
    }
)

# Settings that earlier versions had, and what to use instead.
_PORT: Final = "(rest|native|kafka|ydb|cursus)"
_GONE: Final = {
    rf"{_PORT}\.(requests?_bytes_max|answers_bytes_max|connections_max)": r"set limits.\2, for all ports",
    r"rest\.body_bytes_max": "set limits.request_bytes_max, for all ports",
    r"(rest|limits)\.bodies_bytes_max": "set limits.requests_bytes_max; one token has at most half of it",
    r"limits\.flight_\w+": "set limits.flight_calls_max; one token has at most a quarter of it",
    r"rest\.(allowed_\w+|stop_seconds)": r"set \1",
    r"rest\.metrics_(topics|groups)_max": "set limits.metrics_topics_max, for topics and groups",
    r"rest\.metrics_partitions_max": "set limits.metrics_partitions_max",
    r"topic_defaults\.(deduplication_\w+|codecs|key_hash|timestamp_type|archive_\w+|local_retention_bytes)": (
        r"set \1 of each topic (headrace topic create, headrace topic alter)"
    ),
    r"(rest|native|kafka|ydb|cursus|broker|archive)\.\w+_seconds(_max)?": "it is fixed now, at its default",
}


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a server.

    store: URL of the store, such as file:./headrace-data or file:/var/lib/headrace?durability=os.
    http: listen address for HTTP; port 0 picks a free port.
    flight: listen address for Arrow Flight, which clients and Spark use; `off` disables it.
    advertised_name: host name or address under which others reach this server, for the list of servers. Empty: the
        host of each listen address, or the name of the machine where that is 0.0.0.0 or ::.
    console: whether a console runs beside the server, as a process of its own that ends with it.
    console_http: listen address of that console; port 0 picks a free port.
    console_url: where browsers reach a console that runs by itself: `/` of the HTTP port redirects there.
    tls_certificate, tls_key: PEM files. If both are set, the server accepts TLS only. Empty: no TLS.
    tls_client_ca: PEM file of the authority that signs client certificates. Empty: clients are not asked for one.
    tls_client_certificates: required, or optional: callers without one send a token. Flight asks if required.
    log_level: debug, info, warning or error.
    log_format: text for people, json for programs; auto is text on a terminal, otherwise json.
    access_log: whether every request is logged.
    audit_log: file for denied requests and changes, as JSON lines; empty: they go to the normal log.
    tracing: send spans of publishing and fetching to an OpenTelemetry collector; OTEL_… variables say where it is.
    first_token_file: if the store has no tokens, one with all rights is created at start and written to this file. For
        containers, where nobody can run `headrace token create` before the first start.
    require_tokens: every request needs a token, also from this machine.
    allowed_hosts: host names under which browsers may reach a server that needs no token, besides loopback and its
        own address: `name` or `name:port`. If set, other names get 403 even with a token.
    allowed_origins: other origins (`https://console.example`) whose web pages may use this server; all others get
        403.
    stop_seconds: how long a stop waits for running requests, and again for the store to close; after that the
        process exits.
    """

    store: str = "file:./headrace-data"
    http: str = "127.0.0.1:7070"
    flight: str = "127.0.0.1:7071"
    advertised_name: str = ""
    console: bool = False
    console_http: str = "127.0.0.1:7072"
    console_url: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    tls_client_certificates: Literal["required", "optional"] = "required"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "text", "json"] = "auto"
    access_log: bool = False
    audit_log: str = ""
    tracing: bool = False
    first_token_file: str = ""
    require_tokens: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    stop_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = STOP_SECONDS
    archive: ArchiveSettings = ArchiveSettings()
    broker: BrokerSettings = BrokerSettings()
    native: NativeSettings = NativeSettings()
    kafka: KafkaSettings = KafkaSettings()
    ydb: YdbSettings = YdbSettings()
    cursus: CursusSettings = CursusSettings()
    limits: LimitSettings = LimitSettings()
    queue_api: QueueApiSettings = QueueApiSettings()
    topic_defaults: TopicDefaults = TopicDefaults()

    def __post_init__(self) -> None:
        self.http_settings()

    def http_settings(self) -> HttpSettings:
        """The settings of the HTTP server."""
        return HttpSettings(
            allowed_hosts=self.allowed_hosts,
            allowed_origins=self.allowed_origins,
            stop_seconds=self.stop_seconds,
            metrics_topics_max=self.limits.metrics_topics_max,
            metrics_partitions_max=self.limits.metrics_partitions_max,
        ).within(self.limits)


def names(kind: type[msgspec.Struct] = ServeSettings, prefix: str = "") -> Iterator[str]:
    """The names of all settings."""
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from names(field.type, f"{prefix}{field.name}.")
        elif not is_fixed(field):
            yield prefix + field.name


def _lists(kind: type[msgspec.Struct] = ServeSettings, prefix: str = "") -> set[str]:
    """The names of the settings that are lists."""
    found: set[str] = set()
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found |= _lists(field.type, f"{prefix}{field.name}.")
        elif get_origin(field.type) is tuple:
            found.add(prefix + field.name)
    return found


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.replace(".", "_").upper()


def load(
    flags: Mapping[str, Any], assignments: Iterable[str], environment: Mapping[str, str], file: Path | None
) -> ServeSettings:
    """Merge the settings from all sources; a flag that is None was not given."""
    given = _from_file(file)
    _check_variables(environment)
    given |= {name: environment[variable(name)] for name in names() if variable(name) in environment}
    given |= dict(_assigned(assignment) for assignment in assignments)
    given |= {name: value for name, value in flags.items() if value is not None}
    return _settings(given)


def origins(
    flags: Mapping[str, Any], assignments: Iterable[str], environment: Mapping[str, str], file: Path | None
) -> dict[str, str]:
    """Where each setting that is not the default comes from."""
    found = dict.fromkeys(_from_file(file), str(file))
    found |= {name: variable(name) for name in names() if variable(name) in environment}
    found |= {_assigned(assignment)[0]: "--set" for assignment in assignments}
    # The flag of `kafka.listen` is --kafka.
    given = (name for name, value in flags.items() if value is not None)
    return found | {name: "--" + name.partition(".")[0].replace("_", "-") for name in given}


def described(settings: ServeSettings, places: Mapping[str, str]) -> list[SettingDescription]:
    """Every setting with its value and where it comes from; a password in a URL is hidden."""
    return [
        structs.replace(each, value=shown(each.value)) if isinstance(each.value, str) else each
        for each in describe_settings(settings, places)
    ]


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Warnings for environment variables that look like settings but are not, with a suggestion."""
    known = {variable(name) for name in names()}
    unknown = [name for name in environment if name.startswith(PREFIX) and name not in known | _OTHERS]
    return [f"{name} is not a setting and was ignored{_hint(name, known)}" for name in sorted(unknown)]


def _from_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        content = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Exit.USAGE, f"the configuration {file} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise Failure(Exit.USAGE, f"the configuration {file} is not valid TOML: {error}") from None
    given = dict(_flat(content))
    for name in given:
        _check_name(name, str(file))
    return given


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _assigned(assignment: str) -> tuple[str, str]:
    name, separator, value = assignment.partition("=")
    if not separator:
        raise Failure(Exit.USAGE, f"--set {assignment}: write it as --set NAME=VALUE")
    _check_name(name, "--set")
    return name, value


def _check_variables(environment: Mapping[str, str]) -> None:
    """Refuse variables of settings that are gone: what they bounded would be unbounded."""
    sections = "|".join(layer.upper() for layer in (*ServeSettings.__struct_fields__, "rest"))
    known = {variable(name) for name in names()}
    for name in sorted(set(environment) - known):
        if found := re.fullmatch(rf"{PREFIX}({sections})_(\w+)", name):
            _refuse_gone(f"{found[1]}.{found[2]}".lower(), name)


def _refuse_gone(name: str, place: str) -> None:
    for pattern, instead in _GONE.items():
        if found := re.fullmatch(pattern, name):
            raise Failure(Exit.USAGE, f"{place}: there is no setting {name!r} any more: {found.expand(instead)}")


def _check_name(name: str, place: str) -> None:
    known = list(names())
    if name not in known:
        _refuse_gone(name, place)
        raise Failure(Exit.USAGE, f"{place}: unknown setting {name!r}{_hint(name, known)}")


def _hint(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.7)
    return f": did you mean {close[0]}?" if close else ""


def _settings(given: Mapping[str, Any]) -> ServeSettings:
    """Build the struct, converting each value separately so that an error names the setting."""
    nested: dict[str, Any] = {}
    lists = _lists()
    for name, value in given.items():
        if name in lists and isinstance(value, str):
            # The environment and the command line hold text only: a list is separated by commas.
            value = [part.strip() for part in value.split(",") if part.strip()]
        *layers, last = name.split(".")
        table = nested
        for layer in layers:
            table = table.setdefault(layer, {})
        table[last] = value
    try:
        # Not strict: the environment holds text only.
        return msgspec.convert(nested, ServeSettings, strict=False)
    except (msgspec.ValidationError, HeadraceError) as error:
        raise Failure(Exit.USAGE, f"bad setting: {error}") from None
