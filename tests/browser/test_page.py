"""The page in a real Chromium, on the plan of a dump with a thousand nodes: each view, by mouse and by keyboard."""

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect
from support.browser import PATIENCE, Watched, viewing, watched
from support.cli import pod
from support.showcase import make_showcase

expect.set_options(timeout=PATIENCE)
NODES, WAITING = 1000, 4500
SMALL = (20, 100)
#: Names that would be markup, if they were ever taken for it.
HOSTILE = '<script>alert(1)<img src=x onerror="alert(2)">'
#: Number of colours on a canvas.
COLOURS = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""
#: What a page holds that would run if its policy let it.
INJECTED = """() => {
  const script = document.createElement("script");
  script.textContent = "window.ran = 1";
  const image = document.createElement("div");
  image.innerHTML = '<img src="icon.svg" onload="window.ran = 2" style="color: red">';
  document.body.append(script, image);
}"""
#: Ends when every image is loaded. ``wait_for_function`` would evaluate a string in the page, which the policy forbids.
IMAGES_LOADED = """() => Promise.all([...document.images].filter((image) => !image.complete)
  .map((image) => new Promise((ended) => { image.onload = image.onerror = ended })))"""
#: Controls that a reader of the screen could not name.
WITHOUT_NAME = """() => [...document.querySelectorAll("button, input, select, textarea, a, [role]")]
  .filter((each) => each.matches("button, input, select, textarea, a, [role=application], [role=grid], [role=slider]"))
  .filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim() || each.labels?.length))
  .map((each) => each.outerHTML.slice(0, 200))"""
VIEWS = ("Flow", "Nodes", "Pending", "Gangs", "Policies", "Rounds", "Regret", "What if")


def shown(folder: Path, nodes: int, waiting: int) -> AbstractContextManager[str]:
    """A view of a cluster with a hostile pod; its address."""
    hostile = pod(HOSTILE, "1000")
    hostile["metadata"]["namespace"] = "shop"
    job = [pod(f"nightly-{at}", "1000") for at in range(3)]
    for each in job:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "nightly", "controller": True}
        each["metadata"]["ownerReferences"] = [reference]
    path = folder / "now.json"
    objects = [*make_showcase(nodes, waiting, datetime.now(UTC)), hostile, *job]
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    return viewing("-f", path)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shown(tmp_path_factory.mktemp("dump"), NODES, WAITING) as address:
        yield address


@pytest.fixture
def small(context: BrowserContext, tmp_path: Path) -> Iterator[Watched]:
    """A view of a cluster that is planned at once, on a busy machine too, for tests that plan again."""
    with shown(tmp_path, *SMALL) as address:
        view = watched(context, address)
        yield view
        assert view.unexpected() == []


def answer(view: Watched, operation: str, question: dict | None = None) -> dict:
    """What the API says, to compare with what the page shows; to a question, where it is asked one."""
    url, headers = f"{view.origin}/api/v1/{operation}", {"X-Thalweg-Token": view.token}
    method = "GET" if question is None else "POST"
    response = view.page.request.fetch(url, method=method, headers=headers, data=question, timeout=PATIENCE)
    assert response.ok, response.text()
    return response.json()


def number(text: str | None) -> int:
    """The first number of a text."""
    found = re.search(r"[\d,]+", text or "")
    assert found is not None, text
    return int(found[0].replace(",", ""))


def figure(page: Page, name: str) -> Locator:
    """A figure above the views."""
    return page.locator(".figure", has=page.get_by_text(name, exact=True)).locator("dd")


def test_the_figures_are_those_of_the_api(view: Watched) -> None:
    """Nodes, waiting pods and placed pods above each view."""
    page = view.open("Flow")
    expect(figure(page, "Nodes")).to_have_text("1,000")
    overview = answer(view, "overview")
    assert number(figure(page, "Waiting").text_content()) == overview["waiting"] > 0
    assert number(figure(page, "Placed").text_content()) == overview["round"]["placed"] > 0
    least = overview["round"]["leftAtLeast"]["pods"]
    assert 0 < least <= overview["waiting"]
    expect(figure(page, "Waiting")).to_contain_text(f"at least {least:,} in every plan")
    expect(page.get_by_text("dump", exact=False).first).to_be_visible()


