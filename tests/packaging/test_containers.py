"""Dockerfile and compose.yaml without an engine: what they copy, install and run exists; ports and users are right."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from contextlib import closing
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

import headrace
from headrace.cli.server.settings import ServeSettings, load, names, parse_address, variable
from headrace.core.errors import Unauthenticated
from headrace.storage.open import open_store
from tests.cli.processes import headrace as headrace_command
from tests.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def instructions(file: Path = ROOT / "Dockerfile") -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, in order; continued lines are one."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    pairs = (line.split(None, 1) for line in text.splitlines() if line.strip())
    return [(word, " ".join(rest.split())) for word, rest in pairs]


INSTRUCTIONS = instructions()


def given(word: str) -> list[str]:
    return [rest for found, rest in INSTRUCTIONS if found == word]


def environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in given("ENV") for pair in shlex.split(rest))


def check_command(words: list[str]) -> None:
    """Fail for a command, or an option, that `headrace` does not have."""
    said = headrace_command(words[0], "--help")
    assert said.code == 0, said
    for option in (word for word in words if word.startswith("--")):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", said.out), (option, words)


def test_what_is_copied_exists_and_is_sent_to_the_engine() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for rest in given("COPY"):
        *sources, _ = [word for word in rest.split() if not word.startswith("--from")]
        for source in sources if "--from" not in rest else []:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored, f"{source} is left out by .dockerignore"
    assert "*" in ignored, "and nothing else is sent: no store, no secrets, no .git"


def test_installed_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (line,) = [rest for rest in given("RUN") if "pip install" in rest]
    (extras,) = re.findall(r"'\.\[([a-z,]+)\]'", line)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert {"console", "postgres", "tracing"} <= set(extras.split(","))
    assert "--constraint constraints.txt" in line
    images = {rest.split()[0] for rest in given("FROM")}
    (version,) = {re.fullmatch(r"python:(3\.\d+)-slim", image).group(1) for image in images}  # type: ignore[union-attr]
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    needed = {project["readme"], *project["license-files"]}
    copied = {word for rest in given("COPY") for word in rest.split()}
    assert needed <= copied, "the wheel is built of them"


def test_nothing_runs_as_root_and_the_store_is_in_a_volume() -> None:
    order = [word for word, _ in INSTRUCTIONS]
    assert given("USER") == ["headrace"] and order.index("USER") < order.index("ENTRYPOINT")
    (volume,) = given("VOLUME")
    variables = environment()
    assert urlsplit(variables["HEADRACE_STORE"]).path.startswith(f"{volume}/")
    assert variables["HEADRACE_FIRST_TOKEN_FILE"].startswith(f"{volume}/")
    assert SERVICES["headrace"]["volumes"] == [f"data:{volume}"] and "data" in COMPOSE["volumes"]
    assert f"--home-dir {volume} " in given("RUN")[-1], "useradd makes it, for its owner"


def test_variables_are_settings_with_valid_values() -> None:
    known = {variable(name) for name in names()}
    for variables in (environment(), SERVICES["headrace"]["environment"]):
        ours = {name: value for name, value in variables.items() if name.startswith("HEADRACE_")}
        assert ours.keys() <= known
        plain = {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for name, value in ours.items()}
        load({}, (), plain, None)


def test_ports_are_the_default_ones() -> None:
    defaults = ServeSettings()
    ports = [parse_address(address)[1] for address in (defaults.http, defaults.flight, defaults.console_http)]
    (exposed,) = given("EXPOSE")
    assert [int(port) for port in exposed.split()] == ports
    variables = environment()
    assert [parse_address(variables[name])[1] for name in ("HEADRACE_HTTP", "HEADRACE_FLIGHT")] == ports[:2]
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published == [f"127.0.0.1:{port}:{port}" for port in ports], "reachable from this machine only"


def test_commands_and_options_exist() -> None:
    entry, command = json.loads(given("ENTRYPOINT")[0]), json.loads(given("CMD")[0])
    assert entry == ["headrace"]
    check_command(command)
    check_command(SERVICES["console"]["command"])
    with pytest.raises(AssertionError):
        check_command(["console", "--nothing"])
    assert f"headrace://headrace:{ServeSettings().flight.rpartition(':')[2]}" in SERVICES["console"]["command"]


def test_health_is_asked_for_where_a_server_answers(tmp_path: Path) -> None:
    (check,) = given("HEALTHCHECK")
    program = json.loads(check[check.index("[") :])
    assert program[:2] == ["python", "-c"]
    server = ServerProcess(f"file:{tmp_path}")
    try:
        exec(program[2].replace(":7070", f":{server.port}"), {})
    finally:
        server.close()


def test_services_stop_as_slowly_as_a_server_may() -> None:
    seconds = int(SERVICES["headrace"]["stop_grace_period"].removesuffix("s"))
    assert seconds > 2 * ServeSettings().stop_seconds


def test_postgres_is_only_in_its_profile() -> None:
    assert [name for name, service in SERVICES.items() if "profiles" in service] == ["postgres"]
    needed = SERVICES["headrace"]["depends_on"]["postgres"]
    assert needed == {"condition": "service_healthy", "required": False}
    head = (ROOT / "compose.yaml").read_text().partition("name:")[0]
    (url,) = re.findall(r"HEADRACE_STORE=(postgresql:\S+)", head)
    parts, variables = urlsplit(url), SERVICES["postgres"]["environment"]
    assert (parts.username, parts.hostname) == (variables["POSTGRES_USER"], "postgres")
    assert parts.path == f"/{variables['POSTGRES_DB']}"


def test_no_secret_is_in_the_files() -> None:
    text = (ROOT / "Dockerfile").read_text() + (ROOT / "compose.yaml").read_text()
    assert not re.search(r"hr_[0-9a-f]{12}", text)
    assert SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD"] == "${POSTGRES_PASSWORD:-}"
    assert not any(fnmatch(name, "*secret*") for name in SERVICES)


def test_the_first_start_writes_a_token_and_later_ones_keep_it(tmp_path: Path) -> None:
    file = tmp_path / "first-token"
    server = ServerProcess(f"file:{tmp_path / 'store'}", variables={"HEADRACE_FIRST_TOKEN_FILE": str(file)})
    try:
        token = file.read_text().strip()
        assert file.stat().st_mode & 0o777 == 0o600
        for _ in range(2):
            with headrace.connect(server.url, token) as client:
                assert client.whoami().name == "admin"
            with headrace.connect(server.url) as stranger, pytest.raises(Unauthenticated):
                stranger.list_topics()
            server.restart()
            assert file.read_text().strip() == token
    finally:
        server.close()


def test_a_token_that_cannot_be_written_is_not_created(tmp_path: Path) -> None:
    store, file = f"file:{tmp_path / 'store'}", str(tmp_path / "no" / "file")
    addresses = ("--http", "127.0.0.1:0", "--flight", "off")
    ended = headrace_command("serve", "--store", store, *addresses, HEADRACE_FIRST_TOKEN_FILE=file)
    assert f"cannot write first_token_file {file}" in ended.refused(2)
    with closing(open_store(store)) as opened:
        assert opened.catalog.tokens.all() == []
