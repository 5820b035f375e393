"""``thalweg demo``: each scene's claim is true of its table as printed, and each scene fits a terminal window."""

import asyncio
import inspect
import re
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest
from support.cli import thalweg
from support.safety import check_plan, plan_and_check
from thalweg.demo import constraints, pods, preemption, replacements
from thalweg.demo.extender import Exchange, answer_text, exchanges
from thalweg.demo.extender import claim as extender_claim
from thalweg.demo.scene import Scene
from thalweg.demo.scene_result import ClaimError, SceneResult
from thalweg.demo.show import first_scenes, more_scenes
from thalweg_extender import INFEASIBLE_MESSAGE

from flowcore.model.advice import HELD_MESSAGE
from flowcore.planning.round import RoundResult, run_one_by_one, run_round

FIRST = first_scenes()
COMPARED = (*FIRST, *more_scenes())
URGENT = "An urgent pod on a full cluster"
TITLES = [*(scene.title for scene in COMPARED), "Through kube-scheduler", "In the place of another", URGENT]
#: Scenes with pods of which all are placed or none; one by one, no pod heeds that.
ATOMIC = {"Two gangs, room for one": ("red", "blue"), "All in one rack, or none": ("ring",)}

Table = dict[str, tuple[Counter[str], Counter[str]]]
scenes = pytest.mark.parametrize("scene", COMPARED, ids=lambda scene: scene.title)


@cache
def printed(*options: str, columns: int = 200) -> str:
    """What the command prints."""
    done = thalweg("demo", *options, columns=columns)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def pages(text: str) -> dict[str, list[str]]:
    """Title of each scene -> its lines, the title and the claim included."""
    found = {}
    for block in text.split("\n\n"):
        lines = block.splitlines()
        heading = re.fullmatch(r"(\d+)\. (.+)", lines[0])
        if heading:
            assert int(heading[1]) == len(found) + 1
            found[heading[2].strip()] = lines
    return found


def cells(page: list[str]) -> list[list[str]]:
    """The cells of a scene's table, header first."""
    (start,) = [at for at, line in enumerate(page) if line.startswith("POD")]
    split = [re.split(r" {2,}", line.strip()) for line in page[start:]]
    return [row for at, row in enumerate(split) if all(len(before) == 4 for before in split[: at + 1])]


def counts(cell: str) -> Counter[str]:
    """Node -> how many pods a cell puts there; "wait": how many wait."""
    parts = [part.split() for part in cell.split(", ")]
    return Counter(
        {name.replace("waits", "wait"): int(number) for number, name in (["1", *part][-2:] for part in parts)}
    )


def shown(scene: Scene) -> Table:
    """A scene's table as printed: set of pods -> what Thalweg and one by one did with it."""
    header, *rows = cells(pages(printed("--all"))[scene.title])
    assert header == ["PODS", "EACH ASKS FOR", "THALWEG", "ONE BY ONE"]
    return {row[0].split()[-1]: (counts(row[2]), counts(row[3])) for row in rows}


def gain(title: str) -> str:
    """A scene's last line as printed."""
    return pages(printed("--all"))[title][-1].removeprefix("Gained: ")


def outcomes(scene: Scene) -> tuple[SceneResult, SceneResult]:
    """Both columns of the printed table, as the claim takes them."""
    table = shown(scene)
    ours, theirs = (
        SceneResult(
            {name: {"" if node == "wait" else node: n for node, n in row[at].items()} for name, row in table.items()}
        )
        for at in (0, 1)
    )
    return ours, theirs


def placed(table: Table, column: int, *names: str) -> int:
    """How many pods of these sets have a node; without names: of all."""
    return sum(table[name][column].total() - table[name][column]["wait"] for name in names or table)


@cache
def plans(title: str) -> tuple[RoundResult, RoundResult]:
    """What both ways make of a scene now, ours with all checks done."""
    (scene,) = [scene for scene in COMPARED if scene.title == title]
    return (
        plan_and_check(scene.snapshot(), scene.policies),
        run_one_by_one(scene.snapshot(), scene.policies_one_by_one),
    )


@scenes
def test_the_table_shows_both_plans(scene: Scene) -> None:
    """One row a set of pods, and in it to which nodes its pods went and how many wait."""
    expected: Table = {each.name: (Counter(), Counter()) for each in scene.sets}
    for column, plan in enumerate(plans(scene.title)):
        for each in plan.placements:
            expected[scene.row(each.pod.key)][column]["placed" if scene.counted else each.node] += 1
        for left in plan.unplaced:
            expected[scene.row(left.pod.key)][column]["wait"] += 1
    assert shown(scene) == expected
    assert {name: ours.total() for name, (ours, _) in shown(scene).items()} == {s.name: s.count for s in scene.sets}


