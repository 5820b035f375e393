"""kube-scheduler's own verdicts on cases whose answer everybody knows."""

from collections.abc import Iterator

import pytest
from thalweg_controlplane import Binaries, Oracle, OracleError, OracleVerdict
from thalweg_controlplane.client.objects import node, pod


@pytest.fixture(scope="module")
def oracle(binaries: Binaries) -> Iterator[Oracle]:
    with Oracle(binaries) as oracle:
        yield oracle


def test_a_pod_must_fit_beside_what_is_there(oracle: Oracle) -> None:
    """Of two equal nodes the one with a big pod on it has too little left."""
    nodes = [node("full", cpu="4"), node("free", cpu="4")]
    resident = pod("resident", cpu="3", nodeName="full")
    verdicts = oracle.judge(nodes, [resident], [pod("new", cpu="2")])
    assert verdicts[""]["default/new"] == {
        "full": OracleVerdict(False, "NodeResourcesFit", "Insufficient cpu", "Unschedulable"),
        "free": OracleVerdict(True),
    }


def test_each_filter_judges_for_itself(oracle: Oracle) -> None:
    """A taint and a node selector reject the same pod, each filter knowing only its own rule."""
    tainted = node("tainted", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    verdicts = oracle.judge(
        [tainted], [], [pod("new", nodeSelector={"zone": "a"})], ["TaintToleration", "NodeAffinity", "NodeName"]
    )
    codes = {name: answer["default/new"]["tainted"].code for name, answer in verdicts.items()}
    assert codes == {
        "TaintToleration": "UnschedulableAndUnresolvable",
        "NodeAffinity": "UnschedulableAndUnresolvable",
        "NodeName": "",
    }


def test_anti_affinity_looks_at_the_pods_of_the_domain(oracle: Oracle) -> None:
    """A pod that wants its zone to itself goes to the zone without its like."""
    nodes = [node(name, labels={"zone": zone}) for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"))]
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    first = pod("first", labels={"app": "web"}, nodeName="a1")
    verdicts = oracle.judge(nodes, [first], [pod("second", labels={"app": "web"}, affinity=affinity)])
    assert {name: verdict.fits for name, verdict in verdicts[""]["default/second"].items()} == {
        "a1": False,
        "a2": False,
        "b1": True,
    }
    assert verdicts[""]["default/second"]["a2"].filter == "InterPodAffinity"


def test_a_question_that_makes_no_sense_is_an_error(oracle: Oracle) -> None:
    """And the next question is answered as if nothing had been."""
    with pytest.raises(OracleError, match='no plugin "Nonsense"'):
        oracle.judge([node("a")], [], [pod("new")], ["Nonsense"])
    assert oracle.judge([node("a")], [], [pod("new")])[""]["default/new"]["a"].fits


def test_a_dead_oracle_is_an_error(binaries: Binaries) -> None:
    """Not a hang, and not a broken pipe."""
    oracle = Oracle(binaries)
    oracle._process.kill()
    with pytest.raises(OracleError, match="the oracle has ended"):
        oracle.judge([node("a")], [], [pod("new")])
    oracle.close()
