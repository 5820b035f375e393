"""The page on what is not a usual dump: recorded rounds, a cluster of nothing, strange names, a view that was away."""

import json
import re
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import BrowserContext, Error, Page, expect
from support.browser import PATIENCE, viewing, watched
from support.cli import node, pod
from support.model import node as model_node
from support.model import pod as model_pod
from support.model import snapshot
from support.operator import free_address
from support.recorded_rounds import request_of
from support.scenario_state import scenario_of
from thalweg_operator.planning.reports.record import RecordWriter
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.regret import ClosedRoom, ClosingReason, RegretFigure, RegretRecord
from flowcore.questions.scenario.reading.saved import state_of

expect.set_options(timeout=PATIENCE)
#: From right to left, with a mark that turns the direction of what follows; a picture; as long as a name may be.
STRANGE = ("מטען\u202eabc", "pod-🚢", "n" * 253, '"><svg onload=alert(1)>')
POLICIES = 2000
#: Longer than there is room for on a phone.
LONG = "nightly-archive-of-all-orders-of-the-whole-company"


def dump(folder: Path, *objects: dict) -> Path:
    path = folder / "now.json"
    path.write_text(json.dumps({"kind": "List", "items": list(objects)}))
    return path


def record(folder: Path, *crowds: Snapshot) -> None:
    """A round for each crowd, as different runs of a planner would have recorded them."""
    writer = RecordWriter(folder)
    for number, crowd in enumerate(crowds, 1):
        request = request_of(crowd)
        reply = run_request(Replica(), request)
        writer.write(msgspec.structs.replace(request, number=number), msgspec.structs.replace(reply, number=number))


def as_shown(name: str) -> str:
    """A name as the page has it: a mark that turns the direction of what follows is an escape."""
    return name.replace("\u202e", "\\u202e")


def figure(page: Page, name: str) -> str:
    return f".figure:has(dt:text-is('{name}')) dd"


def test_recorded_rounds_are_stepped_through(context: BrowserContext, tmp_path: Path) -> None:
    """Buttons, keys and a click go from round to round, and each view shows the nodes and pods of that round."""
    nodes = [model_node(f"n{index}", 4000) for index in range(3)]
    large = model_pod("large", 9000)
    record(tmp_path, *(snapshot(nodes[:count], [model_pod("fits", 1000), large]) for count in (1, 2)), snapshot(
        [*nodes, model_node("wide", 16000)], [large]
    ))  # fmt: skip
    with viewing("--record", tmp_path) as address:
        view = watched(context, address)
        page = view.open("Nodes")
        shown = page.locator(figure(page, "Nodes"))
        expect(shown).to_have_text("4")
        expect(page.get_by_label("Map of 4 nodes")).to_be_visible()
        page.get_by_role("button", name="Earlier round").click()
        expect(page.get_by_label("Map of 2 nodes")).to_be_visible()
        expect(shown).to_have_text("2")
        page.get_by_role("slider", name="Round").press("ArrowLeft")
        expect(page.get_by_label("Map of 1 node.")).to_be_visible()
        expect(page.get_by_role("button", name="Earlier round")).to_be_disabled()
        page.get_by_role("link", name="Pending", exact=True).click()
        page.get_by_role("link", name="default/large", exact=True).click()
        why = page.get_by_label("Why it waits")
        expect(why).to_contain_text("NodeResourcesFit")
        expect(why).to_contain_text("cannot be planned again")
        page.get_by_role("link", name="Rounds", exact=True).click()
        page.get_by_role("button", name="2", exact=True).click()
        expect(shown).to_have_text("2")
        page.get_by_role("button", name="Newest").click()
        expect(shown).to_have_text("4")
        page.get_by_role("link", name="What if", exact=True).click()
        expect(page.get_by_text("cannot be planned again")).to_be_visible()
        expect(page.get_by_role("button", name="Add", exact=True)).to_have_count(0)
    assert [each for each in view.complaints if "Failed to load" not in each] == []


