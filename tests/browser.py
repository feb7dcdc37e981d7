"""A headless Chromium for pages that must work in one: nothing leaves this machine."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def overflowing(page: Page, selector: str, width: int) -> list[str]:
    """What reaches beyond ``width`` though nothing around it scrolls: tag and text of each such element."""
    found: list[str] = page.evaluate(
        """([selector, width]) => [...document.querySelectorAll(selector)]
        .filter((e) => !e.closest('.scroll, pre') && e.getBoundingClientRect().right > width + 1)
        .map((e) => e.tagName + ' ' + e.textContent.slice(0, 60))""",
        [selector, width],
    )
    return found


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's own Chromium. Fails, and does not skip, where there is none."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.fail(
            "the report's tests need Chromium: `apt-get install chromium` (or your system's like)",
            pytrace=False,
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser: Browser, path: Path, **options: object) -> Iterator[Page]:
    """The page at ``path``; a console message, an error or a request that leaves the file fails the test."""
    context = browser.new_context(**options)
    page = context.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
    page.on("request", lambda request: trouble.append(request.url) if request.url.startswith("http") else None)
    page.on("dialog", lambda dialog: (trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert trouble == []