def test_the_flow_draws_every_pod(view: Watched) -> None:
    """Blocks say how many pods they stand for: on the left all, on the right the placed ones and those left out."""
    page = view.open("Flow")
    flow = answer(view, "flow")
    blocks = page.locator("g.block.pods")
    expect(blocks).to_have_count(len(flow["sources"]))

    def pods(kind: str) -> int:
        labels = page.locator(f"g.block.{kind}").evaluate_all("all => all.map((each) => each.ariaLabel)")
        return sum(number(re.search(r", ([\d,]+) pods?(,|$)", label)[1]) for label in labels)

    assert pods("pods") == flow["pods"]
    assert pods("group") == pods("node") == flow["placed"]
    assert pods("left") == flow["unplaced"] > 0
    widths = page.locator("path.link").evaluate_all("all => all.map((each) => +each.getAttribute('stroke-width'))")
    assert max(widths) > 10 * min(widths), "width is pods"
    placed = page.locator("path.link:not(.left)")
    colours = set(placed.evaluate_all("all => all.map((each) => each.getAttribute('stroke'))"))
    assert len(colours) > 5, "colour is price"
    expect(page.get_by_text("price", exact=True)).to_be_visible()
    page.locator("g.block.group").first.hover()
    expect(page.locator(".tip")).to_contain_text("pods")
    assert page.locator("path.link.dim").count() > 0, "what is not connected steps back"


@pytest.mark.parametrize("of", ["class", "policy", "queue", "priority", "namespace"])
def test_the_flow_regroups(view: Watched, of: str) -> None:
    """By the choice of the pods' side."""
    page = view.open("Flow")
    page.get_by_role("combobox", name="Pods by").select_option(of)
    expected = {each["name"] for each in answer(view, f"flow?of={of}")["sources"]}
    expect(page.locator("g.block.pods")).to_have_count(len(expected))
    labels = page.locator("g.block.pods").evaluate_all("all => all.map((each) => each.ariaLabel)")
    assert all(any(label.startswith(f"{name}, ") for name in expected) for label in labels)


def test_the_map_has_a_square_for_each_node(view: Watched) -> None:
    """A thousand nodes in different colours, a name at the pointer, and another picture for another resource."""
    page = view.open("Nodes")
    sheet = page.locator(".map canvas").first
    expect(page.get_by_label("Map of 1,000 nodes")).to_be_visible()
    assert sheet.evaluate(COLOURS) > 20
    cpu = sheet.evaluate("(canvas) => canvas.toDataURL()")
    box = sheet.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 8, box["y"] + 45)
    expect(page.locator(".tip")).to_contain_text("cpu:")
    names = set(answer(view, "nodes")["names"])
    assert page.locator(".tip b").text_content() in names
    page.get_by_role("combobox", name="Use of").select_option("memory")
    expect(page.get_by_role("heading", name="memory by zone")).to_be_visible()
    assert sheet.evaluate("(canvas) => canvas.toDataURL()") != cpu
    page.get_by_label("Find").fill("zone-b")
    zones = answer(view, "nodes")["zone"]
    expect(page.get_by_text(f"{zones.count('zone-b')} nodes found")).to_be_visible()


def test_the_map_is_walked_by_keys(view: Watched) -> None:
    """Arrow keys choose a node, and its resources are told beside the map."""
    page = view.open("Nodes")
    area = page.get_by_role("application")
    area.focus()
    chosen = page.locator("#map-chosen")
    seen = set()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "End", "Home"):
        before = chosen.text_content()
        page.keyboard.press(key)
        expect(chosen).not_to_have_text(before or "")
        seen.add((chosen.text_content() or "").partition(",")[0])
    assert len(seen) >= 4
    assert seen <= set(answer(view, "nodes")["names"])
    name = (chosen.text_content() or "").partition(",")[0]
    expect(page.get_by_role("heading", name=name)).to_be_visible()


