"""The zone use case: even over zones, and within a zone the freest node."""

from collections import Counter

import pytest
from support.model import GI, amounts, node, pod, snapshot
from support.safety import plan_and_check

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.pod_index import PodSignature
from flowcore.model.selectors import LabelSelector, Requirement

ZONE = "topology.kubernetes.io/zone"
_WEB = (("app", "web"),)
_SELECTOR = LabelSelector((Requirement("app", "In", ("web",)),))


def _cluster(rules: InterPodConstraints, pods: int, full: frozenset[str] = frozenset()) -> Snapshot:
    """Three zones of two nodes, of which the first is half used and the second is free; or no room at all."""
    nodes, running = [], []
    for zone in "abc":
        for place, used in ((1, 4000), (2, 0)):
            name = f"{zone}{place}"
            nodes.append(node(name, 8000, 32 * GI, labels=(("kubernetes.io/hostname", name), (ZONE, zone))))
            taken = 8000 if zone in full else used
            if taken:
                running.append((name, amounts(taken), ()))
    kind = PodSignature("default", _WEB, constraints=rules)
    return snapshot(nodes, [pod(f"web-{at}", 500, GI, kind=kind) for at in range(pods)], running)


def _zones(cluster: Snapshot) -> tuple[Counter[str], Counter[str]]:
    nodes = Counter(placement.node for placement in plan_and_check(cluster).placements)
    zones: Counter[str] = Counter()
    for name, count in nodes.items():
        zones[name[0]] += count
    return zones, nodes


@pytest.mark.parametrize("pods", [3, 6, 9])
def test_as_many_in_each_zone_and_the_freest_node_of_it(pods: int) -> None:
    """DoNotSchedule spread says how many a zone gets, the cost model which of its nodes."""
    zones, nodes = _zones(_cluster(InterPodConstraints(spread=(SpreadConstraint(ZONE, 1, _SELECTOR),)), pods))
    assert zones == dict.fromkeys("abc", pods // 3)
    assert set(nodes) == {"a2", "b2", "c2"}


def test_a_full_zone_holds_the_others_back() -> None:
    """With maxSkew 1 each other zone gets one more than the full one has: none."""
    zones, _ = _zones(_cluster(InterPodConstraints(spread=(SpreadConstraint(ZONE, 1, _SELECTOR),)), 6, frozenset("c")))
    assert zones == {"a": 1, "b": 1}


def test_one_in_a_zone() -> None:
    """At most one per zone is anti-affinity to its own kind; what is too much waits."""
    rules = InterPodConstraints(anti_affinity=(AffinityTerm(ZONE, _SELECTOR, ("default",)),))
    zones, nodes = _zones(_cluster(rules, 5))
    assert zones == dict.fromkeys("abc", 1)
    assert set(nodes) == {"a2", "b2", "c2"}
