"""``thalweg network``: the flow of a plan in the networks of policies, arc by arc."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli import Manifest, node, pod, thalweg
from support.drawn_networks import FOLDER
from support.rack_networks import BY_RACK, many_nodes, many_pods

Ends = tuple[str, str]


def asked(*arguments: str | Path, stdin: str = "") -> str:
    done = thalweg("network", *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def flow_of(*objects: Manifest, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """The network of the only policy whose pods are planned."""
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    (flow,) = json.loads(asked("-f", "-", "-o", "json", *arguments, stdin=dump))["policies"]
    assert isinstance(flow, dict)
    return flow


def figure(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))


def arcs(flow: dict[str, Any]) -> dict[Ends, dict[str, Any]]:
    return {(arc["from"], arc["to"]): arc for arc in flow["arcs"]}


def units(flow: dict[str, Any]) -> dict[Ends, int]:
    return {ends: arc["flow"] for ends, arc in arcs(flow).items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pod-affinity-figure-5-soft", {("pods", "m0"): 1, ("pods", "m1"): 0}),
        (
            "pod-affinity-figure-7",
            {("pods", "EC_G"): 4, ("EC_G", "EC_O"): 4, ("EC_O", "3 nodes"): 4, ("pods", "Unscheduled"): 2},
        ),
        ("pod-affinity-figure-10", {
                ("pods", "G"): 2, ("G", "E"): 1, ("G", "A"): 1,
                ("E", "Unscheduled"): 1, ("A", "m0"): 2,
            }),
        ("together-or-none", {("pods", "pool"): 0, ("pool", "m0"): 0, ("pods", "Unscheduled"): 3}),
        (
            "overflow",
            {
                ("pods", "rack r0"): 2, ("pods", "rack r1"): 2, ("pods", "dear"): 1,
                ("rack r0", "m0"): 2, ("rack r1", "m1"): 2, ("dear", "m2"): 1,
            },
        ),
    ],
)  # fmt: skip
def test_figures_have_the_flow_that_their_text_says(name: str, expected: dict[Ends, int]) -> None:
    """Also where arcs have several prices, a minimum or a gain."""
    flow = flow_of(*figure(name))
    assert units(flow) == expected
    assert flow["drawn"] is True


def test_limits_prices_and_states() -> None:
    """The segments of a cost are one row: full it has no price, with room it has that of the next unit."""
    policy, *rest = figure("overflow")
    full = arcs(flow_of(policy, *rest))["pods", "rack r0"]
    assert (full["maximum"], full["price"], full["state"]) == (2, None, "full")
    several = arcs(flow_of(*figure("pod-affinity-figure-7")))["EC_O", "3 nodes"]
    assert (several["arcs"], several["full"], several["maximum"], several["state"]) == (3, 1, 6, "")
    assert (several["price"], several["highestPrice"]) == (200, 200)
    policy["spec"]["network"]["arcs"][0]["maximum"] = 3
    policy["spec"]["network"]["aggregators"][0]["arcs"] = [{"to": "Nodes", "cost": {"of": "Utilisation"}}]
    flow = arcs(flow_of(policy, *rest))
    assert flow["pods", "rack r0"]["price"] in (None, 50)
    assert flow["rack r0", "m0"]["price"] == 250 * flow["rack r0", "m0"]["flow"]
    waits = arcs(flow_of(*figure("pod-affinity-figure-7")))["pods", "Unscheduled"]
    assert waits["price"] == 100_000


def test_a_minimum_that_is_not_met() -> None:
    """All pods go to Unscheduled, and a note says why."""
    policy, *rest = figure("overflow")
    policy["spec"]["network"] = {"arcs": [{"from": {"podSelector": {}}, "to": "Nodes", "minimum": 4}]}
    flow = flow_of(policy, *rest)
    assert units(flow) == {("pods", "3 nodes"): 0, ("pods", "Unscheduled"): 5}
    assert arcs(flow)["pods", "3 nodes"]["state"] == "short"
    assert "arcs[0] to Nodes needs 12 more pods for all that it leads to, and 5 may take it" in "".join(flow["notes"])


def test_the_flow_is_that_of_the_plan() -> None:
    """Of two pods for X and Y the one that may go to X alone goes there, whichever is counted first."""
    policy, *rest = figure("overflow")
    task, cache = {"matchLabels": {"app": "task"}}, {"matchLabels": {"app": "cache"}}
    points = [{"name": name, "arcs": [{"to": "m0"}]} for name in "XY"]
    to_x = {"from": {"podSelector": {}}, "to": "X", "minimum": 1, "maximum": 1}
    to_y = {"from": {"podSelector": cache}, "to": "Y", "minimum": 1}
    policy["spec"]["network"] = {"aggregators": points, "arcs": [to_x, to_y]}
    pods = [each for each in rest if each["kind"] == "Pod"][:2]
    pods[0]["metadata"]["labels"] = cache["matchLabels"]
    pods[1]["metadata"]["labels"] = task["matchLabels"]
    flow = flow_of(policy, *(each for each in rest if each["kind"] == "Node"), *pods)
    assert units(flow) == {("pods", "X"): 1, ("pods app=cache", "Y"): 1, ("X", "m0"): 1, ("Y", "m0"): 1}
    assert {arc["state"] for arc in flow["arcs"]} == {"", "full"}


def test_pods_beyond_a_maximum_and_on_no_way_are_told() -> None:
    """Five run on a rack that takes two, and one where no arc leads."""
    policy, *rest = figure("overflow")
    runs = [
        {**pod(f"r{at}", metadata={"name": f"r{at}", "namespace": "default", "labels": {"app": "task"}},
               nodeName="m0" if at else "m3"), "status": {"phase": "Running"}}
        for at in range(6)
    ]  # fmt: skip
    flow = flow_of(policy, *rest, node("m3", "8"), *runs)
    over = arcs(flow)["pods", "rack r0"]
    assert (over["flow"], over["maximum"], over["state"], over["price"]) == (5, 2, "over", None)
    assert flow["notes"] == ["1 pod that has a node is on no arc: no way leads there, or none has room"]


def test_running_pods_are_flow_too() -> None:
    """Whoever placed them, if the policy's selectors match them."""
    policy, *rest = figure("overflow")
    runs = pod("runs", metadata={"name": "runs", "namespace": "default", "labels": {"app": "task"}}, nodeName="m2")
    flow = flow_of(policy, *rest, {**runs, "status": {"phase": "Running"}})
    assert (flow["placed"], units(flow)["dear", "m2"]) == (5, 2)
    only_running = [each for each in rest if each["kind"] == "Node"]
    dump = [policy, *only_running, {**runs, "status": {"phase": "Running"}}]
    assert units(flow_of(*dump, arguments=("--policy", "overflow")))["pods", "dear"] == 1