def pod_by_pod(view: Watched) -> Page:
    """The page of pending pods with a row for each pod."""
    page = view.open("Pending")
    page.get_by_role("combobox", name="By", exact=True).select_option("pod")
    return page


def test_what_waits_has_a_line_for_each_workload(view: Watched) -> None:
    """How many of its pods wait and why; its name opens its pods."""
    page = view.open("Pending")
    pending = answer(view, "pending?limit=1000")
    rows = page.locator("table.workloads tbody tr")
    expect(rows).to_have_count(len(pending["workloads"]))
    first = next(each for each in pending["workloads"] if each["workload"] == "job/default/nightly")
    row = rows.filter(has=page.get_by_role("button", name=first["workload"], exact=True))
    expect(row).to_contain_text(f"{first['waiting']:,} of {first['pods']:,}")
    row.get_by_role("button", name=first["workload"]).click()
    expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", str(first["waiting"] + 1))


def test_the_use_of_a_zone_is_requested_over_allocatable(view: Watched) -> None:
    """Of its nodes together: a small full node weighs less than a large empty one."""
    page = view.open("Nodes")
    nodes = answer(view, "nodes")
    cpu, sums = nodes["resources"]["cpu"], dict[str, list[int]]()
    for at, zone in enumerate(nodes["zone"]):
        found = sums.setdefault(zone, [0, 0])
        found[0] += cpu["used"][at] + cpu["planned"][at]
        found[1] += cpu["allocatable"][at]
    table = page.locator(".side table").last
    expect(table.get_by_role("columnheader", name="Requested")).to_be_visible()
    for zone, (requested, allocatable) in sums.items():
        row = table.get_by_role("row", name=zone)
        shown = float((row.locator("td").last.text_content() or "").removesuffix(" %"))
        assert abs(shown - 100 * requested / allocatable) <= 0.51


def test_the_pending_list_has_all_pods_and_few_rows(view: Watched) -> None:
    """Only rows in sight exist; the last one comes when one scrolls there, and a filter narrows the list."""
    page = pod_by_pod(view)
    grid = page.get_by_role("grid")
    pending = answer(view, "pending?limit=1000")
    expect(grid).to_have_attribute("aria-rowcount", str(pending["total"] + 1))
    first = pending["items"][0]
    row = page.locator('[role="row"][aria-rowindex="2"]')
    expect(row).to_contain_text(first["pod"])
    expect(row).to_contain_text(first["reason"])
    assert page.locator(".rows > [role=row]").count() < 60
    grid.evaluate("(element) => element.scrollTo(0, element.scrollHeight)")
    last = answer(view, f"pending?offset={pending['total'] - 1}&limit=1")["items"][0]
    expect(page.locator(f'[role="row"][aria-rowindex="{pending["total"] + 1}"]')).to_contain_text(last["pod"])
    page.get_by_label("Find").fill("notebook")
    found = answer(view, "pending?query=notebook")["total"]
    expect(grid).to_have_attribute("aria-rowcount", str(found + 1))
    page.get_by_role("button", name="Pod").click()
    names = [each["pod"] for each in answer(view, "pending?query=notebook&sort=pod")["items"]]
    expect(row).to_contain_text(names[0])


def test_the_pending_list_is_walked_by_keys(view: Watched) -> None:
    """Down, End, Home, and Enter opens the pod's page."""
    page = pod_by_pod(view)
    row = page.locator('[role="row"][aria-rowindex="2"]')
    expect(row).to_contain_text("/")
    row.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator('[role="row"][aria-rowindex="3"]')).to_be_focused()
    page.keyboard.press("End")
    total = answer(view, "pending?limit=1")["total"]
    expect(page.locator(f'[role="row"][aria-rowindex="{total + 1}"]')).to_be_focused()
    page.keyboard.press("Home")
    expect(row).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(answer(view, "pending?limit=1")["items"][0]["pod"])


