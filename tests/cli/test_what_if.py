"""``thalweg what-if`` and ``thalweg headroom``, the real commands, on dumps good and bad."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.cli import Manifest
from support.scenario_state import manifest_node, manifest_pod
from thalweg.main import main
from thalweg.questions.what_if import summary_rows

from flowcore.questions.scenario.alternatives.what_if import PlanSummary, ResourceUse

OBJECTS = [
    *(manifest_node(name, zone) for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2"))),
    manifest_pod("web", "a", "3", owner="ReplicaSet"),
    manifest_pod("cart", cpu="3"),
    manifest_pod("large", cpu="4"),
]
POLICY = {
    "apiVersion": "scheduling.thalweg/v1alpha1",
    "kind": "FlowSchedulingPolicy",
    "metadata": {"name": "apart"},
    "spec": {
        "delivery": "Observe",
        "selects": {"schedulerNames": ["default-scheduler"], "podSelector": {"matchLabels": {"app": "cart"}}},
        "constraints": [
            {"name": "none", "global": {"pods": {"matchLabels": {"app": "cart"}}, "nodes": {"matchLabels": {"x": "y"}}}}
        ],
    },
}


def dump(path: Path, *objects: Manifest, name: str = "now.json") -> str:
    """A file with these objects; without any: ``OBJECTS``."""
    items = [{"apiVersion": "v1", **each} for each in objects or OBJECTS]
    file = path / name
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(file)


def run(*arguments: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def answer(*arguments: str) -> dict[str, Any]:
    """What ``-o json`` prints."""
    done = run(*arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_answers_shape(tmp_path: Path) -> None:
    """Placed, waiting, moved, and both plans with cost, bound and the use of each resource."""
    found = answer("what-if", "-f", dump(tmp_path), "--fail", "zone=z1")
    assert {"placed", "waiting", "moved", "before", "after"} <= found.keys()
    assert found["before"]["nodes"] == 3
    assert found["after"]["nodes"] == 1
    assert found["before"].keys() == found["after"].keys() >= {"cost", "bound", "resources", "certified"}
    assert found["after"]["resources"]["cpu"]["allocatable"] == 4000
    assert set(found["moved"]) | set(found["waiting"]) >= {"default/web"}
    for each in found["moved"].values():
        assert set(each) == {"from", "to"}


def test_changes_combine(tmp_path: Path) -> None:
    """All options together, some of them twice, in the order that the help says."""
    new = dump(tmp_path, manifest_pod("new", cpu="4"), name="new.json")
    found = answer(
        "what-if", "-f", dump(tmp_path), "--apply", new, "--add-nodes", "2", "--like", "c", "--add-nodes", "1",
        "--like", "b", "--cordon", "b", "--cordon", "b-new-1", "--uncordon", "c", "--drain", "a", "--remove", "c",
        "--priority", "new=7", "--priority", "web=1",
    )  # fmt: skip
    assert found["after"]["nodes"] == 5
    assert set(found["moved"]) == {"default/web"}
    assert found["moved"]["default/web"]["to"] in {"c-new-1", "c-new-2"}


def test_a_policy_of_a_file(tmp_path: Path) -> None:
    """It counts as if the API server had accepted it: here its constraint leaves a pod no node."""
    file = dump(tmp_path, POLICY, name="policy.json")
    found = answer("what-if", "-f", dump(tmp_path), "--policy", file)
    assert found["waiting"] == ["default/cart"]
    assert "none" in found["reasons"]["default/cart"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--drain", "n9"], "there is no node n9"),
        (["--cordon", "n9"], "there is no node n9"),
        (["--remove", "n9"], "there is no node n9"),
        (["--add-nodes", "1", "--like", "n9"], "there is no node n9"),
        (["--priority", "default/nobody=3"], "there is no pod default/nobody"),
        (["--priority", "nobody=3", "-n", "shop"], "there is no pod shop/nobody"),
        (["--fail", "rack=r1"], "no node has the label rack"),
        (["--fail", "zone=z9"], "there are z1, z2"),
        (["--apply", "missing.json"], "missing.json: cannot be read"),
        (
            ["--add-nodes", "6000", "--like", "a", "--add-nodes", "6000", "--like", "b"],
            "changes[1].count: the changes up to this one add 12000 nodes; a question may add 10000",
        ),
    ],
)
def test_one_sentence_and_exit_code_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    """A name that the dump does not have is an error of one line."""
    done = run("what-if", "-f", dump(tmp_path), *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "at least one change"),
        (["--add-nodes", "1"], "one --like NODE for each --add-nodes"),
        (["--priority", "default/cart"], "[NAMESPACE/]POD=NUMBER"),
        (["--priority", "default/cart=high"], "[NAMESPACE/]POD=NUMBER"),
        (["--fail", "zone"], "LABEL=VALUE"),
    ],
)
def test_wrong_use(arguments: list[str], words: str, tmp_path: Path) -> None:
    """The message says what the option wants."""
    done = run("what-if", "-f", dump(tmp_path), *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_a_policy_that_the_api_server_would_refuse(tmp_path: Path) -> None:
    """The same sentence as for a dump that has it."""
    bad = {**POLICY, "spec": {**POLICY["spec"], "delivry": "Binder"}}  # type: ignore[dict-item]
    file = dump(tmp_path, bad, name="bad.json")
    by_dump = run("plan", "-f", dump(tmp_path), "-f", file)
    for option in ("--policy", "--apply"):
        by_change = run("what-if", "-f", dump(tmp_path), option, file)
        assert by_change.exit_code == by_dump.exit_code == 2
        assert by_change.stderr == by_dump.stderr
        assert "spec.delivry: unknown field" in by_change.stderr


def test_a_policy_with_a_field_of_an_earlier_version(tmp_path: Path) -> None:
    """The field is named, and the question is answered."""
    cost = {"kinds": [], "machines": {"label": "gen", "weight": 3}}
    file = dump(tmp_path, {**POLICY, "spec": {**POLICY["spec"], "cost": cost}}, name="earlier.json")  # type: ignore[dict-item]
    for option in ("--policy", "--apply"):
        done = run("what-if", "-f", dump(tmp_path), option, file)
        assert done.exit_code == 0
        assert "FlowSchedulingPolicy apart: spec.cost.machines.weight is ignored since 0.1.0" in done.stderr


def test_policies_alone_are_policies(tmp_path: Path) -> None:
    """Other objects belong into another option."""
    file = dump(tmp_path, manifest_pod("new"), name="new.json")
    done = run("what-if", "-f", dump(tmp_path), "--policy", file)
    assert done.exit_code == 2
    assert "give other objects to --apply" in done.stderr


def test_a_table_to_read(tmp_path: Path) -> None:
    """Who moves from where, and both plans side by side; notes go to standard error."""
    bare = manifest_pod("bare", "a", "500m", owner="")
    done = run("what-if", "-f", dump(tmp_path, *OBJECTS, bare), "--drain", "a", "--pods")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert any(line.split()[:3] == ["default/bare", "a", "c"] for line in lines)
    assert any(line.split()[:3] == ["nodes", "3", "3"] for line in lines)
    assert any(line.startswith("cpu ") and "/12 " in line for line in lines)
    assert "default/bare has no controller" in done.stderr


def test_a_drain_is_a_line_for_each_workload(tmp_path: Path) -> None:
    """The sum comes first; a drain places nothing new, and pods of one workload that exchange their places are no line.

    Pods with a node before and after tell who has lost it: the numbers of the table are those of the sentence.
    """
    nodes = [manifest_node("a", "z1"), manifest_node("b", "z1")]
    web = [manifest_pod(f"web-{at}", "a", "1") for at in range(3)]
    full = [manifest_pod("full", "b", "3")]
    job = [manifest_pod(f"job-{at}", "", "1") for at in range(4)]
    for pods in (web, job):
        for each in pods:
            each["metadata"]["ownerReferences"] = [
                {"apiVersion": "batch/v1", "kind": "Job", "name": pods[0]["metadata"]["name"][:3], "uid": "u",
                 "controller": True}
            ]  # fmt: skip
    path = dump(tmp_path, *nodes, *web, *full, *job)
    done = run("what-if", "-f", path, "--drain", "a")
    lines = done.stdout.splitlines()
    assert "default/web-" not in done.stdout
    assert sum(line.startswith("job/default/") for line in lines) <= 2
    rows = {line[:18].strip(): line[18:].split() for line in lines}
    before, after = (int(rows["pods with a node"][at]) for at in (0, 1))
    assert before > after
    found = answer("what-if", "-f", path, "--drain", "a")
    for when in ("before", "after"):
        assert found[when]["withNode"] + found[when]["waiting"] == 8
    assert rows["waiting pods"][:2] == [str(found[when]["waiting"]) for when in ("before", "after")]
    assert rows["of them evicted"][1] == str(found["after"]["evicted"])
    assert set(found["waiting"]) >= {f"default/web-{at}" for at in range(3)}
    assert lines[0] == found["inShort"]
    more = int(rows["waiting pods"][2])
    assert lines[0] == f"{more} more wait, {rows['of them evicted'][1]} of them evicted"
    assert "cost" not in rows
    assert "ephemeral-storage" not in rows


def test_a_row_is_a_line_of_80_columns() -> None:
    """Also of a large cluster, where both plans have amounts of many digits."""
    large = {"cpu": ResourceUse(123_456_700, 199_999_900), "memory": ResourceUse(10**15, 2 * 10**15)}
    large |= {"ephemeral-storage": ResourceUse(10**16, 2 * 10**16), "nvidia.com/gpu": ResourceUse(99_999, 100_000)}
    plan = PlanSummary(12_500, 150_000, 150_000, 10_000, 1_000, 1_000, 10**12, 10**12, certified=False, resources=large)
    none = PlanSummary(12_500, 0, 0, 0, 0, 0, 0, 0, certified=False, resources={})
    rows = summary_rows(plan, none) + summary_rows(none, plan)
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    assert sum(widths) + 2 * 3 <= 80, widths


def test_headroom_of_a_class(tmp_path: Path) -> None:
    """Beside the plan of what waits: 4 + 4 + 4 cores, 3 + 3 + 4 taken."""
    found = answer("headroom", "-f", dump(tmp_path), "--cpu", "500m")
    assert found["fits"] == 4
    assert found["atLeast"] is False
    assert sum(found["nodes"].values()) == 4
    assert "Insufficient cpu" in found["reason"]
    assert answer("headroom", "-f", dump(tmp_path), "--like", "cart")["fits"] == 0
    assert answer("headroom", "-f", dump(tmp_path), "--cpu", "1", "--gpu", "1")["fits"] == 0
    assert answer("headroom", "-f", dump(tmp_path), "--request", "memory=8Gi", "--limit", "2")["atLeast"] is True


def test_headroom_in_words(tmp_path: Path) -> None:
    """With pods to count: the number, and why there is no room for one more. Large fits beside nobody."""
    files = ("-f", dump(tmp_path, *OBJECTS, manifest_pod("more", cpu="2")))
    done = run("headroom", *files, "--cpu", "1")
    assert done.exit_code == 0
    assert "room for 2 more pods on 2 nodes; each requests 1 cpu" in done.stdout
    assert "no room for one more: " in done.stdout
    assert len(done.stdout.splitlines()) == 2
    assert run("headroom", *files, "--like", "cart").stdout.startswith("room for 0 more pods")
    done = run("headroom", *files, "--gpu", "1", "--scale-ups", "1", "--unneeded", "1")
    assert done.stdout.splitlines()[0].endswith("each requests 1 nvidia.com/gpu and tolerates nvidia.com/gpu")
    assert "3 pods wait: 2 get a node, 1 has none; new nodes may help 1 of them\n" in done.stdout
    assert "worth nothing" in done.stdout


def test_headroom_of_nodes_in_words(tmp_path: Path) -> None:
    """Without pods to count: the nodes that would help, and those that can be drained."""
    files = ("-f", dump(tmp_path, *OBJECTS, manifest_pod("more", cpu="2")))
    done = run("headroom", *files)
    assert done.stdout.startswith("3 pods wait: 2 get a node, 1 has none; new nodes may help 1 of them\n")
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("1  ")]
    assert (row[:4], row[-1]) == (["1", "a", "1", "pod"], "default/more")
    assert "worth most: a node like a, which places 1 pod on average\n" in done.stdout
    assert "; no new nodes were tried\n" in run("headroom", *files, "--scale-ups", "0").stdout
    told = run(
        "headroom", "-f", dump(tmp_path, manifest_node("a", "z"), manifest_pod("r", "b"), manifest_node("b", "z"))
    )
    assert "no pod waits, so no new node helps" in told.stdout
    assert (
        "1 node is worth nothing now: a\ndrain it: in a plan without it every pod that has a node keeps one"
        in told.stdout
    )
    assert "worth nothing" not in run("headroom", *files, "--unneeded", "0").stdout


@pytest.mark.parametrize("command", ["headroom", "audit"])
def test_nothing_is_said_to_be_free_where_no_pod_is_known(command: str, tmp_path: Path) -> None:
    """Nodes alone: whoever forgot the pods would be told that all nodes are worth nothing."""
    done = run(command, "-f", dump(tmp_path, manifest_node("a", "z")))
    assert done.exit_code == 2
    assert not done.stdout
    assert "Error: the files have no Pod: everything counts as free. Dump the cluster with: thalweg dump" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--like", "nobody"], "there is no pod default/nobody"),
        (["--cpu", "many"], "requests.cpu"),
        (["--request", "gpu"], "RESOURCE=AMOUNT"),
        (["--like", "cart", "--cpu", "1"], "either --like or amounts"),
        (["--limit", "0"], "limit: 0"),
        (["--gpu", "1.5"], 'requests.nvidia.com/gpu: "1.5" is no whole number: devices are not divided'),
        (["--request", "example.com/fpga=500m"], 'requests.example.com/fpga: "500m" is no whole number'),
    ],
)
def test_headroom_that_cannot_be_told(arguments: list[str], words: str, tmp_path: Path) -> None:
    """One sentence and exit code 2."""
    done = run("headroom", "-f", dump(tmp_path), *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
