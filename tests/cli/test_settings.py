"""Where settings come from, and the file that lists them all."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.cli.exits import Exit, Failure
from headrace.cli.server.settings import ServeSettings, load, names, parse_address, unknown_variables, variable
from tests.cli.processes import ROOT

PACKAGED = ROOT / "packaging" / "headrace.toml"


def value_of(settings: ServeSettings, name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_the_packaged_file_has_every_setting_with_its_default() -> None:
    given = tomllib.loads(PACKAGED.read_text())
    flat = {key: value for key, value in given.items() if not isinstance(value, dict)}
    for table, values in given.items():
        if isinstance(values, dict):
            flat |= {f"{table}.{key}": value for key, value in values.items()}
    defaults = {name: value_of(ServeSettings(), name) for name in names()}
    assert flat == {name: list(value) if isinstance(value, tuple) else value for name, value in defaults.items()}
    assert load({}, [], {}, PACKAGED) == ServeSettings()


def test_every_setting_of_the_packaged_file_is_explained() -> None:
    sections = re.split(r"\n\n|\n(?=#)", PACKAGED.read_text())
    for section in sections:
        lines = section.strip().splitlines()
        if any(not line.startswith(("#", "[")) for line in lines):
            assert lines[0].startswith("#"), section


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(
        'store = "file:file"\nhttp = "file:1"\nlog_level = "error"\n[broker]\nqueue_bytes = 1\ntopics_max = 1\n'
    )
    environment = {"HEADRACE_STORE": "file:env", "HEADRACE_HTTP": "env:1", "HEADRACE_BROKER_QUEUE_BYTES": "2"}
    settings = load({"store": "file:flag", "http": None}, ["broker.queue_bytes=3"], environment, file)
    assert (settings.store, settings.http, settings.log_level, settings.log_format) == (
        "file:flag",
        "env:1",
        "error",
        "auto",
    )
    assert (settings.broker.queue_bytes, settings.broker.topics_max) == (3, 1)


@pytest.mark.parametrize("name", list(names()))
def test_every_setting_can_come_from_everywhere(tmp_path: Path, name: str) -> None:
    default = value_of(ServeSettings(), name)
    others: dict[str, Any] = {
        "tls_client_certificates": "optional",
        "log_level": "debug",
        "log_format": "json",
        "access_log": True,
        "allowed_hosts": ("broker.example", "other.example:80"),
        "allowed_origins": ("https://console.example",),
        "kafka.advertised": "broker.example:9092",
        "kafka.auto_create_topics": False,
        "ydb.advertised": "broker.example:2136",
        "cursus.advertised": "broker.example:9000",
        "limits.request_bytes_max": 1 << 20,
        "queue_api.created_status": 201,
        "topic_defaults.retention_seconds": 60,
        "topic_defaults.retention_bytes": 1_000,
        "topic_defaults.deduplication": "payload",
        "topic_defaults.archive": "on",
        "topic_defaults.local_retention_seconds": 60,
    }
    other = others.get(name, f"{default}x" if isinstance(default, str) else default * 2)
    table, _, key = name.rpartition(".")
    file = tmp_path / "one.toml"
    file.write_text((f"[{table}]\n" if table else "") + f"{key} = {msgspec.json.encode(other).decode()}\n")
    text = ",".join(other) if isinstance(other, tuple) else str(other)
    assert value_of(load({}, [], {}, file), name) == other
    assert value_of(load({}, [], {variable(name): text}, None), name) == other
    assert value_of(load({}, [f"{name}={text}"], {}, None), name) == other


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stoer = 'x'", "unknown setting 'stoer': did you mean store?"),
        ("[brokre]\nqueue_bytes = 1", "unknown setting 'brokre.queue_bytes': did you mean broker.queue_bytes?"),
        ("zzz = {}", "unknown setting 'zzz'"),
        ("broker = 1", "unknown setting 'broker'"),
        ("[broker]\nframe_rows = 8", "unknown setting 'broker.frame_rows'"),
        ("log_level = 'loud'", "log_level"),
        ("stop_seconds = 0", "stop_seconds"),
        ("allowed_origins = ['*']", "allowed_origins is '*'"),
        ("allowed_hosts = ['a/b']", "allowed_hosts is 'a/b'"),
        ("[kafka]\nadvertised = 'broker'", "advertised is 'broker': write it as HOST:PORT"),
        ("[limits]\nrequests_bytes_max = 5000", "requests_bytes_max is 5000: it must be at least request_bytes_max"),
        ("[broker]\nqueue_bytes = -1", "queue_bytes is -1"),
        ("[broker]\nqueue_bytes = 'many'", "queue_bytes"),
        ("store = ", "is not valid TOML"),
    ],
)
def test_a_file_that_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(text)
    with pytest.raises(Failure, match=re.escape(told)) as refused:
        load({}, [], {}, file)
    assert refused.value.exit is Exit.USAGE
    assert "\n" not in str(refused.value)


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot be read"):
        load({}, [], {}, tmp_path / "missing.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(Failure, match="cannot be read"):
        load({}, [], {}, tmp_path / "binary")
    with pytest.raises(Failure, match="--set NAME=VALUE"):
        load({}, ["broker.queue_bytes"], {}, None)
    with pytest.raises(Failure, match=r"did you mean broker\.queue_bytes"):
        load({}, ["broker.queue_byte=1"], {}, None)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("rest.body_bytes_max", "limits.request_bytes_max"),
        ("rest.bodies_bytes_max", "limits.requests_bytes_max"),
        ("limits.bodies_bytes_max", "limits.requests_bytes_max"),
        ("cursus.requests_bytes_max", "limits.requests_bytes_max"),
        ("ydb.request_bytes_max", "limits.request_bytes_max"),
        ("kafka.connections_max", "limits.connections_max"),
        ("native.answers_bytes_max", "limits.answers_bytes_max"),
        ("limits.flight_uploads_total_max", "limits.flight_calls_max"),
        ("rest.stop_seconds", "set stop_seconds"),
        ("rest.allowed_origins", "set allowed_origins"),
        ("rest.metrics_groups_max", "limits.metrics_topics_max"),
        ("rest.metrics_partitions_max", "limits.metrics_partitions_max"),
        ("topic_defaults.codecs", "headrace topic create"),
        ("kafka.room_seconds_max", "it is fixed now"),
        ("broker.retention_check_seconds", "it is fixed now"),
    ],
)
def test_a_setting_that_is_gone_names_what_to_use(name: str, instead: str) -> None:
    told = f"there is no setting '{name}' any more: .*{re.escape(instead)}"
    with pytest.raises(Failure, match=f"--set: {told}"):
        load({}, [f"{name}=1"], {}, None)
    with pytest.raises(Failure, match=f"{variable(name)}: {told}"):
        load({}, [], {variable(name): "1"}, None)


def test_unknown_variables_are_reported_and_not_refused() -> None:
    environment = {
        "HEADRACE_STROE": "x",
        "HEADRACE_URL": "x",
        "HEADRACE_STORE": "x",
        "HEADRACE_SERVICE_HOST": "",
        "OTHER": "x",
    }
    assert unknown_variables(environment) == [
        "HEADRACE_SERVICE_HOST is not a setting and was ignored",
        "HEADRACE_STROE is not a setting and was ignored: did you mean HEADRACE_STORE?",
    ]


def test_addresses() -> None:
    assert parse_address("127.0.0.1:7070") == ("127.0.0.1", 7070)
    assert parse_address("[::1]:0") == ("::1", 0)
    assert parse_address("broker.example:65535") == ("broker.example", 65535)
    for wrong in (
        "",
        "7070",
        ":7070",
        "localhost",
        "localhost:",
        "localhost:http",
        "::1:7070",
        "x:65536",
        "[x]:1",
        "x:-1",
    ):
        with pytest.raises(Failure, match="write it as HOST:PORT"):
            parse_address(wrong)


def test_the_systemd_unit() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "packaging" / "headrace.service")
    service = unit["Service"]
    assert service["ExecStart"].endswith("/headrace serve --config /etc/headrace/headrace.toml")
    assert service["Environment"] == "HEADRACE_STORE=file:/var/lib/headrace"
    assert service["Type"] == "notify"
    assert float(service["TimeoutStopSec"]) > ServeSettings().stop_seconds
    assert unit["Unit"]["StartLimitIntervalSec"] == "0", "it is started again however often it failed"
    assert (service["UMask"], service["StateDirectoryMode"]) == ("0077", "0700")
    assert service["CapabilityBoundingSet"] == "" and service["NoNewPrivileges"] == "yes"