def test_gangs_policies_and_shares(view: Watched) -> None:
    """Each gang with its numbers; each policy with what it governs; each queue with its share."""
    page = view.open("Gangs")
    gangs = answer(view, "gangs")["gangs"]
    expect(page.locator("tbody tr")).to_have_count(len(gangs))
    expect(page.locator("tbody tr").first).to_contain_text(gangs[0]["gang"])
    page = view.open("Policies")
    for policy in answer(view, "policies")["policies"]:
        card = page.get_by_label(f"Policy {policy['name']}", exact=True)
        expect(card).to_contain_text(policy["selects"])
    for queue in answer(view, "queues")["queues"]:
        expect(page.get_by_role("row", name=queue["name"])).to_be_visible()


def test_a_pods_page_says_why_it_waits(small: Watched) -> None:
    """By the words of the API, and so of the command line."""
    pending = answer(small, "pending?limit=1")["items"][0]
    page = pod_by_pod(small)
    page.get_by_label("Find").fill(pending["pod"])
    page.get_by_role("link", name=pending["pod"], exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(pending["pod"])
    why = page.get_by_label("Why it waits")
    expect(why).to_have_attribute("aria-busy", "false")
    told = answer(small, "why", {"target": pending["pod"]})
    expect(why).to_contain_text(told["text"])
    expect(why).to_contain_text(told["next"])


def test_what_if(small: Watched) -> None:
    """The form's changes are asked, and the two plans stand side by side."""
    page = small.open("What if")
    node = answer(small, "nodes")["names"][0]
    page.get_by_role("combobox", name="Change").select_option("Drain")
    page.get_by_role("textbox", name="node").fill(node)
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("textbox", name="node")).to_have_value("")
    expect(page.get_by_role("combobox", name="Change")).to_have_value("Drain")
    page.get_by_role("button", name="Plan with 1 change").click()
    outcome = page.get_by_label("Outcome")
    expect(outcome.get_by_role("row", name="Waiting pods")).to_be_visible()
    told = answer(small, "what-if", {"changes": [{"kind": "Drain", "node": node}]})
    row = outcome.get_by_role("row", name="Waiting pods")
    assert number(row.locator("td").nth(1).text_content()) == told["after"]["waiting"]
    row = outcome.get_by_role("row", name="Pods with a node")
    assert number(row.locator("td").nth(1).text_content()) == told["after"]["withNode"]
    expect(outcome.locator(".in-short")).to_have_text(told["inShort"] or "No number of pods differs.")
    expect(outcome.locator("table.workloads tbody tr")).to_have_count(len(told["workloads"]))
    page.get_by_role("textbox", name="node").fill("no-such-node")
    page.get_by_role("button", name="Add", exact=True).click()
    small.expected = ("400", "404")
    page.get_by_role("button", name="Plan with 2 changes").click()
    expect(outcome.get_by_role("alert")).to_contain_text("no-such-node")


def test_a_token_is_asked_for_and_stays_in_the_tab(view: Watched) -> None:
    """A bad token is refused with the view's sentence; a good one is in no address and in no storage that stays."""
    view.expected = ("401",)
    page = view.page
    page.goto(f"{view.origin}/")
    page.get_by_label("Bearer token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("token")
    page.get_by_label("Bearer token").fill(view.token)
    page.get_by_role("button", name="Open").click()
    expect(figure(page, "Nodes")).to_have_text("1,000")
    assert view.token not in page.url
    assert page.evaluate("localStorage.length") == 0
    assert view.token in page.evaluate("JSON.stringify(sessionStorage)")
    assert page.context.cookies() == []
    page.reload()
    expect(figure(page, "Nodes")).to_have_text("1,000")
    page.goto(f"{view.origin}/#token=wrong")
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("token")


def test_the_token_leaves_the_address_at_once(view: Watched) -> None:
    """Neither the address bar, nor the history, nor a request has it but as a header."""
    sent = []
    view.page.on("request", lambda each: sent.append(each.url))
    page = view.open("Flow")
    expect(figure(page, "Nodes")).to_have_text("1,000")
    assert view.token not in page.url
    assert not any(view.token in url for url in sent)
    page.go_back()
    assert view.token not in page.url


def test_a_hostile_name_is_text(small: Watched) -> None:
    """A pod whose name is a script is shown by its name, in the list and on its own page; nothing of it runs."""
    dialogs = []
    small.page.on("dialog", lambda each: (dialogs.append(each.message), each.dismiss()))
    page = pod_by_pod(small)
    page.get_by_label("Find").fill("onerror")
    expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "2")
    link = page.locator("a.pod")
    expect(link).to_have_text(f"shop/{HOSTILE}")
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"shop/{HOSTILE}")
    expect(page.get_by_label("Why it waits")).to_have_attribute("aria-busy", "false")
    assert dialogs == []
    assert page.locator("main img").count() == 0
    assert page.locator("main script").count() == 0


