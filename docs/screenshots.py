"""Makes the pictures of the page for the docs: ``python docs/screenshots.py``. It needs Chromium.

The cluster is drawn with a fixed seed (tests/support/showcase.py); its plan is the one of `thalweg view -f`.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from support.browser import PATIENCE, launch, viewing  # noqa: E402
from support.showcase import make_showcase, with_controllers  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
NODES: Final = 300
WAITING: Final = 1150
COLOURS: Final = 256
SIZE: Final = {"width": 1280, "height": 760}


def main() -> None:
    """Writes all pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "prod-eu-1.json"
        objects = with_controllers(make_showcase(NODES, WAITING, datetime.now(UTC)))
        dump.write_text(json.dumps({"kind": "List", "items": list(objects)}))
        with viewing("-f", dump) as address, sync_playwright() as playwright:
            browser = launch(playwright)
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport=SIZE, color_scheme=scheme)
                page.set_default_timeout(PATIENCE)
                page.goto(address)
                _flow(page, scheme)
                if scheme == "light":
                    _others(page)
                page.close()
            browser.close()


def _flow(page: Page, scheme: str) -> None:
    page.locator(".summary").wait_for()
    page.locator("g.block").first.wait_for()
    _keep(page, f"view-flow-{scheme}")


def _others(page: Page) -> None:
    _open(page, "Nodes")
    page.get_by_role("heading", name="cpu by zone").wait_for()
    area = page.get_by_role("application")
    area.focus()
    for key in ("Home", "ArrowDown", *["ArrowRight"] * 9):
        page.keyboard.press(key)
    area.blur()
    _keep(page, "view-nodes")
    _open(page, "Pending")
    page.locator("table.workloads").wait_for()
    _keep(page, "view-pending")
    page.get_by_role("combobox", name="By", exact=True).select_option("pod")
    page.locator("a.pod").first.click()
    page.locator('.why[aria-busy="false"]').wait_for()
    _keep(page, "view-pod")
    _open(page, "What if")
    page.get_by_role("textbox", name="node").fill("general-0001")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="Plan with 1 change").click()
    page.locator(".compare").wait_for()
    page.locator('.outcome[aria-busy="false"]').wait_for()
    _keep(page, "view-what-if")
    _open(page, "Policies")
    page.locator(".card").first.wait_for()
    _keep(page, "view-policies")


def _open(page: Page, view: str) -> None:
    page.get_by_role("navigation", name="Views").get_by_role("link", name=view, exact=True).click()


def _keep(page: Page, name: str) -> None:
    """With few colours a picture is small, and looks the same."""
    page.mouse.move(0, 0)
    path = IMAGES / f"{name}.png"
    shot = Image.open(io.BytesIO(page.screenshot(animations="disabled", caret="hide")))
    few = shot.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(path.relative_to(ROOT), path.stat().st_size // 1024, "KiB")  # noqa: T201


if __name__ == "__main__":
    main()
