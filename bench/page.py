"""How fast the view's page is: the first picture, frames while the pointer moves, and bytes for an update.

``python bench/page.py --nodes 5000 --pods 50000``. It needs Debian's Chromium. The plan is made before the clock
starts; the browser's cache is empty.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from harness.showcase import make_showcase
from playwright.sync_api import BrowserContext, Page, Response, sync_playwright
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.browser import launch, viewing

#: What a view shows when its first picture is there.
PICTURES: Final = {"Flow": "g.block", "Nodes": ".map-sheet canvas[width]", "Pending": "a.pod"}
#: Whether it is there, asked at each frame. The map is drawn as soon as it has a size.
DRAWN: Final = "(selector) => document.querySelector(selector)"
#: Collects the time between frames, in milliseconds, while the pointer moves.
FRAMES: Final = """() => {
  window.frames_ = [];
  let last = performance.now();
  const tick = (now) => { window.frames_.push(now - last); last = now; window.ticking = requestAnimationFrame(tick); };
  window.ticking = requestAnimationFrame(tick);
}"""
_MOVES: Final = 120
_DATA: Final = re.compile("/api/v1/(?!events)")


def open_view(context: BrowserContext, address: str, view: str) -> tuple[Page, float, int]:
    """A new page on a view; seconds to its first picture by the browser's clock; bytes of data, as in each update."""
    origin, _, token = address.partition("/#token=")
    page = context.new_page()
    page.set_default_timeout(600_000)
    page.add_init_script(f"sessionStorage.setItem('thalweg-token', {token!r})")
    data: list[Response] = []
    page.on(
        "response", lambda each: data.append(each) if "/api/v1/" in each.url and "/events" not in each.url else None
    )
    page.goto(f"{origin}/#/{view.lower()}")
    page.wait_for_function(DRAWN, arg=PICTURES[view])
    seconds = page.evaluate("performance.now()") / 1000
    return page, seconds, sum(len(each.body()) for each in data)


def frame_times(page: Page) -> list[float]:
    """Milliseconds of each frame while the pointer crosses the view."""
    page.evaluate(FRAMES)
    for step in range(_MOVES):
        page.mouse.move(60 + step * 7, 260 + (step * 37) % 380)
    page.evaluate("cancelAnimationFrame(window.ticking)")
    return list(page.evaluate("window.frames_"))


@click.command()
@click.option("--nodes", default=5000, show_default=True)
@click.option("--pods", default=50_000, show_default=True)
@click.option("--runs", default=5, show_default=True)
def main(nodes: int, pods: int, runs: int) -> None:
    """Measures and prints a table."""
    table = Table("view", "first picture, s", "frame, ms (median)", "frame, ms (99 %)", "bytes per update")
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "now.json"
        dump.write_text(json.dumps({"kind": "List", "items": list(make_showcase(nodes, pods, datetime.now(UTC)))}))
        with viewing("-f", dump) as address, sync_playwright() as playwright:
            browser = launch(playwright)
            # The server's process starts and reads the state with the first question.
            open_view(browser.new_context(), address, "Flow")
            for view in PICTURES:
                seconds, frames, size = [], [], 0
                for _ in range(runs):
                    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
                        page, took, size = open_view(context, address, view)
                        seconds.append(took)
                        frames += frame_times(page)
                frames.sort()
                table.add_row(
                    view,
                    f"{statistics.median(seconds):.2f}",
                    f"{statistics.median(frames):.0f}",
                    f"{frames[int(len(frames) * 0.99)]:.0f}",
                    f"{size:,}",
                )
            browser.close()
    Console().print(table)


if __name__ == "__main__":
    main()
