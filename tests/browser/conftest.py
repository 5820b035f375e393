"""One Chromium for a module; a page of its own, with nothing of earlier pages, for each test.

Playwright runs an event loop in the main thread until it is stopped, and no other can run there. So it ends with the
module: files of other tests follow in the same process.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright
from support.browser import Watched, launch, require_page, watched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    require_page()
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    yield context
    context.close()


@pytest.fixture
def view(context: BrowserContext, address: str) -> Iterator[Watched]:
    """A page of the module's view (its fixture `address`)."""
    view = watched(context, address)
    yield view
    assert view.unexpected() == []