#: Title -> the claim, and whether a table supports it, judged here a second time.
CLAIMS: dict[str, tuple[str | Callable[[Table], str], Callable[[Table], bool]]] = {
    "Two gangs, room for one": (
        "1 of 2 gangs can start, not 0; one by one, 6 GPUs are held in vain.",
        lambda t: (
            sorted(placed(t, 0, name) for name in ("red", "blue")) == [0, 6]
            and max(placed(t, 1, name) for name in ("red", "blue")) < 6
            and placed(t, 1, "red", "blue") == 6
        ),
    ),
    "The only node with GPUs": (
        "4 training pods run, not 2; one by one, 3 web pods are on the GPU node.",
        lambda t: (
            (placed(t, 0, "train"), placed(t, 1, "train")) == (4, 2)
            and (t["web"][0]["gpu-1"], t["web"][1]["gpu-1"]) == (0, 3)
        ),
    ),
    "A crowd": (
        # No plan is certified here, and how many run differs by some between machines.
        lambda t: f"{placed(t, 0, 'solver')} solver and {placed(t, 0, 'train')} training pods run, not 0 and 55.",
        lambda t: (
            (placed(t, 1, "solver"), placed(t, 1, "train")) == (0, 55)
            and placed(t, 0, "solver") >= 55
            and placed(t, 0, "train") >= 220
        ),
    ),
    "Never on the same node": (
        "11 pods run, not 3; the loud ones use 1 node, not 3.",
        lambda t: (placed(t, 0), placed(t, 1)) == (11, 3) and [len(column) for column in t["loud"]] == [1, 3],
    ),
    "All in one rack, or none": (
        "the ring is in 1 rack, not 2; the web pods are in the other.",
        lambda t: (
            [{node[:5] for node in column} for column in t["ring"]] == [{"rack2"}, {"rack1", "rack2"}]
            and {node[:5] for node in t["web"][0]} == {"rack1"}
        ),
    ),
    "Mixed sizes, to the last core": (
        "all 4 pods run, not 3; one by one, the smaller ones use 2 nodes.",
        lambda t: (
            (placed(t, 0), placed(t, 1)) == (4, 3) and set(t["small"][1] | t["medium"][1]) == {"node-1", "node-2"}
        ),
    ),
    "The stronger preference": (
        "a preference of weight 80 is met, not one of 20: db gets the fast node.",
        lambda t: t["db"] == ({"fast": 1}, {"slow": 1}) and t["cache"] == ({"slow": 1}, {"fast": 1}),
    ),
    "More pods than room": (
        "9 pods with a priority run, not 7; one by one, 2 of batch wait.",
        lambda t: (
            [placed(t, column, "checkout", "batch") for column in (0, 1)] == [9, 7]
            and t["batch"][1]["wait"] == t["checkout"][1]["batch-1"] == 2
        ),
    ),
    "At most two in each zone": (
        "2 api pods run, not 0; one by one, 2 web pods are in zone a.",
        lambda t: (
            [placed(t, column, "api") for column in (0, 1)] == [2, 0]
            and t["web"][1]["a-1"] == 2
            and all((t["web"][c] + t["api"][c])[node] <= 2 for c in (0, 1) for node in ("a-1", "b-1", "c-1"))
        ),
    ),
    "One on each GPU node": (
        "2 agents run, not 1, one on each GPU node; no batch pod waits.",
        lambda t: (
            t["agent"][0] == {"gpu-1": 1, "gpu-2": 1, "wait": 1}
            and placed(t, 1, "agent") == 1
            and not t["batch"][0]["wait"]
        ),
    ),
    "One host, or one kind of disk": (
        "all 6 pods run, not 5; one by one, licence waits.",
        lambda t: (placed(t, 0), placed(t, 1)) == (6, 5) and t["licence"] == ({"licensed": 1}, {"wait": 1}),
    ),
}


@scenes
def test_the_claim_is_visible_in_the_table(scene: Scene) -> None:
    """The printed sentence follows from the printed cells alone, and they support it."""
    sentence, supported = CLAIMS[scene.title]
    expected = sentence if isinstance(sentence, str) else sentence(shown(scene))
    assert gain(scene.title) == scene.claim(*outcomes(scene)) == expected
    assert supported(shown(scene))


