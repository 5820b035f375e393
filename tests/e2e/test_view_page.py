"""The page of a running operator on a real control plane: it follows the cluster while somebody looks."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import async_playwright, expect
from support.browser import PATIENCE, chromium, require_page
from support.cluster_scenario import ClusterScenario
from support.operator import Operator, free_address, running_operator
from support.rights import token
from thalweg_view.callers.access import AUDIENCE

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def address() -> str:
    return free_address()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(account: Path, address: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    # The view reads its page once, when the operator starts: the page's modules must be there by then.
    await asyncio.to_thread(require_page)
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    async with running_operator(account, log, extender=("--view-listen", address)) as operator:
        yield operator


async def test_the_page_follows_the_cluster(scene: ClusterScenario, address: str) -> None:
    """With a token for the view the page shows what waits and what is placed, as it happens, without a reload."""
    await scene.nodes("n1", cpu="4")
    await scene.create("small", "1")
    await scene.node_of("small")
    # The operator's own account may list all that the view shows.
    good = await token(scene.api, audience=AUDIENCE)
    complaints: list[str] = []
    async with async_playwright() as playwright:
        executable = await asyncio.to_thread(chromium)
        browser = await playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = await browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda each: complaints.append(str(each)))
        await page.goto(f"http://{address}/")
        await page.get_by_label("Bearer token").fill("no-token-of-this-cluster")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_be_visible(timeout=PATIENCE)
        await page.get_by_label("Bearer token").fill(good)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status").filter(has_text="operator")).to_contain_text("live", timeout=PATIENCE)
        await page.evaluate("window.neverReloaded = true")
        await page.get_by_role("link", name="Pending", exact=True).click()
        await scene.create("large", "64")
        row = page.get_by_role("link", name=f"{scene.namespace}/large", exact=True)
        await expect(row).to_be_visible(timeout=PATIENCE)
        await row.click()
        await expect(page.get_by_label("Why it waits")).to_contain_text("Insufficient cpu", timeout=PATIENCE)
        await page.get_by_role("link", name="Pending", exact=True).click()
        await scene.nodes("n2", cpu="80")
        await scene.node_of("large")
        await expect(row).to_have_count(0, timeout=PATIENCE)
        await page.get_by_role("link", name="Nodes", exact=True).click()
        await expect(page.get_by_label("Map of 2 nodes")).to_be_visible(timeout=PATIENCE)
        assert await page.evaluate("window.neverReloaded")
        await browser.close()
    assert complaints == []