def test_audits_of_an_operator(context: BrowserContext, tmp_path: Path) -> None:
    """A state of an operator that audits: a chart for each finding, and whose placement closed the room."""
    scenario = scenario_of([node("n1")])
    for number in range(3):
        waits, memory = ("WaitingPods", ""), ("StrandedRoom", "memory")
        figures = RegretFigure(*waits, 9, number, 5), RegretFigure(*memory, 2**32, 2**30, 2**31)
        closed = ClosedRoom(
            waiting="shop/waits", pods=4, reason=ClosingReason.FRAGMENTATION, pod=f"{STRANGE[3]}/p{number}",
            scheduler=STRANGE[0], node="n1", to="n2", placed=1_000_000.0 + number,
        )  # fmt: skip
        scenario.regret.append(RegretRecord(1_000_000.0 + 900 * number, figures, 1, (closed,)))
    state = tmp_path / "state.jsonl"
    state.write_bytes(b"".join(state_of(scenario)))
    with viewing("-f", state) as address:
        view = watched(context, address)
        page = view.open("Regret")
        expect(page.get_by_text("3 audits.")).to_be_visible()
        for title in ("Pods that wait and could run", "Stranded memory"):
            chart = page.get_by_label(title)
            expect(chart.locator("canvas")).to_be_visible()
            expect(chart).to_contain_text("at least")
        expect(page.get_by_text("The room of 1 pod is free now")).to_be_visible()
        by = page.locator(".scroll table").first.locator("tbody tr")
        expect(by).to_have_count(1)
        expect(by).to_contain_text("12")
        rows = page.locator(".scroll table").nth(1).locator("tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.first).to_contain_text("p2")
        expect(rows.first).to_contain_text(as_shown(STRANGE[0]))
    assert view.unexpected() == []


@pytest.mark.parametrize("running", [0, 1])
def test_next_to_nothing(context: BrowserContext, tmp_path: Path, running: int) -> None:
    """One node, with a pod or without, and nothing that waits: each view says so instead of drawing."""
    pods = [pod("runs", nodeName="n0")][:running]
    with viewing("-f", dump(tmp_path, node("n0"), *pods)) as address:
        view = watched(context, address)
        said = {
            "Flow": "No pod was planned in this round.",
            "Pending": "No pod waits.",
            "Gangs": "There are no gangs.",
            "Policies": "There are no queues",
        }
        for title, words in said.items():
            expect(view.open(title).locator("main").get_by_text(words)).to_be_visible()
        expect(view.open("Nodes").get_by_label("Map of 1 node.")).to_be_visible()
        assert view.unexpected() == []


def test_strange_names_and_thousands_of_policies(context: BrowserContext, tmp_path: Path) -> None:
    """Each name is text, stays inside the window and leads to its pod; of many policies a name finds the one."""
    policies = [
        {
            "apiVersion": "scheduling.thalweg/v1alpha1",
            "kind": "FlowSchedulingPolicy",
            "metadata": {"name": f"policy-{index:04}"},
            "spec": {"selects": {"podSelector": {"matchLabels": {"app": f"a{index}"}}}},
        }
        for index in range(POLICIES)
    ]
    waiting = [pod(name, "64") for name in STRANGE]
    with viewing("-f", dump(tmp_path, node("n0"), *waiting, *policies)) as address:
        view = watched(context, address)
        for name in STRANGE:
            page = view.open("Pending")
            page.get_by_role("link", name=f"default/{as_shown(name)}", exact=True).click()
            expect(page.get_by_role("heading", level=1)).to_have_text(f"default/{as_shown(name)}")
            expect(page.get_by_label("Why it waits")).to_contain_text("Insufficient cpu")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.set_viewport_size({"width": 400, "height": 700})
        for title in ("Flow", "Nodes", "Pending", "Gangs", "Policies", "What if"):
            view.open(title)
            expect(page.get_by_role("heading", level=1).first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), title
        page = view.open("Policies")
        expect(page.get_by_text(f"of {POLICIES + 2} shown")).to_be_visible()  # two are built in
        assert page.locator(".card").count() < POLICIES
        page.get_by_label("Find").fill("policy-1999")
        expect(page.get_by_role("heading", name="policy-1999")).to_be_visible()
        expect(page.locator(".card")).to_have_count(1)
        assert view.unexpected() == []


def crowded() -> list[dict]:
    """Pods of another scheduler: one leaves and one moves for an urgent one, others wait for different things."""
    runs = []
    for name, place, cpu in (("a", "n0", "1"), ("b", "n0", "3"), ("c", "n1", "6")):
        each = pod(name, cpu, nodeName=place, priority=0 if place == "n0" else 5000, status={"phase": "Running"})
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
        each["metadata"]["ownerReferences"] = [owner]
        runs.append(each)
    waits = [
        pod("urgent", "4", priority=1000, schedulerName="default-scheduler"),
        *(pod(f"{LONG}-{number}", "9", schedulerName="default-scheduler") for number in range(3)),
    ]
    for each in waits[1:]:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": LONG, "uid": LONG, "controller": True}
        each["metadata"]["ownerReferences"] = [owner]
        each["metadata"]["annotations"] = {"scheduling.thalweg/gang": LONG, "scheduling.thalweg/gang-min-member": "3"}
    label = pod("label", "1", nodeSelector={"disk": "ssd"}, schedulerName="default-scheduler")
    return [node("n0", "4"), node("n1", "8"), *runs, *waits, label]


def test_a_dump_shows_its_audit_and_what_its_plan_costs(context: BrowserContext, tmp_path: Path) -> None:
    """Its only round needs no chart; who leaves, whose pods these are and what is short stand on the first screen."""
    with viewing("-f", dump(tmp_path, *crowded())) as address:
        view = watched(context, address)
        page = view.open("Flow")
        expect(page.locator(figure(page, "Would leave"))).to_have_text("2 1 move")
        expect(page.locator(figure(page, "Gap"))).to_have_text("\N{EN DASH}")
        words = page.locator(".in-words")
        expect(words).to_contain_text("5 pods wait: 1 gets a node, 4 have none.")
        expect(words).to_contain_text("default-scheduler binds them. Thalweg changes nothing.")
        left = page.locator("g.block.left")
        expect(left).to_have_count(2)
        expect(page.locator("g.block.left text").filter(has_text="node labels")).to_be_visible()
        left.filter(has_text="node labels").click()
        expect(page.locator("table.workloads tbody tr")).to_have_count(1)
        page = view.open("Rounds")
        expect(page.locator("table.rounds tbody tr")).to_have_count(1)
        assert page.locator("canvas").count() == 0
        page = view.open("Regret")
        findings = page.get_by_role("table", name="Findings")
        expect(findings.get_by_role("row", name="Pods that wait and could run")).to_contain_text("5 pods wait; no plan")
        assert page.locator("canvas").count() == 0
        page.goto(f"{view.origin}/#/pod/default/urgent")
        expect(page.get_by_text("No policy governs this pod: default-scheduler binds it.")).to_be_visible()
        page.get_by_role("link", name="default/b", exact=True).click()
        expect(page.get_by_text("It leaves for default/urgent.")).to_be_visible()
        expect(page.get_by_text(re.compile("Its replacement goes to n1|No node is planned for"))).to_be_visible()
        assert view.unexpected() == []


@pytest.mark.parametrize("path", ["pods/default/urgent", "pod/urgent", "pod/default/urgent/x", "flow/x", "%zz", "x"])
def test_an_address_of_no_page_is_said(context: BrowserContext, tmp_path: Path, path: str) -> None:
    """No other page is shown in its place."""
    with viewing("-f", dump(tmp_path, node("n0"))) as address:
        view = watched(context, address)
        page = view.open("Flow")
        page.goto(f"{view.origin}/#/{path}")
        expect(page.get_by_role("heading", level=1)).to_have_text("No such page")
        expect(page.get_by_text("This address leads to no page")).to_contain_text(f"#/{path}")
        assert view.unexpected() == []


def test_on_a_phone(context: BrowserContext, tmp_path: Path) -> None:
    """The head is one row, names keep their ends, and what is said of a name stands below it, inside the window."""
    with viewing("-f", dump(tmp_path, *crowded())) as address:
        view = watched(context, address)
        view.page.set_viewport_size({"width": 390, "height": 844})
        page = view.open("Flow")
        label = page.locator("g.block.pods text").filter(has_text="…").first
        expect(label).to_contain_text("company")
        header = page.locator("header").bounding_box()
        logo = page.locator(".brand img").bounding_box()
        assert header is not None and logo is not None  # noqa: PT018
        assert header["height"] < 60
        assert logo["y"] >= header["y"]
        assert len({link.bounding_box()["y"] for link in page.locator("nav a").all()}) == 1  # type: ignore[index]
        for title in ("Pending", "Gangs"):
            page = view.open(title)
            expect(page.get_by_role("link", name=title, exact=True)).to_be_in_viewport()
            row = page.locator("table.stacks tbody tr").filter(has_text="whole").first
            name, reason = row.locator(".name").bounding_box(), row.locator(".text").bounding_box()
            assert name is not None and reason is not None  # noqa: PT018
            assert reason["y"] >= name["y"] + name["height"] - 1
            assert reason["x"] >= 0 and reason["x"] + reason["width"] <= 390  # noqa: PT018
        page = view.open("Pending")
        page.get_by_role("combobox", name="By", exact=True).select_option("pod")
        row = page.locator('[role="row"][aria-rowindex="2"]')
        name, reason = row.locator(".pod").first.bounding_box(), row.locator(".reason").bounding_box()
        assert name is not None and reason is not None  # noqa: PT018
        assert reason["y"] >= name["y"] + name["height"] - 1
        assert reason["x"] + reason["width"] <= 390
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert view.unexpected() == []


def test_what_is_not_seen_is_escaped(context: BrowserContext, tmp_path: Path) -> None:
    """A tenant's text turns no sentence around, neither in a reason nor in a title that comes with the pointer."""
    gated = pod("gated", schedulingGates=[{"name": "\u202eopen\x1b[2J"}])
    with viewing("-f", dump(tmp_path, node("n0"), gated)) as address:
        view = watched(context, address)
        page = view.open("Pending")
        shown = "its scheduling gates are closed: \\u202eopen\\x1b[2J"
        expect(page.locator("table.workloads")).to_contain_text(shown)
        page.get_by_role("combobox", name="By", exact=True).select_option("pod")
        expect(page.get_by_title(shown)).to_be_visible()
        unseen = "() => /[\\u202a-\\u202e\\x00-\\x08\\x0e-\\x1f\\x7f]/.test(document.body.outerHTML)"
        assert page.evaluate(unseen) is False
        assert view.unexpected() == []


def test_a_view_that_ends_and_one_that_follows(context: BrowserContext, tmp_path: Path) -> None:
    """The page keeps what it shows and says that nobody answers. The next view's token is another: the page asks."""
    path, port = dump(tmp_path, node("n0"), pod("large", "64")), free_address().rpartition(":")[2]
    with viewing("-f", path, "--port", port) as address:
        view = watched(context, address)
        page = view.open("Pending")
        expect(page.get_by_role("link", name="default/large")).to_be_visible()
        expect(page.locator("p.source")).to_be_visible()  # the head, which says that the connection is lost
    expect(page.get_by_text("connection lost")).to_be_visible()
    expect(page.get_by_role("link", name="default/large")).to_be_visible()
    with viewing("-f", path, "--port", port) as address:
        # Nobody does anything: the page asks again by itself, and its token is no longer good.
        expect(page.get_by_role("alert")).to_contain_text("token")
        page.get_by_label("Bearer token").fill(address.partition("#token=")[2])
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name="default/large")).to_be_visible()
        expect(page.get_by_text("connection lost")).to_have_count(0)


