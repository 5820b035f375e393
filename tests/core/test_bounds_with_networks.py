"""Lower bounds where networks decide about some pods as a whole, and other pods compete with them for room."""

from collections.abc import Iterator, Mapping
from itertools import product

import msgspec
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.all_plans import all_plans
from support.joint_networks import drawing, joint
from support.model import GI, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy, UnscheduledPrice
from flowcore.model.inter_pod_constraints import InterPodConstraints, SpreadConstraint
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.drawn_networks.joint.network_pass import SolveNetworks
from flowcore.planning.problem.bounds.bound_notes import BoundNote
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.round import run_round

#: What a pod of the network pays on the first node, and on the second.
_ARCS = (700, 2500)
TWO_PRICES = joint([{"to": f"n{place}", "cost": cost, "maximum": 2} for place, cost in enumerate(_ARCS)])


def _beside_a_network(cluster: Snapshot, policies: Mapping[str, Policy]) -> Iterator[int]:
    """The cost of each plan: pods of policy net go through their network, the others where there is room."""
    rest = SolveNetworks().apply(Problem(cluster, policies, MODELS))
    demands = tuple(priced(rest, demand) for demand in rest.demands)
    problem = Problem(cluster, policies, MODELS)
    own = [
        (pod, int(price))
        for demand in problem.demands
        if demand.policy.name == "net"
        for pod, price in zip(demand.group.pods, demand.prices, strict=True)
    ]
    for nodes in product((None, *range(len(cluster.table.nodes))), repeat=len(own)):
        used, assumed = cluster.used.copy(), cluster.non_zero_requested.copy()
        cost = 0
        for (waiting, price), row in zip(own, nodes, strict=True):
            cost += price if row is None else _ARCS[row]
            if row is not None:
                used[row] += cluster.vector(waiting.pod_class.requests)
                assumed[row] += np.array(waiting.pod_class.non_zero_requests)
        changed = cluster.with_usage(used, assumed, cluster.ports, cluster.pod_index)
        if any((changed.free[row] < 0).any() or nodes.count(row) > 2 for row in range(len(used))):
            continue
        start = Plan(changed)
        for commits in all_plans(demands, start):
            yield cost + Objective(demands, start).total(commits)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.sampled_from((2000, 4000)), min_size=1, max_size=2),
    st.lists(
        st.tuples(st.sampled_from((500, 1000, 2000)), st.sampled_from((0, 1, 3)), st.integers(0, 5), st.booleans()),
        min_size=1, max_size=4,
    ),
    st.sampled_from(sorted(MODELS)),
    st.sampled_from((0, 1_000, 100_000)),
)  # fmt: skip
# The network takes all room, for which two others are dearer to leave than it; and room is kept from the network.
@example([1000], [(1000, 0, 5, True), (500, 0, 0, False), (500, 0, 0, False)], "CPUMemory", 100_000)
@example([1000, 1000], [(1000, 0, 5, False), (1000, 0, 0, True)], "CPUMemory", 100_000)
def test_no_plan_beside_a_network_beats_the_bound(
    nodes: list[int], waiting: list[tuple[int, int, int, bool]], model: str, base: int
) -> None:
    """Against all plans of the network's pods and of others, whoever would have come first."""
    pending = [
        pod(f"p{at}", cpu, gi * GI, priority=priority, policy="net" if by_network else BUILT_IN.name)
        for at, (cpu, gi, priority, by_network) in enumerate(waiting)
    ]
    cluster = snapshot([node(f"n{at}", cpu) for at, cpu in enumerate(nodes)], pending)
    price = UnscheduledPrice(base=base)
    policies = {
        BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(model), unscheduled=price),
        "net": msgspec.structs.replace(drawing("net", TWO_PRICES), unscheduled=price),
    }
    result = run_round(cluster, policies)
    best = min(_beside_a_network(cluster, policies))
    assert 0 < result.lower_bound <= best <= result.cost
    if result.certified:
        assert result.cost == best
    elif {each.policy for each in pending} == policies.keys():
        assert BoundNote.NETWORKS in result.bound_notes


def test_rules_that_allow_more_later_are_not_certified() -> None:
    """A zone takes one more than the emptiest: one pod each as the round begins, and all six by turns."""
    web = LabelSelector((Requirement("app", "In", ("web",)),))
    even = InterPodConstraints(spread=(SpreadConstraint("zone", 1, web),))
    alike = PodSignature("default", (("app", "web"),), constraints=even)
    nodes = [node(f"n{number}", labels=(("zone", f"z{number}"),)) for number in range(3)]
    pending = [pod(f"p{number}", 100, policy="net", kind=alike) for number in range(6)]
    result = run_round(snapshot(nodes, pending), {"net": drawing("net", joint([{"to": "Nodes"}]))})
    assert not result.certified
    assert result.lower_bound == 0, "all six may be placed"
