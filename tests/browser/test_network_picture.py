"""The network that a policy draws, on the page: its figures are those of the operation, and it stays small."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from support.browser import PATIENCE, Watched, viewing, watched
from support.drawn_networks import FOLDER
from support.rack_networks import BY_RACK, many_nodes, many_pods

expect.set_options(timeout=PATIENCE)
#: Shapes and texts of a picture, whatever the network has.
MOST_SHAPES = 400
#: Pairs of texts of the picture that lie on each other.
OVERLAPS = """() => {
  const texts = [...document.querySelectorAll(".network svg text")]
    .map((each) => ({ text: each.textContent, box: each.getBoundingClientRect() }));
  const on = (one, other) => one.left < other.right && other.left < one.right
    && one.top + 2 < other.bottom && other.top + 2 < one.bottom;
  return texts.flatMap(({ text, box }, at) => texts.slice(at + 1)
    .filter((other) => on(box, other.box)).map((other) => [text, other.text]));
}"""


@pytest.fixture
def large(context: BrowserContext, tmp_path: Path) -> Iterator[Watched]:
    """A view of a network with arcs by the hundred, of which some are full and some have no room."""
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"kind": "List", "items": [*many_nodes(1_000, 100), *many_pods(250), BY_RACK]}))
    with viewing("-f", path) as address:
        view = watched(context, address)
        yield view
        assert view.unexpected() == []


def network_of(view: Watched, policy: str) -> dict[str, Any]:
    """What the operation says."""
    response = view.page.request.get(
        f"{view.origin}/api/v1/network?policy={policy}&most=40",
        headers={"X-Thalweg-Token": view.token},
        timeout=PATIENCE,
    )
    assert response.ok, response.text()
    (flow,) = response.json()["policies"]
    assert isinstance(flow, dict)
    return flow


def show_network(view: Watched, policy: str) -> Page:
    page = view.open("Flow")
    page.get_by_role("combobox", name="Show").select_option(policy)
    expect(page.locator(".network svg")).to_be_visible()
    return page


def rows_of(page: Page) -> list[list[str]]:
    rows = page.locator("main table tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert isinstance(rows, list)
    return rows


@pytest.mark.parametrize("name", ["overflow", "pod-affinity-figure-10", "pod-affinity-figure-7"])
def test_arcs_have_their_flow_limits_and_prices(context: BrowserContext, name: str) -> None:
    """Also an arc with a gain, and the Unscheduled end with its price. No text lies on another."""
    with viewing("-f", FOLDER / f"{name}.yaml") as address:
        view = watched(context, address)
        page = show_network(view, name)
        flow = network_of(view, name)
        assert page.locator(".network path.link").count() == len(flow["arcs"])
        assert page.locator(".network path.link.full").count() == sum(
            arc["state"] == "full" for arc in flow["arcs"] if arc["to"] != "Unscheduled"
        )
        told = [(row[0], row[1], int(row[2]), row[6] or "1") for row in rows_of(page)]
        assert told == [(arc["from"], arc["to"], arc["flow"], arc["gain"]) for arc in flow["arcs"]]
        prices = [row[5] for row in rows_of(page)]
        assert prices == ["" if arc["price"] is None else f"{arc['price']:,}" for arc in flow["arcs"]]
        if any(arc["to"] == "Unscheduled" for arc in flow["arcs"]):
            expect(page.locator(".network g.block.left")).to_contain_text("Unscheduled")
        assert page.evaluate(OVERLAPS) == []
        assert view.unexpected() == []


def test_a_large_network_is_a_small_picture(large: Watched) -> None:
    """Values of a label that tell least are one point, the page says so, and what is full is drawn by itself."""
    page = show_network(large, "by-rack")
    assert 0 < page.locator(".network svg *").count() < MOST_SHAPES
    assert page.evaluate(OVERLAPS) == []
    expect(
        page.get_by_text("The network has 201 arcs: those that tell most are drawn, others together.")
    ).to_be_visible()
    labels = page.locator(".network g.block.group").evaluate_all("all => all.map((each) => each.ariaLabel)")
    assert any(re.fullmatch(r"rack: \d+ more, \d+ units of flow", label) for label in labels)
    assert rows_of(page)[0][-1] == "full"
    page.locator(".network g.block.group").first.hover()
    expect(page.locator(".tip")).to_contain_text("rack")
    assert page.locator(".network path.link.dim").count() > 0
    page.get_by_role("combobox", name="Show").select_option("")
    expect(page.locator(".flow svg")).to_be_visible()


def test_the_policy_leads_to_its_network(large: Watched) -> None:
    """And the address names it."""
    page = large.open("Policies")
    page.get_by_role("link", name="The network that it draws").click()
    expect(page.locator(".network svg")).to_be_visible()
    assert page.url.endswith("#/flow?network=by-rack")
