"""Pods that fit nowhere cost a round little, and nothing that others pay depends on them."""

from collections.abc import Callable

import pytest
from support.model import GI, amounts, node, pod, snapshot
from support.work import lines_run

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy, DataLocality
from flowcore.model.data import DataPlace, DataSource, Level
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint, WeightedTerm
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.round import run_round

READS, TERMS, NODES = "reads", 40, 20
POLICIES = {
    BUILT_IN.name: BUILT_IN,
    READS: Policy(READS, cost=CostPolicy(data_locality=DataLocality())),
}


def _terms(at: int, key: str = "host") -> list[AffinityTerm]:
    return [
        AffinityTerm(key, LabelSelector((Requirement(f"k{each}", "In", (f"v{at}",)),)), ("mallory",))
        for each in range(TERMS)
    ]


def _ruled(at: int, cpu: int, rules: InterPodConstraints) -> PendingPod:
    return pod(f"m{at}", cpu, kind=PodSignature("mallory", (("a", f"x{at}"),), constraints=rules))


def plain(at: int, cpu: int) -> PendingPod:
    return pod(f"m{at}", cpu + at)


def apart(at: int, cpu: int) -> PendingPod:
    return _ruled(at, cpu, InterPodConstraints(anti_affinity=tuple(_terms(at))))


def preferring(at: int, cpu: int) -> PendingPod:
    return _ruled(at, cpu, InterPodConstraints(preferred=tuple(WeightedTerm(7, term) for term in _terms(at))))


def spread(at: int, cpu: int) -> PendingPod:
    spreads = tuple(SpreadConstraint("host", 1, term.selector) for term in _terms(at))
    return _ruled(at, cpu, InterPodConstraints(spread=spreads))


def reading(at: int, cpu: int) -> PendingPod:
    places = [tuple(DataPlace(Level.NODE, f"n{(at + each) % NODES}") for each in range(8)) for _ in range(TERMS)]
    data = tuple(DataSource(each, (1 + at) * GI) for each in places)
    return pod(f"m{at}", cpu, policy=READS, data=data)


KINDS = [plain, apart, preferring, spread, reading]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def cluster(pending: list[PendingPod]) -> Snapshot:
    return snapshot([node(f"n{at}", labels=(("host", f"n{at}"),)) for at in range(NODES)], pending)


@pytest.mark.parametrize("kind", KINDS[1:], ids=lambda kind: kind.__name__)
def test_rules_and_data_of_pods_that_fit_nowhere_are_not_priced(kind: Callable[[int, int], PendingPod]) -> None:
    """With many rules such a pod costs a fraction of what one that fits does."""
    costs = {}
    for cpu in (100, 64_000):
        found = cluster([kind(at, cpu) for at in range(10)])
        costs[cpu] = lines_run(lambda found=found: Problem(found, POLICIES, MODELS).demands)
    assert costs[64_000] < 0.6 * costs[100]


@each_kind
def test_pods_that_fit_nowhere_change_nothing_for_others(kind: Callable[[int, int], PendingPod]) -> None:
    """Neither what others cost nor where they go."""
    others = [pod(f"p{at}", 500 * (1 + at), priority=at % 2) for at in range(5)]
    quiet, loud = cluster(others), cluster([*others, *(kind(at, 64_000) for at in range(10))])
    alone, among = (Problem(each, POLICIES, MODELS).demands for each in (quiet, loud))
    for one, other in zip(alone, among, strict=False):
        assert one.group.pods == other.group.pods
        assert (one.arc + one.first_increase == other.arc + other.first_increase).all()
        assert (one.prices == other.prices).all()
    places = [{each.pod.key: each.node for each in run_round(found, POLICIES).placements} for found in (quiet, loud)]
    assert places[0] == places[1]


@each_kind
def test_pods_that_fit_nowhere_are_told_why(kind: Callable[[int, int], PendingPod]) -> None:
    """The message is about what is short, whatever rules they have."""
    result = run_round(cluster([kind(0, 64_000)]), POLICIES)
    assert [each.reason for each in result.unplaced] == [f"0/{NODES} nodes are available: {NODES} Insufficient cpu."]


def test_a_pod_without_room_has_prices_where_they_are_asked_for() -> None:
    """No node has room for it as the round begins; others may leave for it, or it may take the place of another."""
    data = (DataSource((DataPlace(Level.NODE, "n2"),), 100 * GI),)
    wanting = pod("p", 4000, policy=READS, data=data)
    found = snapshot([node(f"n{at}") for at in range(3)], [wanting], [(f"n{at}", amounts(4000), ()) for at in range(3)])
    problem = Problem(found, POLICIES, MODELS)
    (demand,) = problem.demands
    assert not demand.is_priced
    assert not demand.arc.any()
    costs = priced(problem, demand)
    assert (costs.arc - costs.arc.min()).tolist() == [1000, 1000, 0]
    assert costs.first_increase.all()
