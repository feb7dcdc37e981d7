"""The README's picture of a report: ``python -P tests/benchmarks/report_picture.py RUN_DIR docs/report.png``.

Needs Chromium. Shown are the head, the matrix, and the first finding with its evidence; what lies between and below
them is left out. The run:

    nox -s matrix -- --baseline 3.5.1 --candidate 3.6.0,3.9.0 --targets sm_90,sm_100 \\
        --cases "column_max*" --cases "softmax*"
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTH = 1200
MARGIN = 6


def main(run: Path, picture: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
        page.goto((run / "report.html").resolve().as_uri())
        page.add_style_tag(content="#compared { display: none }")
        table = page.locator("article.card table").first
        table.scroll_into_view_if_needed()  # what is far below the view is not laid out
        bottom = table.evaluate("table => table.getBoundingClientRect().bottom + window.scrollY")
        page.evaluate("window.scrollTo(0, 0)")
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": bottom + MARGIN}
        page.screenshot(path=picture, full_page=True, clip=clip)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
