"""``thalweg headroom`` as lists: all nodes for people, or names for other programs."""

import json

from support.cli import Manifest, node, pod, thalweg


def headroom(*arguments: str) -> str:
    """Of a cluster with a full node and two with room."""
    full: Manifest = pod("full", "4", nodeName="a", status={"phase": "Running"})
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a"), node("b"), node("c", "2"), full]})
    done = thalweg("headroom", *arguments, "-f", "-", stdin=dump)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_names_of_nodes() -> None:
    """Those that take more pods; without pods to count those that are worth nothing."""
    assert headroom("--cpu", "1", "-o", "name").splitlines() == ["node/b", "node/c"]
    assert headroom("-o", "name").splitlines() == ["node/b", "node/c"]


def test_each_node_with_its_pods() -> None:
    """After the sentence, which -o table has alone."""
    lines = headroom("--cpu", "1", "-o", "wide").splitlines()
    assert lines[0] == headroom("--cpu", "1").splitlines()[0]
    assert [line.split() for line in lines[-3:]] == [["NODE", "MORE", "PODS"], ["b", "4"], ["c", "2"]]


def test_requests_are_told_as_they_were_given() -> None:
    """A ten-thousandth of a core more is another request: the node of one core does not take it."""
    assert headroom("--cpu", "1.0001").startswith("room for 4 more pods on 2 nodes; each requests 1001m cpu\n")
    assert "each requests 1.5 cpu, 1.5Gi memory" in headroom("--cpu", "1.5", "--memory", "1536Mi")
