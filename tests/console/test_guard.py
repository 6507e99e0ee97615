"""Who may talk to a console: hosts, origins, cookies and headers, without a browser that would help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.console.conftest import Site


@pytest.fixture
def http(site: Site) -> Iterator[httpx.Client]:
    """A client that follows no redirect and keeps cookies."""
    with httpx.Client(base_url=site.console.url, timeout=60.0, trust_env=False) as client:
        yield client


def test_a_console_answers_to_loopback_names_only(http: httpx.Client) -> None:
    for host in ("localhost:1", "127.0.0.1", "[::1]:80", "console.localhost"):
        assert http.get("/sign-in", headers={"Host": host}).status_code == 200
    for host in ("attacker.example", "127.0.0.1.attacker.example:7072", "10.0.0.1"):
        answer = http.get("/sign-in", headers={"Host": host})
        assert answer.status_code == 403
        assert "--allow-host" in answer.text


def test_changes_need_the_origin_of_the_console(http: httpx.Client, site: Site) -> None:
    for headers in ({}, {"Origin": "http://localhost:3000"}, {"Origin": "null"}):
        answer = http.post("/sign-in", data={"token": "hr_x_y"}, headers=headers)
        assert answer.status_code == 403, headers
    host = urlsplit(site.console.url).netloc
    assert http.post("/sign-out", headers={"Origin": f"http://{host}"}).status_code == 303


def test_the_socket_needs_a_session_and_the_origin_of_the_console(http: httpx.Client, site: Site) -> None:
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    own = {"Origin": site.console.url}
    assert http.get(path, headers=own).status_code == 403
    assert http.get("/").status_code == 303
    assert http.get(path, headers=own).status_code == 200
    assert http.get(path, headers={"Origin": "http://localhost:3000"}).status_code == 403
    assert http.get(path, headers={"Sec-Fetch-Site": "same-site"}).status_code == 403


def test_the_session_cookie_is_kept_from_scripts_and_other_sites(http: httpx.Client) -> None:
    cookie = http.get("/").headers["set-cookie"]
    assert re.match(r"headrace_console_\d+=[\w-]{43};", cookie)
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie


def test_a_link_from_another_site_opens_the_page_a_second_time_with_the_cookie(http: httpx.Client) -> None:
    answer = http.get("/topics", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200 and 'http-equiv="refresh"' in answer.text
    assert "set-cookie" not in answer.headers


def test_signing_in_leads_only_to_pages_of_the_console(http: httpx.Client, site: Site) -> None:
    for place in ("//attacker.example", "https://attacker.example", "/\\attacker.example", "javascript:alert(1)"):
        answer = http.post("/sign-in", data={"token": "any", "next": place}, headers={"Origin": site.console.url})
        assert answer.status_code == 303 and answer.headers["location"] == "/"
    page = http.get("/sign-in", params={"next": '/topics?search="><script>'}).text
    assert "<script" not in page


def test_every_answer_has_a_policy_and_scripts_of_pages_its_nonce(http: httpx.Client) -> None:
    http.get("/")
    answer = http.get("/")
    policy = answer.headers["content-security-policy"]
    nonce = re.search(r"'nonce-([\w-]+)'", policy)
    assert nonce is not None
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "http" not in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    scripts = re.findall(r"<script[^>]*>", answer.text)
    assert scripts and all(f'nonce="{nonce.group(1)}"' in script for script in scripts)
    again = http.get("/").headers["content-security-policy"]
    assert again != policy
    for path in ("/static/console.css", "/absent", "/sign-in"):
        headers = http.get(path).headers
        assert headers["x-frame-options"] == "DENY" and "content-security-policy" in headers


def test_visitors_without_a_token_share_a_session_that_none_of_them_can_end(http: httpx.Client, site: Site) -> None:
    cookies = set()
    for _ in range(3):
        with httpx.Client(base_url=site.console.url, timeout=60.0, trust_env=False) as visitor:
            cookies.add(visitor.get("/").headers["set-cookie"].partition(";")[0])
            assert visitor.post("/sign-out", headers={"Origin": site.console.url}).status_code == 303
    assert len(cookies) == 1
    http.get("/")
    assert http.get("/topics").status_code == 200


def test_the_form_takes_a_way_back_that_is_no_address(http: httpx.Client) -> None:
    for place in ("//[", "//evil.example", "/\\evil.example", "/\t/evil.example", "https://evil.example"):
        answer = http.get("/sign-in", params={"next": place})
        assert answer.status_code == 200 and 'name="next" value="/"' in answer.text


def test_a_page_that_does_not_exist_is_plain_text(http: httpx.Client) -> None:
    answer = http.get("/nothing/here")
    assert answer.status_code == 404 and answer.text == "there is no such page"
    assert "set-cookie" not in answer.headers
