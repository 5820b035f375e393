"""``thalweg demo``: what it prints, and that what it prints is true."""

import json
import re
from collections import Counter
from typing import Any

import pytest
from support.cli import thalweg
from support.safety import check_plan, plan_checked
from thalweg.demo.constraints import across_pods, all_or_none
from thalweg.demo.scene import Scene
from thalweg.demo.scenes import crowd, scenes
from thalweg_extender import TAKEN

from flowcore.model.guidance import HELD
from flowcore.rounds import run_one_by_one, run_round

SMALL = (*scenes(), *across_pods())
ALL = (*SMALL, crowd())


@pytest.fixture(scope="module")
def printed() -> str:
    """What the command prints."""
    done = thalweg("demo")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def rows(printed: str, number: int) -> list[list[str]]:
    """The cells of a scene's table, header first."""
    part = re.search(rf"^{number}\. .*?(?=^{number + 1}\. |\Z)", printed, re.MULTILINE | re.DOTALL)
    assert part is not None
    lines = part[0].splitlines()
    (start,) = [at for at, line in enumerate(lines) if line.startswith("POD")]
    cells = [re.split(r" {2,}", line.strip()) for line in lines[start:]]
    return [row for at, row in enumerate(cells) if all(len(before) == 4 for before in cells[: at + 1])]


@pytest.mark.parametrize(
    ("number", "scene"), list(enumerate(SMALL, start=1)), ids=lambda each: getattr(each, "title", None)
)
def test_each_scene_shows_both_plans(printed: str, number: int, scene: Scene) -> None:
    """One row a pod, and in it where a round and where one-by-one scheduling put it."""
    snapshot = scene.snapshot()
    runs = plan_checked(snapshot, scene.policies), run_one_by_one(snapshot, scene.policies)
    plans = [{p.pod.key: p.node for p in run.placements} for run in runs]
    header, *table = rows(printed, number)
    assert header == ["POD", "ASKS FOR", "THALWEG", "ONE BY ONE"]
    assert {row[0]: row[2:] for row in table} == {
        pod.key.removeprefix("demo/"): [plan.get(pod.key, "waits") for plan in plans] for pod in snapshot.pending
    }
    assert scene.title in printed


def test_the_crowd_is_counted(printed: str) -> None:
    """One row a kind of pod, with how many of it each plan placed."""
    header, *table = rows(printed, len(ALL))
    assert header == ["PODS", "ASK FOR", "THALWEG", "ONE BY ONE"]
    assert len(table) == len(crowd().wishes)
    ours = sum(int(row[2].split()[0]) for row in table)
    assert ours == len(plan_checked(crowd().snapshot()).placements)


@pytest.mark.parametrize("scene", ALL, ids=lambda scene: scene.title)
def test_the_plans_are_sound(scene: Scene) -> None:
    """Both of them obey every rule, and ours is never the dearer one; what is all or none is so at once only."""
    snapshot = scene.snapshot()
    at_once, one_by_one = plan_checked(snapshot, scene.policies), run_one_by_one(snapshot, scene.policies)
    if scene.title in {each.title for each in all_or_none()}:
        return
    check_plan(snapshot, one_by_one, scene.policies)
    assert at_once.cost <= one_by_one.cost
    assert len(at_once.placements) >= len(one_by_one.placements)


def test_one_by_one_breaks_up_what_belongs_together() -> None:
    """Neither gang is whole, and the ring is in two racks: the plans at once, which are checked, are neither."""
    gangs, together = (run_one_by_one(scene.snapshot(), scene.policies) for scene in all_or_none())
    assert Counter(name for p in gangs.placements for name in p.pod.gangs) == {"gang demo/red": 2, "gang demo/blue": 2}
    ring = {p.node for p in together.placements if "ring" in p.pod.key}
    assert "node-1" in ring
    assert ring & {"node-3", "node-4"}


def test_what_waits_is_told_why(printed: str) -> None:
    """Each pod that waits has its line."""
    plans = [plan_checked(scene.snapshot(), scene.policies) for scene in SMALL]
    waiting = [left.pod.key.removeprefix("demo/") for plan in plans for left in plan.left]
    assert waiting
    for name in waiting:
        assert re.search(
            rf"^{name} waits: (0/\d+ nodes are available: |.* needs \d pods at once)", printed, re.MULTILINE
        )


def test_constraints_are_worth_a_scene() -> None:
    """What their stories say: planned at once no fewer are placed, and where groups exclude each other more are."""
    placed = {}
    for scene in across_pods()[len(all_or_none()) :]:
        runs = [run(scene.snapshot(), scene.policies) for run in (run_round, run_one_by_one)]
        placed[scene.title] = [len(run.placements) for run in runs]
        assert any(run.left for run in runs)
    assert [at_once > one_by_one for at_once, one_by_one in placed.values()] == [False, True, True, True]


def told(printed: str) -> list[tuple[str, str, Any, Any]]:
    """Of the part through kube-scheduler: verb, pod, what was asked and what was answered."""
    lines = re.findall(r"^  (\w+) ([\w-]+) (.*)\n {4}(.*)$", printed, re.MULTILINE)
    return [(verb, pod, json.loads(asked), json.loads(answer)) for verb, pod, asked, answer in lines]


def test_the_extender_tells_kube_scheduler_the_plan(printed: str) -> None:
    """Held, then let through to the planned node alone; nobody is evicted, and promised room is kept."""
    plan = {p.pod.key.removeprefix("demo/"): p.node for p in plan_checked(scenes()[0].snapshot()).placements}
    held, web, *free, preempted, first, second, stranger = told(printed)
    assert held == ("filter", "web-0", held[2], {"NodeNames": [], "FailedAndUnresolvableNodes": {held[2][0]: HELD}})
    assert set(held[2]) == {node.name for node in scenes()[0].nodes}
    for each, pod in ((web, "web-0"), (first, "train-0"), (second, "train-1")):
        assert each == ("filter", pod, [plan[pod]], {"NodeNames": [plan[pod]]})
    (_, _, asked, passed), (verb, _, _, scores) = free
    assert plan["web-1"] not in asked
    assert passed == {"NodeNames": asked}
    assert (verb, [each["Host"] for each in scores]) == ("prioritize", asked)
    assert sorted(each["Score"] for each in scores) == [0, 10]
    assert preempted[0] == "preempt"
    assert preempted[3] == {"NodeNameToMetaVictims": {}}
    kept = [name for name in stranger[2] if name != plan["train-0"]]
    assert stranger[3] == {"NodeNames": kept, "FailedAndUnresolvableNodes": {plan["train-0"]: TAKEN}}


def test_the_one_replaced_leaves_where_the_new_one_can_start(printed: str) -> None:
    """The larger pod gets the place of the smaller; what does not fit waits; the room between is nobody's."""
    header, *table = rows(printed, len(ALL) + 2)
    assert header == ["POD", "ASKS FOR", "REPLACES", "THALWEG"]
    assert {row[0]: row[3] for row in table} == {
        "model-2": "node-1, once model-1 has left",
        "cache-2": "waits",
        "small": "waits",
    }
    assert "cache-2 waits: cannot take the place of demo/cache-1 on node node-2: Insufficient cpu" in printed
    assert "small waits: 0/2 nodes are available: 2 Insufficient cpu." in printed


def test_it_ends_with_what_to_try_next(printed: str) -> None:
    """A newcomer is shown the next command."""
    assert "thalweg simulate -f FILE" in printed.splitlines()[-1]
