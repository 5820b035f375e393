"""The safety checks find what they are there to find."""

from typing import Any

import pytest
from support.cluster_checks import (
    PodHistory,
    check_history,
    check_legal,
    check_not_overcommitted,
    quantity,
    unexplained_pods,
)
from thalweg_controlplane import Oracle
from thalweg_controlplane.client.objects import node, pod


def stored(name: str, cpu: str, place: str | None = None, phase: str = "Pending", **options: Any) -> dict[str, Any]:
    """A pod as the API server has it."""
    made = pod(name, cpu, **options)
    made["metadata"]["uid"] = f"uid-{name}"
    made["status"] = {"phase": phase}
    if place:
        made["spec"]["nodeName"] = place
    return made


def test_quantities() -> None:
    """As Kubernetes writes them."""
    assert [quantity(text) for text in ("250m", "2", "1Ki", "3M")] == [quantity("0.25"), 2, 1024, 3_000_000]


def test_an_overcommitted_node_is_found() -> None:
    """By one millicore, or by one pod; finished pods do not count."""
    small = node("n", cpu="1", pods=2)
    fits = [stored("a", "600m", "n"), stored("b", "400m", "n"), stored("c", "1", "n", "Succeeded")]
    check_not_overcommitted([small], fits)
    with pytest.raises(AssertionError, match=r"n is overcommitted now.*cpu.*1\.001 of 1"):
        check_not_overcommitted([small], [fits[0], stored("b", "401m", "n")])
    with pytest.raises(AssertionError, match="pods"):
        check_not_overcommitted([small], [*fits, stored("d", "0", "n")])


def test_a_moment_of_overcommitment_is_found() -> None:
    """Though at the end all is well again."""
    history, small = PodHistory(None), node("n", cpu="1")  # type: ignore[arg-type]
    history._take("ADDED", stored("a", "600m", "n"))
    history._take("ADDED", stored("b", "600m", "n"))
    history._take("DELETED", stored("a", "600m", "n"))
    with pytest.raises(AssertionError, match="overcommitted at its fullest"):
        check_history(history, [small])
    other = PodHistory(None)  # type: ignore[arg-type]
    other._take("ADDED", stored("a", "600m", "n"))
    other._take("MODIFIED", stored("a", "600m", "n", "Succeeded"))
    other._take("ADDED", stored("b", "600m", "n"))
    check_history(other, [small])


def test_a_pod_that_changed_its_node_is_found() -> None:
    """One binding a pod."""
    history = PodHistory(None)  # type: ignore[arg-type]
    for place in (None, "n", "m"):
        history._take("MODIFIED", stored("a", "1", place))
    with pytest.raises(AssertionError, match="bound twice"):
        check_history(history, [])


def test_a_lost_pod_is_found() -> None:
    """One without a node that was told nothing; others' pods are their own affair."""
    told = stored("told", "1")
    told["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "no room"}]
    theirs = stored("theirs", "1", scheduler="default-scheduler")
    assert unexplained_pods([told, theirs, stored("bound", "1", "n"), stored("lost", "1")]) == ["default/lost"]


def test_an_illegal_place_is_found(oracle: Oracle) -> None:
    """Against a taint, which no other pod has a part in, and against a host port, which another pod has."""
    tainted = node("n", taints=[{"key": "t", "effect": "NoSchedule"}])
    with pytest.raises(AssertionError, match="default/a is on n against TaintToleration"):
        check_legal(oracle, [tainted], [stored("a", "1", "n")], [])
    ports = [{"name": "main", "image": "example.invalid/main", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    twins = [stored(name, "1", "n", containers=ports) for name in ("a", "b")]
    with pytest.raises(AssertionError, match="is on n against NodePorts"):
        check_legal(oracle, [node("n")], twins, [])