def test_the_page_says_that_it_waits(context: BrowserContext, tmp_path: Path) -> None:
    """Before the first answer there are words, not an empty window, whichever view is open."""
    with viewing("-f", dump(tmp_path, node("n0"))) as address:
        view = watched(context, address)
        held = []
        view.page.route("**/api/v1/**", lambda route: held.append(route))  # noqa: PLW0108 - playwright wants a function of Python
        for title in ("Rounds", "Gangs", "What if"):
            page = view.open(title)
            expect(page.get_by_text("Waiting for the first answer")).to_be_visible()
            expect(page.get_by_text("There was no round yet")).to_have_count(0)
        for each in held:
            with suppress(Error):  # a request of a page that is gone
                each.abort()


def test_the_list_on_paper(context: BrowserContext, tmp_path: Path) -> None:
    """Thousands of pods: it prints what is in sight, and of 1,500 workloads shows 1,000; both it says."""
    with viewing("-f", dump(tmp_path, node("n0"), *(pod(f"p{index}", "64") for index in range(1500)))) as address:
        page = watched(context, address).open("Pending")
        expect(page.get_by_text("1,500 pods of 1,500 workloads")).to_be_visible()
        expect(page.get_by_text("and 500 workloads more")).to_be_visible()
        page.get_by_role("combobox", name="By", exact=True).select_option("pod")
        expect(page.get_by_role("row", name="default/p0")).to_be_visible()
        page.emulate_media(media="print")
        expect(page.get_by_text("Of 1,500 pods only those in sight are printed.")).to_be_visible()
        # All rows would take more than 60,000 pixels; how many are in sight depends on when the page was laid out.
        assert page.evaluate("document.documentElement.scrollHeight") < 20_000
