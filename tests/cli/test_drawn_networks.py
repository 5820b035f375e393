"""The seeds' figures as policies draw them: each file of examples/networks is planned as its text says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli import by_pod, plan_of, thalweg
from support.drawn_networks import EXPECTED, FOLDER, is_expected


def planned(path: Path, *arguments: str) -> dict[str, str]:
    done = thalweg("plan", "-f", path, "-o", "json", *arguments)
    assert done.returncode == 0, done.stderr
    return {pod.partition("/")[2]: node for pod, node in by_pod(done.stdout)["placements"].items()}


def test_each_file_is_expected() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_figures_are_planned_as_their_text_says(name: str) -> None:
    assert is_expected(EXPECTED[name], planned(FOLDER / f"{name}.yaml"))


@pytest.mark.parametrize("cpu", ["2", "3"])
def test_together_or_none(cpu: str) -> None:
    """With room for three all three are placed, with room for two none; each says why."""
    documents = list(yaml.safe_load_all((FOLDER / "together-or-none.yaml").read_text()))
    documents[1]["status"]["allocatable"]["cpu"] = cpu
    plan = plan_of(*documents)
    assert len(plan["placements"]) == (3 if cpu == "3" else 0)
    assert len(plan["pending"]) == (0 if cpu == "3" else 3)


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))


def test_what_runs_counts_for_the_arcs_of_its_policy() -> None:
    """Two pods in a rack are its maximum, whether they wait or run; pods of other policies do not count."""
    policy, *rest = documents("overflow")
    running = [each for each in rest if each["kind"] == "Pod"][:2]
    for each in running:
        each["spec"]["nodeName"] = "m0"
    plan = plan_of(policy, *rest)
    assert Counter(plan["placements"].values()) == {"m1": 2, "m2": 1}
    policy["spec"]["selects"] = {"podSelector": {"matchLabels": {"app": "task"}}}
    running[0]["metadata"]["labels"] = {"app": "stranger"}
    assert Counter(plan_of(policy, *rest)["placements"].values()) == {"m0": 1, "m1": 2}


def test_an_arc_holds_for_all_its_pods_together() -> None:
    """Pods of two sizes share the four units from EC_G to EC_O, and the maximum of an arc that begins at both."""
    policy, *rest = documents("pod-affinity-figure-7")
    for at, each in enumerate(each for each in rest if each["kind"] == "Pod"):
        each["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1" if at % 2 else "500m"
    assert len(plan_of(policy, *rest)["placements"]) == 4
    policy["spec"]["network"] = {"arcs": [{"from": {"podSelector": {}}, "to": "m1", "maximum": 3}]}
    assert set(plan_of(policy, *rest)["placements"].values()) == {"m1"}
    assert len(plan_of(policy, *rest)["placements"]) == 3


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            {"arcs": [{"from": {"podSelector": {}}, "to": "gone"}]},
            "leads it nowhere: there is no node gone, to which its arc leads",
        ),
        (
            {
                "aggregators": [{"name": "rack", "over": {"nodeLabel": "row"}, "arcs": [{"to": "Nodes"}]}],
                "arcs": [{"from": {"podSelector": {}}, "to": "rack"}],
            },
            "no node has the label row",
        ),
        (
            {"arcs": [{"from": {"podSelector": {"matchLabels": {"app": "other"}}}, "to": "Nodes"}]},
            "leads it nowhere: no arc begins at it that leads to a node",
        ),
        (
            {"arcs": [{"from": {"podSelector": {}}, "to": "Nodes", "minimum": 6}]},
            "arcs[0] to Nodes needs 18 more pods for all that it leads to, and 4 may take it",
        ),
    ],
)
def test_pods_are_told_what_is_wrong_with_their_network(network: dict[str, Any], said: str) -> None:
    """And pods of others are placed as ever."""
    policy, *rest = documents("overflow")
    stranger = next(each for each in rest if each["kind"] == "Pod")
    policy["spec"]["selects"] = {"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}
    stranger["metadata"]["labels"] = {}
    policy["spec"]["network"] = network
    plan = plan_of(policy, *rest)
    assert plan["placements"].keys() == {"default/t0"}
    assert {said in each["reason"] for each in plan["pending"].values()} == {True}, plan["pending"]


def test_why_names_the_arcs_that_are_full(tmp_path: Path) -> None:
    policy, *rest = documents("overflow")
    policy["spec"]["network"]["arcs"][1]["maximum"] = 0
    path = tmp_path / "full.yaml"
    path.write_text(yaml.safe_dump_all([policy, *rest]))
    done = thalweg("why", "-f", path, "pod/t4")
    assert done.returncode == 0, done.stderr
    network = "of the network of policy overflow is full"
    assert f"arcs[0] to rack {network}: r0 has 2 of 2 and r1 has 2 of 2." in done.stdout
    assert f"arcs[1] to dear {network}: the cluster has 0 of 0." in done.stdout
