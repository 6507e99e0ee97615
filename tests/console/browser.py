"""The Chromium of the system, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from tests.server_process import PATIENCE_SECONDS

HOW_TO_INSTALL: Final = "no chromium on PATH: install it with `apt-get install chromium`"
_ARGUMENTS: Final = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

expect.set_options(timeout=PATIENCE_SECONDS * 1000)


def find_chromium() -> str | None:
    """The path of a Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """A browser, closed at the end."""
    playwright: Playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