@scenes
def test_a_claim_fails_where_nothing_is_gained(scene: Scene) -> None:
    """Of equal columns and of swapped ones no sentence is made."""
    ours, theirs = outcomes(scene)
    for pair in ((ours, ours), (theirs, theirs), (theirs, ours)):
        with pytest.raises(ClaimError, match="do not support"):
            scene.claim(*pair)


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("options", [(), ("--all",)])
def test_each_scene_fits_a_terminal_window(options: tuple[str, ...], columns: int) -> None:
    """24 lines, the first with the introduction and the last with what follows; no line is cut or runs over."""
    blocks = [block.splitlines() for block in printed(*options, columns=columns).split("\n\n")]
    assert max(len(line) for block in blocks for line in block) <= columns
    assert max(map(len, blocks)) <= 24
    assert len(blocks[0]) + 1 + len(blocks[1]) <= 24
    assert len(blocks[-2]) + 1 + len(blocks[-1]) <= 24


@pytest.mark.parametrize("columns", [80, 100])
def test_a_claim_is_one_line(columns: int) -> None:
    """The last line of each scene."""
    for page in pages(printed("--all", columns=columns)).values():
        assert [line.startswith("Gained: ") for line in page] == [False] * (len(page) - 1) + [True]


def test_at_most_five_scenes_by_default() -> None:
    """The first of those that --all shows."""
    assert 1 <= len(FIRST) <= 5
    assert list(pages(printed())) == TITLES[: len(FIRST)]


def test_all_shows_all() -> None:
    """Every scene that is written is shown, once."""
    written = [
        function()
        for module in (pods, constraints)
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if inspect.get_annotations(function).get("return") == "Scene" and not inspect.signature(function).parameters
    ]
    assert sorted(scene.title for scene in written) == sorted(scene.title for scene in COMPARED)
    assert list(pages(printed("--all"))) == TITLES
    assert set(CLAIMS) == {scene.title for scene in COMPARED}


@pytest.mark.parametrize(("options", "compared"), [((), FIRST), (("--all",), COMPARED)])
def test_it_ends_with_what_was_gained(options: tuple[str, ...], compared: tuple[Scene, ...]) -> None:
    """The sums of the printed tables; a gang in part and a ring in two racks count for nothing."""
    sums = [0, 0]
    for scene in compared:
        table = shown(scene)
        for name in table:
            for column in (0, 1):
                whole = not table[name][column]["wait"] and len({node[:5] for node in table[name][column]}) == 1
                gang = name in ("red", "blue") and not table[name][column]["wait"]
                if name not in ATOMIC.get(scene.title, ()) or gang or (name == "ring" and whole):
                    sums[column] += placed(table, column, name)
    count = sum(each.count for scene in compared for each in scene.sets)
    assert printed(*options).splitlines()[-1] == (
        f"Gained in scenes 1 to {len(compared)}: {sums[0]:,} of {count:,} pods run as they ask, not {sums[1]:,}."
    )


def test_it_names_what_to_try_next() -> None:
    """A newcomer is shown the next command; --all only where there is more to see."""
    for options in ((), ("--all",)):
        assert "thalweg plan -f FILE" in printed(*options).splitlines()[-2]
    assert "thalweg demo --all" in printed()
    assert "thalweg demo --all" not in printed("--all")


def test_it_says_that_no_kube_scheduler_runs() -> None:
    """At the start, and where its questions are asked."""
    introduction = printed().split("\n\n")[0]
    assert "no kube-scheduler runs here" in introduction
    assert "No kube-scheduler runs here" in " ".join(pages(printed("--all"))["Through kube-scheduler"])


@scenes
def test_one_by_one_has_kube_schedulers_scores_only(scene: Scene) -> None:
    """kube-scheduler does not keep pods off idle GPUs; all else is the same for both."""
    (ours,), (theirs,) = scene.policies.values(), scene.policies_one_by_one.values()
    assert (ours.cost.weights.idle_resources, theirs.cost.weights.idle_resources) == (1, 0)
    assert ours.constraints == theirs.constraints
    assert ours.unscheduled == theirs.unscheduled


@scenes
def test_the_plans_are_sound(scene: Scene) -> None:
    """Both of them obey every rule, and ours is never the dearer one; what is all or none is so at once only."""
    snapshot = scene.snapshot()
    at_once, one_by_one = plans(scene.title)
    assert len(at_once.placements) >= len(one_by_one.placements)
    if scene.title not in ATOMIC:
        check_plan(snapshot, one_by_one, scene.policies_one_by_one)
        assert at_once.cost <= run_one_by_one(snapshot, scene.policies).cost


@scenes
def test_what_waits_is_told_why(scene: Scene) -> None:
    """Each set of which pods wait in Thalweg's plan has its line, and the line has the reason of the plan."""
    page = pages(printed("--all"))[scene.title]
    reasons = Counter((scene.row(left.pod.key), left.reason) for left in plans(scene.title)[0].unplaced)
    sizes = {each.name: each.count for each in scene.sets}
    for (name, reason), count in reasons.items():
        start = f"{name} waits: " if sizes[name] == 1 else f"{count} {name} {'waits' if count == 1 else 'wait'}: "
        assert f"{start}{reason}" in " ".join(line.strip() for line in page)


