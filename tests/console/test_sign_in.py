"""Signing in with each kind of token: what it may not do is not offered, and refused by the server anyway."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

import headrace
from headrace.console import sessions
from headrace.console.attempts import ATTEMPTS_MAX
from headrace.console.monitor.poller import Poller
from headrace.console.sessions import IDLE_SECONDS, SESSIONS_OF_TOKEN_MAX, Sessions
from headrace.console.settings import ConsoleSettings
from tests.console.conftest import Site, Visit
from tests.console.processes import ConsoleProcess
from tests.server_process import PATIENCE_SECONDS, ROOT, ServerProcess


def create_token(store: str, *arguments: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    command = [sys.executable, "-m", "headrace", "token", "create", *arguments, "--yes", "--store", store]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=kept)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def tokens() -> dict[str, str]:
    """Token by kind, filled by `site`."""
    return {}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str]) -> Iterator[Site]:
    """A server that needs tokens, with a console that has none."""
    directory: Path = tmp_path_factory.mktemp("store")
    store = f"file:{directory}/store"
    server = ServerProcess(store)
    tokens["admin"] = create_token(store, "ada")
    tokens["reader"] = create_token(store, "rita", "--read", "orders.*", "--expires", "2d")
    tokens["publisher"] = create_token(store, "paul", "--publish", "orders.*")
    console = ConsoleProcess(server.url)
    with headrace.connect(server.url, tokens["admin"]) as client:
        for name in ("orders.eu", "secret"):
            client.create_topic(name)
            with client.producer(name) as producer:
                producer.send(b"hello").result()
        yield Site(server, console, client)
    console.close()
    server.close()


def sign_in(page: Page, token: str) -> None:
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def test_an_administrator_sees_everything_and_the_charts_start(visit: Visit, tokens: dict[str, str]) -> None:
    page = visit("/topics")
    expect(page).to_have_title("Sign in · Headrace")
    sign_in(page, tokens["admin"])
    expect(page.get_by_role("link", name="secret")).to_be_visible()
    expect(page.get_by_role("button", name="Create topic")).to_be_visible()
    assert tokens["admin"] not in page.url
    page.goto(page.url.replace("/topics", "/"))
    expect(page.locator(".hr-card", has_text="Topics")).to_contain_text("2")
    page.get_by_label("Account").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_title("Sign in · Headrace")
    page.go_back()
    expect(page).to_have_title("Sign in · Headrace")


def test_a_reader_reads_and_cannot_change_anything(visit: Visit, tokens: dict[str, str]) -> None:
    page = visit("/")
    sign_in(page, tokens["reader"])
    expect(page.locator(".hr-finding")).to_have_text("check_circleNothing in the topics that you may read.")
    page.goto(page.url + "topics")
    expect(page.get_by_role("link", name="orders.eu")).to_be_visible()
    expect(page.get_by_role("link", name="secret")).to_have_count(0)
    expect(page.get_by_role("button", name="Create topic")).to_have_count(0)
    page.get_by_role("link", name="orders.eu").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    page.goto(page.url.replace("orders.eu", "secret"))
    expect(page.get_by_text("Your token may not read this topic")).to_be_visible()


def test_a_publisher_sees_names_only(visit: Visit, tokens: dict[str, str]) -> None:
    page = visit("/topics")
    sign_in(page, tokens["publisher"])
    expect(page.get_by_role("link", name="orders.eu")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("–")


def test_a_wrong_token_is_refused_with_the_reason(visit: Visit) -> None:
    page = visit("/")
    sign_in(page, "hr_0123456789ab_wrong")
    expect(page.get_by_role("alert")).to_contain_text("the token is unknown or revoked")


def test_a_token_is_created_shown_once_and_revoked(visit: Visit, tokens: dict[str, str], site: Site) -> None:
    page = visit("/access")
    sign_in(page, tokens["admin"])
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Create token").click()
    page.get_by_label("Name of its user").fill("max")
    page.get_by_label("May read these topics").fill("orders.*\nsecret.plans")
    page.get_by_label("May publish to these topics").fill("orders.eu")
    page.get_by_label("Only with these groups").fill("reports-*")
    page.get_by_label("Only with these producer ids").fill("till-7")
    page.get_by_label("Expires after").fill("12")
    page.get_by_label("Unit").click()
    page.get_by_role("option", name="hours").click()
    page.get_by_role("button", name="Create", exact=True).click()
    token = page.get_by_role("dialog").locator("code").inner_text()
    with headrace.connect(site.server.url, token) as client:
        identity = client.whoami()
        assert identity.name == "max" and client.list_topics() == ["orders.eu"]
        assert {grant.pattern for grant in identity.grants} == {"orders.*", "secret.plans", "orders.eu"}
        assert {(grant.groups, grant.producers) for grant in identity.grants} == {(("reports-*",), ("till-7",))}
        assert identity.expires_us is not None and 11 * 3600 < identity.expires_us / 1e6 - time.time() < 13 * 3600
        page.get_by_role("button", name="I have saved it").click()
        row = page.locator("tbody tr", has_text="max")
        expect(row).to_contain_text("read on orders.* (groups reports-*; producers till-7)")
        expect(page.get_by_text(token)).to_have_count(0)
        row.get_by_role("button", name="Revoke").click()
        page.get_by_label("Confirmation").fill("max")
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(page.locator("tbody tr")).to_have_count(3)
        with pytest.raises(headrace.errors.Unauthenticated):
            client.whoami()
    page.goto(page.url.replace("/access", "/audit"))
    expect(page.locator("tbody tr", has_text="revoke_token").first).to_contain_text("ada")
    page.get_by_label("Filter").fill("unknown or revoked")
    expect(page.locator("tbody tr").first).to_contain_text("refused")


def test_a_reader_sees_neither_tokens_nor_the_audit_log(visit: Visit, tokens: dict[str, str]) -> None:
    page = visit("/access")
    sign_in(page, tokens["reader"])
    expect(page.get_by_text("Your token may not see other tokens")).to_be_visible()
    expect(page.get_by_text("read on orders.*")).to_be_visible()
    expect(page.get_by_role("button", name="Create token")).to_have_count(0)
    page.goto(page.url.replace("/access", "/audit"))
    expect(page.get_by_text("Your token may not read the audit log")).to_be_visible()


def test_a_session_ends_with_its_token(visit: Visit, tokens: dict[str, str], site: Site) -> None:
    made = site.client.create_token("brief", [("*", ["read"])])
    page = visit("/topics")
    sign_in(page, made.text)
    expect(page.get_by_role("link", name="secret")).to_be_visible()
    site.client.revoke_token(made.token.id)
    expect(page).to_have_title("Sign in · Headrace")


@pytest.mark.parametrize("path", ["/", "/groups", "/audit"])
def test_a_page_that_does_not_ask_the_server_closes_when_its_token_is_revoked(
    visit: Visit, site: Site, path: str
) -> None:
    made = site.client.create_token("brief", [("*", ["read"])])
    page = visit(path)
    sign_in(page, made.text)
    expect(page.locator(".hr-header")).to_be_visible()
    site.client.revoke_token(made.token.id)
    expect(page).to_have_title("Sign in · Headrace")
    page.goto(site.console.url + path)
    expect(page).to_have_title("Sign in · Headrace")


def fetched(site: Site, token: str, path: str) -> str:
    """The HTML of a page, without a browser."""
    with httpx.Client(base_url=site.console.url, trust_env=False, follow_redirects=True, timeout=60.0) as client:
        entered = client.post("/sign-in", data={"token": token, "next": path}, headers={"Origin": site.console.url})
        assert entered.status_code == 200
        return entered.text


def test_a_name_that_reorders_text_is_shown_as_escapes(site: Site) -> None:
    made = site.client.create_token("ri\u202eta", [("orders.*", ["read"])])
    for path in ("/", "/access", "/topic?name=secret"):
        shown = fetched(site, made.text, path)
        assert "\u202e" not in shown and shown.count(r"\u202e") >= 1, path


def test_the_latency_of_all_topics_is_for_those_who_may_read_them(site: Site, tokens: dict[str, str]) -> None:
    is_sampled = False
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_sampled and time.monotonic() < deadline:
        is_sampled = '"name":"p99"' in fetched(site, tokens["admin"], "/")
    assert is_sampled
    shown = fetched(site, tokens["reader"], "/")
    assert '"name":"stored"' in shown and '"name":"p99"' not in shown


SCRIPT = "<img src=x onerror=\"window.hacked='img'\"><script>window.hacked='script'</script>{{ window.hacked='vue' }}"


def test_a_hostile_name_of_a_token_is_text(visit: Visit, tokens: dict[str, str], site: Site) -> None:
    made = site.client.create_token(SCRIPT, [("*", ["read", "publish", "manage"])])
    page = visit("/access")
    sign_in(page, made.text)
    page.get_by_label("Account").click()
    expect(page.get_by_role("menu").get_by_text(SCRIPT)).to_be_visible()
    page.keyboard.press("Escape")
    row = page.locator("tbody tr", has_text=SCRIPT[:40])
    row.get_by_role("button", name="Rotate").click()
    expect(page.get_by_role("dialog")).to_contain_text(SCRIPT)
    page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    new = page.get_by_role("dialog").locator("code").inner_text()
    page.get_by_role("button", name="I have saved it").click()
    expect(row).to_have_count(2)
    audit = visit("/audit")
    expect(audit.get_by_text(SCRIPT[:40]).first).to_be_visible()
    assert [each.evaluate("window.hacked") for each in (page, audit)] == [None, None]
    with headrace.connect(site.server.url, new) as client:
        assert client.whoami().name == SCRIPT
    for token in site.client.list_tokens():
        if token.name == SCRIPT:
            site.client.revoke_token(token.id)


def test_a_reader_sees_neither_checks_nor_settings(visit: Visit, tokens: dict[str, str], site: Site) -> None:
    page = visit("/server")
    sign_in(page, tokens["reader"])
    expect(page.get_by_text("Your token may not see checks and settings")).to_be_visible()
    expect(page.get_by_role("button", name="Check now")).to_have_count(0)
    with headrace.connect(site.server.url, tokens["reader"]) as client:
        for call in (client.describe_settings, client.check_store, client.last_store_check):
            with pytest.raises(headrace.errors.Forbidden):
                call()


def test_wrong_tokens_are_limited_by_address(tokens: dict[str, str], site: Site) -> None:
    console = ConsoleProcess(site.server.url)
    try:
        with httpx.Client(base_url=console.url, trust_env=False, timeout=PATIENCE_SECONDS) as http:

            def enter(token: str) -> httpx.Response:
                return http.post("/sign-in", data={"token": token}, headers={"Origin": console.url})

            for _ in range(3):
                assert enter(tokens["reader"]).status_code == 303
            answers = [enter("hr_0123456789ab_wrong") for _ in range(ATTEMPTS_MAX + 5)]
            refused = [answer for answer in answers if answer.status_code == 429]
            assert answers[0].status_code == 401 and refused
            assert re.search(
                r"Too many wrong tokens from your address \(127.0.0.1\). Try again in \d+ sec", refused[0].text
            )
            assert int(refused[0].headers["retry-after"]) >= 1
    finally:
        console.close()


def test_a_token_that_signs_in_without_end_ends_only_its_own_sessions(tokens: dict[str, str], site: Site) -> None:
    with httpx.Client(base_url=site.console.url, trust_env=False, timeout=PATIENCE_SECONDS) as http:

        def enter(kind: str) -> str:
            entered = http.post("/sign-in", data={"token": tokens[kind]}, headers={"Origin": site.console.url})
            http.cookies.clear()
            return entered.headers["set-cookie"].partition(";")[0]

        def status(cookie: str) -> int:
            return http.get("/topics", headers={"Cookie": cookie}).status_code

        admin = enter("admin")
        readers = [enter("reader") for _ in range(sessions.SESSIONS_MAX + 5)]
        assert status(admin) == 200
        assert status(readers[-SESSIONS_OF_TOKEN_MAX - 1]) == 303
        assert status(readers[-1]) == 200


def on_a_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run it in a thread of its own: the loop of the browser runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


def test_beyond_all_sessions_the_token_with_the_most_loses_one(
    tokens: dict[str, str], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 4)

    async def crowd() -> None:
        known = Sessions(ConsoleSettings(url=site.server.url), allow_anonymous=True)
        admin = await known.sign_in(tokens["admin"])
        readers = [await known.sign_in(tokens["reader"]) for _ in range(3)]
        # A page that is open keeps its session, however long ago it was opened.
        readers[0].pages = 1
        publishers = [await known.sign_in(tokens["publisher"])]
        assert [each.is_over for each in (admin, *readers)] == [False, False, True, False]
        # The readers lose one more; then the publishers have the most.
        publishers += [await known.sign_in(tokens["publisher"]) for _ in range(5)]
        assert [each.is_over for each in (admin, *readers)] == [False, False, True, True]
        assert [each.is_over for each in publishers] == [True] * 4 + [False] * 2
        await known.close()

    on_a_loop(crowd())


def test_abandoned_sessions_end_by_themselves(tokens: dict[str, str], site: Site) -> None:
    async def abandon() -> None:
        settings = ConsoleSettings(url=site.server.url, poll_seconds=0.01)
        known = Sessions(settings, allow_anonymous=True)
        left, open_page, used = [await known.sign_in(tokens["reader"]) for _ in range(3)]
        open_page.pages = 1
        for session in (left, open_page):
            session.used_at -= IDLE_SECONDS + 1
        polling = asyncio.create_task(Poller(settings, known).run())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not left.is_over:
                await asyncio.sleep(0.01)
        polling.cancel()
        assert not open_page.is_over and not used.is_over
        assert known.find(left.id) is None and known.find(open_page.id) is open_page
        await known.close()

    on_a_loop(abandon())