@pytest.mark.parametrize("name", ["overflow", "overview-figure-1", "pod-affinity-figure-11", "taints-figure-2"])
def test_what_enters_a_point_leaves_it(name: str) -> None:
    """Where no arc has a gain; and as many units arrive at nodes as pods have one."""
    documents = figure(name)
    nodes = {each["metadata"]["name"] for each in documents if each["kind"] == "Node"}
    flow = flow_of(*documents, arguments=("--nodes",))
    into, out = Counter[str](), Counter[str]()
    for (tail, head), count in units(flow).items():
        out[tail] += count
        into[head] += count
    points = {point for point in out.keys() & into.keys() if point not in nodes}
    assert points or name == "taints-figure-2"
    assert {point: into[point] for point in points} == {point: out[point] for point in points}
    assert sum(into[each] for each in nodes) == flow["placed"]


def test_pods_that_an_arc_chooses_are_named() -> None:
    """By its selector, as kubectl writes it."""
    assert {"pods app=p0", "pods app=p1", "pods app=p4"} <= {
        tail for tail, _ in units(flow_of(*figure("overview-figure-1")))
    }


def test_an_unknown_policy_is_an_error_with_the_names_of_those_that_there_are() -> None:
    done = thalweg("network", "-f", FOLDER / "overflow.yaml", "--policy", "overfl")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'policy "overfl": no policy has this name; there are' in done.stderr
    assert "overflow; did you mean overflow?" in done.stderr


_VERTEX = re.compile(r'    "(?:[^"\\]|\\.)*" \[label="(?:[^"\\]|\\.)*"(, style=dashed)?\];')
_EDGE = re.compile(r'    "(?:[^"\\]|\\.)*" -> "(?:[^"\\]|\\.)*" \[label="[^"]*"(, color=red|, style=dashed)?\];')