@cache
def asked() -> tuple[Exchange, ...]:
    """What the extender is asked, and its answers."""
    return tuple(asyncio.run(exchanges(pods.gpu_node())))


def test_the_extender_tells_kube_scheduler_the_plan() -> None:
    """Held, then let through to the planned node alone; nobody is evicted, and promised room is kept."""
    scene = pods.gpu_node()
    plan = {
        p.pod.key.removeprefix("demo/"): p.node for p in plan_and_check(scene.snapshot(), scene.policies).placements
    }
    training = [name for name in plan if name.startswith("train")]
    (home,) = {plan[name] for name in training}
    held, web, free, scored, preempted, *trained, stranger = asked()
    assert set(held.asked) == {node.name for node in scene.nodes}
    assert held.answer["NodeNames"] == []
    assert held.answer["FailedAndUnresolvableNodes"] == {held.asked[0]: HELD_MESSAGE}
    for each, pod in ((web, "web-0"), *zip(trained, sorted(training), strict=True)):
        assert (each.verb, each.pod, each.asked, each.answer["NodeNames"]) == ("filter", pod, [plan[pod]], [plan[pod]])
    assert plan["web-1"] not in free.asked
    assert free.answer["NodeNames"] == free.asked
    assert (scored.verb, [each["Host"] for each in scored.answer]) == ("prioritize", free.asked)
    assert sorted(each["Score"] for each in scored.answer) == [0, 10]
    assert (preempted.verb, preempted.answer["NodeNameToMetaVictims"]) == ("preempt", {})
    assert stranger.answer["NodeNames"] == [name for name in stranger.asked if name != home]
    assert stranger.answer["FailedAndUnresolvableNodes"] == {home: INFEASIBLE_MESSAGE}


def test_the_answers_are_shown() -> None:
    """Each request has its line, and the claim is made from the answers; without them it fails."""
    page = pages(printed("--all"))["Through kube-scheduler"]
    lines = [f"  {each.verb} {each.pod} [{', '.join(each.asked)}] -> {answer_text(each.answer)}" for each in asked()]
    assert [line for line in page if line.startswith("  ")] == lines
    assert f"filter stranger [plain-2, gpu-1] -> plain-2; not gpu-1: {INFEASIBLE_MESSAGE}" in lines[-1]
    assert gain("Through kube-scheduler") == extender_claim(asked())
    assert extender_claim(asked()) == "4 training pods pass to gpu-1, 0 pods are evicted, stranger is kept off."
    with pytest.raises(ClaimError):
        extender_claim([*asked()[:-1], asked()[1]])


def test_the_one_replaced_leaves_where_the_new_one_can_start() -> None:
    """The larger pod gets the place of the smaller; what does not fit waits; the room between is nobody's."""
    page = pages(printed("--all"))["In the place of another"]
    header, *table = cells(page)
    assert header == ["POD", "ASKS FOR", "REPLACES", "THALWEG"]
    assert {row[0]: row[3] for row in table} == {
        "model-2": "node-1, once model-1 has left",
        "cache-2": "waits",
        "small": "waits",
    }
    assert "cache-2 waits: cannot replace demo/cache-1 on node node-2: Insufficient cpu" in page
    assert "small waits: 0/2 nodes are available: 2 Insufficient cpu." in page
    assert gain("In the place of another") == "model-2 gets node-1 from model-1; cache-1 runs on; small waits."
    nothing_new = run_round(pods.mixed_sizes().snapshot())
    with pytest.raises(ClaimError):
        replacements.claim(nothing_new)


def test_urgent_pods_share_a_victim() -> None:
    """The page shows who leaves in each plan, and its claim is made from that; two equal plans do not support it."""
    header, *table = cells(pages(printed("--all"))[URGENT])
    assert header == ["POD", "ASKS FOR", "THALWEG", "ONE BY ONE"]
    leavers = [[row[0] for row in table if row[column].startswith("leaves")] for column in (2, 3)]
    assert leavers == [["batch-1"], ["batch-2", "batch-3"]]
    assert {row[0]: row[2] for row in table if row[0].startswith("urgent")} == {
        "urgent-1": "node-1",
        "urgent-2": "node-1",
    }
    assert gain(URGENT) == "2 urgent pods run after 1 eviction, not 2; batch-1 goes to node-4."
    alone = preemption.one_by_one()
    with pytest.raises(ClaimError):
        preemption.claim(alone, alone)