def test_nothing_inline_may_run(view: Watched) -> None:
    """The policy stops what would have come into the page all the same."""
    view.expected = ("violation", "Content Security Policy")
    page = view.open("Flow")
    expect(figure(page, "Nodes")).to_have_text("1,000")
    page.evaluate(INJECTED)
    page.evaluate(IMAGES_LOADED)
    for directive in ("script-src-elem", "script-src-attr", "style-src-attr"):
        assert any(f"violation: {directive}" in each for each in view.complaints), view.complaints
    assert page.evaluate("window.ran") is None


def test_every_view_by_keyboard(view: Watched) -> None:
    """Tab reaches each view's link, Enter opens it, and the flow is walked by arrow keys."""
    page = view.open("Flow")
    expect(page.locator("g.block").first).to_be_visible()
    page.locator("body").press("Tab")
    for title in VIEWS:
        link = page.get_by_role("link", name=title, exact=True)
        link.press("Enter")
        expect(link).to_have_attribute("aria-current", "page")
        expect(page.get_by_role("heading", level=1).first).to_be_visible()
    page = view.open("Flow")
    first, second = (page.locator("g.block.pods").nth(at) for at in range(2))
    expect(first).to_be_visible()
    expect(page.get_by_role("link", name="Flow", exact=True)).to_have_attribute("aria-current", "page")
    first.press("ArrowDown")
    expect(second).to_be_focused()
    second.press("ArrowRight")
    expect(page.locator("g.block.group:focus, g.block.left:focus")).to_have_count(1)


def test_every_control_has_a_name(view: Watched) -> None:
    """For those who hear the page."""
    for title in VIEWS:
        page = view.open(title)
        expect(page.get_by_role("heading", level=1).first).to_be_visible()
        without_name = page.evaluate(WITHOUT_NAME)
        assert without_name == [], title


def test_dark_and_printed(view: Watched) -> None:
    """Dark by the system's choice, with other colours of data; on paper without what nobody can press there."""
    page = view.open("Flow")
    link = page.locator("path.link:not(.left)").first
    expect(link).to_be_visible()
    ground, colour = "getComputedStyle(document.body).backgroundColor", link.get_attribute("stroke")
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) != light
    expect(link).not_to_have_attribute("stroke", colour or "")
    page.emulate_media(color_scheme="light", media="print")
    expect(page.get_by_role("navigation")).to_be_hidden()
    expect(page.locator("g.block").first).to_be_visible()


def test_a_view_that_went_away_is_told(view: Watched) -> None:
    """While the view does not answer, the page says so and keeps what it showed; then it goes on by itself."""
    view.expected = ("ERR_FAILED", "Failed to load")
    page = view.open("Policies")
    expect(page.locator(".card").first).to_be_visible()
    page.route("**/api/v1/**", lambda route: route.abort())
    page.get_by_role("link", name="Gangs", exact=True).click()
    expect(page.get_by_role("alert").first).to_contain_text("does not answer")
    page.unroute("**/api/v1/**")
    page.get_by_role("link", name="Policies", exact=True).click()
    expect(page.locator(".card").first).to_be_visible()
