"""Lower bounds where pods of a network have a choice of ways, and other pods compete with them for room."""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.all_plans import all_plans
from support.model import GI, node, pod, snapshot
from support.network_policies import drawing, with_choice
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy, UnscheduledPrice
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.drawn_networks.compile_networks import CompileNetworks
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.passes import CompileConstraints, apply_all
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.round import run_round

#: What a pod of the network pays on the first node, and on the second.
_ARCS = (700, 2500)
TWO_PRICES = with_choice([{"to": f"n{place}", "cost": cost, "maximum": 2} for place, cost in enumerate(_ARCS)])


def _beside_a_network(cluster: Snapshot, policies: Mapping[str, Policy]) -> Iterator[int]:
    """The cost of each plan: pods of policy net take their cheapest way to a node, at most two to each."""
    passes = CompileNetworks(), CompileConstraints()
    problem = apply_all(passes, Problem(cluster, policies, MODELS))
    demands, start = tuple(priced(problem, demand) for demand in problem.demands), problem.start
    for commits in all_plans(demands, start):
        counts = Counter[int]()
        for commit in commits:
            counts[commit.node] += commit.count * (demands[commit.demand].policy.name == "net")
        if max(counts.values(), default=0) <= 2:
            yield Objective(demands, start).total(commits)


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
