"""The report in a real browser, on request: pytest -m browser (pip install playwright, and chromium on the PATH)."""

from __future__ import annotations

import shutil

import pytest

from analysis.report import report
from tests.analysis.frames import TWELVE, frame

pytestmark = pytest.mark.browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = (360, 768, 1280, 1920)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report(frame(TWELVE, ("1", "4", "16"), (0, 1)), rerun=False), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_console_message_no_sideways_scroll_every_figure_seen(browser, address, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(request.url))
    page.goto(address)
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = [figure.bounding_box() for figure in page.query_selector_all("figure svg")]
    assert len(boxes) == 9
    assert all(box["width"] >= 320 and box["height"] > 40 and box["x"] + box["width"] <= width for box in boxes)
    page.close()


def test_table_opens(browser, address):
    page = browser.new_page(viewport={"width": 360, "height": 900})
    page.goto(address)
    page.click("summary >> nth=0")
    assert page.query_selector("table").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()
