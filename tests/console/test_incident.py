"""A rehearsed incident: status, metrics, alert rules and console say the same, since it is the server that says it.

A reader is killed, messages wait on a quiet topic, a certificate is about to expire, the console loses its token, a
disk fills.
"""

from __future__ import annotations

import json
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
import yaml
from playwright.sync_api import Page, expect

import headrace
from headrace.core.health.findings import Place
from headrace.wire.metrics import parse
from tests.broker.background import eventually
from tests.cli.processes import Result
from tests.cli.processes import headrace as command
from tests.console.conftest import Site, Visit
from tests.console.processes import ConsoleProcess
from tests.console.test_sign_in import create_token, sign_in
from tests.server_process import PATIENCE_SECONDS, ROOT, ServerProcess

ALERTS = yaml.safe_load((ROOT / "packaging" / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
# Reads and commits until it is killed.
READER = """
import sys, headrace
url, token, authority = sys.argv[1:]
client = headrace.connect(url, token, root_certificates=authority)
with client.consumer("orders", group="billing", session_timeout_seconds=1.0) as consumer:
    while True:
        if consumer.poll(timeout=0.1).num_rows:
            consumer.commit()
            print("read", flush=True)
"""

# A rule and the place where it holds.
Found = set[tuple[str, Place]]


@dataclass
class Incident:
    """A server that needs tokens, and the tokens: of an administrator, of the console, and of one who reads orders."""

    server: ServerProcess
    authority: Path
    certificate: Path
    admin: str
    console: str
    reader: str

    @property
    def url(self) -> str:
        return f"headrace+tls://127.0.0.1:{self.server.flight_port}"

    def run(self, *arguments: str, token: str = "") -> Result:
        variables = {"HEADRACE_URL": self.url, "HEADRACE_CA": str(self.authority)}
        return command(*arguments, HEADRACE_TOKEN=token or self.admin, **variables)

    def metrics(self) -> dict[str, Any]:
        answer = httpx.get(
            f"https://127.0.0.1:{self.server.port}/metrics",
            headers={"Authorization": f"Bearer {self.admin}"},
            verify=ssl.create_default_context(cafile=self.authority),
            timeout=PATIENCE_SECONDS,
        )
        return parse(answer.raise_for_status().text)


def of_status(result: Result) -> Found:
    health = json.loads(result.out)["health"]
    assert result.code == {"fine": 0, "attention": 1, "unknown": 5}[health["state"]]
    return {(found["rule"], Place(**found["place"])) for found in health["findings"]}


def of_metrics(samples: dict[str, Any]) -> set[tuple[str, str, str, str]]:
    return {
        (labels["rule"], labels["topic"], labels["group"], labels["name"])
        for labels, value in samples.get("headrace_finding", ())
        if value > 0
    }


def alerts(samples: dict[str, Any]) -> set[str]:
    """The alerts that the shipped rules give: each is about the samples of one rule."""
    fired = set()
    for alert in ALERTS:
        named = re.fullmatch(r'headrace_finding\{rule="([a-z_]+)"\} > 0', alert["expr"])
        if named is not None and any(rule == named[1] for rule, *_ in of_metrics(samples)):
            fired.add(alert["alert"].removeprefix("Headrace"))
    return fired


def agree(incident: Incident, page: Page, expected: Found) -> None:
    """Wait until status shows these findings, and see that everything else does."""
    eventually(lambda: of_status(incident.run("status", "--json")) == expected)
    eventually(lambda: len(of_metrics(incident.metrics())) == len(expected))
    samples = incident.metrics()
    assert of_metrics(samples) == {(rule, place.topic, place.group, place.name) for rule, place in expected}
    assert alerts(samples) == {"".join(part.capitalize() for part in rule.split("_")) for rule, _ in expected}
    shows(page, expected)


def shows(page: Page, expected: Found) -> None:
    """The overview has a finding for each, and no others."""
    findings = page.locator(".hr-finding")
    expect(findings).to_have_count(len(expected))
    for _, place in expected:
        expect(findings.filter(has_text=str(place).removeprefix("the "))).to_have_count(1)


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    directory = tmp_path_factory.mktemp("incident")
    made, authority, certificate = trustme.CA(), directory / "ca.pem", directory / "server.pem"
    made.cert_pem.write_to_path(str(authority))
    now = datetime.now(UTC)
    issued = made.issue_cert("127.0.0.1", not_before=now - timedelta(days=88), not_after=now + timedelta(days=2))
    issued.private_key_and_cert_chain_pem.write_to_path(str(certificate))
    store = f"file:{directory}/store"
    server = ServerProcess(store, "--tls-certificate", str(certificate), "--tls-key", str(certificate))
    admin = create_token(store, "ada")
    console = create_token(store, "console", "--read", "*")
    reader = create_token(store, "rita", "--read", "orders", "--read", "quiet")
    yield Incident(server, authority, certificate, admin, console, reader)
    server.close()


@pytest.fixture(scope="module")
def site(incident: Incident) -> Iterator[Site]:
    console = ConsoleProcess(incident.url, "--ca", str(incident.authority), token=incident.console)
    with headrace.connect(incident.url, incident.admin, root_certificates=incident.authority) as client:
        yield Site(incident.server, console, client)
    console.close()


def test_all_agree_while_one_thing_after_the_other_goes_wrong(site: Site, incident: Incident, visit: Visit) -> None:
    certificate = ("certificate_expiring", Place("certificate", name=str(incident.certificate)))
    quiet = ("group_unread", Place("group", "quiet", "audit"))
    dead = ("group_unread", Place("group", "orders", "billing"))
    for name in ("orders", "quiet", "secret"):
        site.client.create_topic(name)
    page = visit("/")
    sign_in(page, incident.admin)
    agree(incident, page, {certificate})

    with site.client.producer("quiet") as producer:
        producer.send(b"one message, and no more").result()
    site.client.register_group("quiet", "audit")
    agree(incident, page, {certificate, quiet})

    arguments = [sys.executable, "-c", READER, incident.url, incident.admin, str(incident.authority)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=ROOT)
    with process, site.client.producer("orders") as producer:
        producer.send(b"read and committed").result()
        assert process.stdout is not None and process.stdout.readline() == b"read\n"
        agree(incident, page, {certificate, quiet})
        process.send_signal(signal.SIGKILL)
        producer.send(b"nobody reads this").result()
    agree(incident, page, {certificate, quiet, dead})
    finding = page.locator(".hr-finding").filter(has_text="group billing of orders")
    expect(finding).to_contain_text("1 message unread")
    expect(finding.locator("code")).to_have_text("headrace group describe orders billing")

    # Somebody who may not read all topics sees theirs. An administrator would lend the console the token for figures.
    page.get_by_label("Account").click()
    page.get_by_role("button", name="Sign out").click()
    page.context.clear_cookies()
    page.goto(f"{site.console.url}/")
    sign_in(page, incident.reader)
    shows(page, {quiet, dead})
    expect(page.locator(".hr-cards.hr-sampled")).to_be_visible()
    expect(page.locator("body")).not_to_have_class(re.compile("hr-stale"))

    (token,) = [token for token in site.client.list_tokens() if token.name == "console"]
    assert site.client.revoke_token(token.id)
    expect(page.get_by_role("status")).to_contain_text("No new samples: the console has no token")
    expect(page.get_by_role("status")).to_contain_text(re.compile("Grey figures are .* old"))
    expect(page.locator("body")).to_have_class(re.compile("hr-stale"))
    assert page.locator(".hr-cards.hr-sampled").evaluate("each => getComputedStyle(each).opacity") == "0.45"
    # The findings are not figures of the console: they come by the visitor's own token, and go on.
    with site.client.consumer("orders", group="billing") as consumer:
        eventually(lambda: bool(consumer.poll(timeout=0.1).num_rows))
        consumer.commit()
    shows(page, {quiet})
    assert of_status(incident.run("status", "--json", token=incident.reader)) == {quiet}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], check=False).returncode:
        pytest.skip("only root may mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up(small_disk: Path, visit: Visit) -> None:
    server = ServerProcess(f"file:{small_disk}/store")
    console = ConsoleProcess(server.url)
    try:
        with headrace.connect(server.url) as client:
            client.create_topic("orders")
            assert client.describe_health().state == "fine"
            with open(small_disk / "ballast", "wb") as ballast:
                ballast.write(b"x" * (61 << 20))
            eventually(lambda: client.describe_health().state == "attention")
            (found,) = client.describe_health().findings
            assert found.rule == "disk_almost_full" and "of 64.0 MiB is free; topics take " in found.problem
            status = command("status", HEADRACE_URL=server.url)
            assert status.code == 1 and "critical the store: " in status.out
            text = httpx.get(f"http://127.0.0.1:{server.port}/metrics", timeout=PATIENCE_SECONDS).text
            assert alerts(parse(text)) == {"DiskAlmostFull"}
            shows(visit("/", console.url), {("disk_almost_full", Place("store"))})
            (small_disk / "ballast").unlink()
            eventually(lambda: client.describe_health().state == "fine")
    finally:
        console.close()
        server.close()
