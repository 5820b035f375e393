"""The page says which devices a node has free, and what a pod claims."""

import json
from pathlib import Path

from playwright.sync_api import BrowserContext, expect
from support.browser import PATIENCE, Watched, viewing, watched
from support.device_clusters import API, GPU, claiming, slice_of
from support.scenario_state import manifest_node

expect.set_options(timeout=PATIENCE)


def dump(folder: Path, *objects: dict) -> Path:
    path = folder / "now.json"
    path.write_text(json.dumps({"kind": "List", "items": list(objects)}))
    return path


def open_pod(view: Watched, name: str) -> None:
    """The page of a pod, as by a link to it."""
    view.page.goto(view.address)
    expect(view.page.get_by_role("heading", level=1).first).to_be_visible()
    view.page.evaluate(f"location.hash = '#/pod/default/{name}'")
    expect(view.page.get_by_role("heading", level=1).first).to_have_text(f"default/{name}")


def test_devices_of_a_node_and_claims_of_pods(context: BrowserContext, tmp_path: Path) -> None:
    """Two of four GPUs are taken; the claim that has them names them, and the one that waits says what it asks for."""
    with viewing(
        "-f",
        dump(
            tmp_path,
            manifest_node("a", "z", cpu="16"),
            {**API, "kind": "DeviceClass", **GPU},
            {**API, "kind": "ResourceSlice", **slice_of("a", 4)},
            *claiming("runs", "a", 2, "gpu-0", "gpu-1"),
            *claiming("waits", "", 3),
        ),
    ) as address:
        view = watched(context, address)
        page = view.open("Nodes")
        page.get_by_role("application").focus()
        page.keyboard.press("ArrowRight")
        row = page.get_by_label("About the nodes").get_by_role("row", name="gpu.example.com devices")
        expect(row).to_contain_text("2 of 4")
        open_pod(view, "runs")
        facts = page.locator(".facts")
        expect(facts).to_contain_text("gpu: gpu.example.com/a/gpu-0, gpu.example.com/a/gpu-1 (runs-gpu)")
        open_pod(view, "waits")
        expect(facts).to_contain_text("gpu: 3 of class gpu, not allocated (waits-gpu)")
        why = page.get_by_label("Why it waits")
        expect(why).to_contain_text("Claim gpu, request r asks for 3: 4 devices match, 2 are free.")
    assert view.unexpected() == []