def test_a_graph_for_graphviz() -> None:
    """Each line is a vertex or an edge with quoted names; full arcs are red, Unscheduled is dashed."""
    policy, *rest = figure("pod-affinity-figure-7")
    text = asked("-f", "-", "-o", "dot", stdin=yaml.safe_dump_all([policy, *rest]))
    lines = text.splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("digraph thalweg {", "  rankdir=LR;", "}")
    body = [line for line in lines[2:-1] if line.startswith("    ") and "label=" in line[5:]]
    edges = [line for line in body if _EDGE.fullmatch(line)]
    assert len(edges) == 4
    assert all(_EDGE.fullmatch(line) or _VERTEX.fullmatch(line) or line.startswith("    label=") for line in body)
    assert [line for line in edges if "EC_G" in line and "EC_O" in line] == [
        (
            '    "pod-affinity-figure-7: point EC_G" -> "pod-affinity-figure-7: point EC_O" '
            '[label="4 of 4, full", color=red];'
        )
    ]
    assert sum("style=dashed" in line for line in body) == 2


def test_a_table_is_short_and_json_has_all() -> None:
    """Full racks come first, the others are one row; the last line says how many arcs the rows stand for."""
    dump = json.dumps({"kind": "List", "items": [*many_nodes(2_000, 100), *many_pods(150), BY_RACK]})
    lines = asked("-f", "-", stdin=dump).splitlines()
    assert len(lines) < 60
    assert lines[0] == "policy by-rack, by the network that it draws: 150 of 150 waiting pods placed"
    assert re.fullmatch(r"200 arcs in \d+ rows; -o json has all", lines[-1])
    assert lines[2].endswith("full")
    assert any(re.match(r"pods +rack: \d+ more ", line) for line in lines)
    (each_arc,) = json.loads(asked("-f", "-", "-o", "json", stdin=dump))["policies"]
    assert len(each_arc["arcs"]) == each_arc["allArcs"] == 200
    assert sum(arc["flow"] for arc in each_arc["arcs"] if arc["from"] == "pods") == 150
    (each_node,) = json.loads(asked("-f", "-", "-o", "json", "--nodes", stdin=dump))["policies"]
    assert len(each_node["arcs"]) == 2_100
    graph = asked("-f", "-", "-o", "dot", "--nodes", stdin=dump).splitlines()
    assert sum(" -> " in line for line in graph) <= 200
    assert any("2,100 arcs in" in line and "shape=note" in line for line in graph)


def test_what_a_policy_without_a_drawing_amounts_to() -> None:
    """Workloads, zones, nodes that are alike, and what waits with its price; small workloads are one row."""
    large = pod("large", "9", schedulerName="thalweg")
    nodes = many_nodes(8, 2)
    nodes[0]["spec"]["taints"] = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
    flow = flow_of(*nodes, *many_pods(60), large, arguments=("--policy", "(built-in)"))
    assert (flow["drawn"], flow["placed"], flow["left"]) == (False, 28, 33)
    counts = units(flow)
    assert {ends for ends in counts if ends[0].startswith("zone")} == {
        ("zone a", "1 node of 4 cpu, 16Gi, dedicated=gpu:NoSchedule"),
        ("zone a", "3 nodes of 4 cpu, 16Gi"),
        ("zone b", "4 nodes of 4 cpu, 16Gi"),
    }
    assert counts["zone b", "4 nodes of 4 cpu, 16Gi"] == 16
    assert counts["zone a", "1 node of 4 cpu, 16Gi, dedicated=gpu:NoSchedule"] == 0
    workloads = {tail for tail, _ in counts if not tail.startswith("zone")}
    assert len(workloads) == 21
    assert "11 more workloads" in workloads
    waits = [arc for arc in flow["arcs"] if arc["to"] == "Unscheduled"]
    assert sum(arc["flow"] for arc in waits) == 33
    assert all(arc["price"] > 0 for arc in waits)
    into_zones = sum(count for (_, head), count in counts.items() if head.startswith("zone"))
    assert into_zones == sum(count for (tail, _), count in counts.items() if tail.startswith("zone")) == 28


def test_nothing_is_planned() -> None:
    dump = json.dumps({"kind": "List", "items": [node("a")]})
    assert asked("-f", "-", stdin=dump).startswith("no pod is planned")
