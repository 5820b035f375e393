"""Costs by measured load: what counts as used, and that requests stay the hard limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.all_plans import all_plans
from support.draw import Case, crowded_cases
from support.model import GI, amounts, node, snapshot
from support.profiles import examples
from support.safety import plan_and_check
from support.verdicts import snapshot_of

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.arrays.tables import ClusterTables
from flowcore.cluster.changes import ClusterChanges
from flowcore.costs import MODELS, Load
from flowcore.costs.model import counted_amounts
from flowcore.model.cost_policy import CostPolicy, Utilisation
from flowcore.model.nodes import Report
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import BANDWIDTH
from flowcore.model.usage import MeasuredLoad
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round import RoundResult, run_round
from flowcore.rules.verdicts import VerdictCache, group
from flowcore.rules.verdicts.invalidation import Event

_NOW = 1_767_225_600.0
_NAN = float("nan")
_BY_USE = st.sampled_from((Utilisation.MEASURED, Utilisation.LARGER))
_use = st.one_of(
    st.none(), st.tuples(st.sampled_from((0, 300, 1000, 2300, 70_000)), st.sampled_from((0, GI, 2 * GI, 2**50)))
)


def _under(utilisation: Utilisation, model: str = "CPUMemory") -> Mapping[str, Policy]:
    return {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(model, utilisation=utilisation))}


def _measured(
    cluster: Snapshot, loads: list[tuple[int, int] | None], foreseen: list[tuple[int, int] | None]
) -> Snapshot:
    """With these loads of nodes and uses of pods, again and again."""
    rows = np.full((len(cluster.table.nodes), 3), np.nan)
    for at in range(len(rows)):
        load = loads[at % len(loads)]
        rows[at, :2] = _NAN if load is None else load
    pending = tuple(
        msgspec.structs.replace(pod, foreseen=foreseen[at % len(foreseen)]) for at, pod in enumerate(cluster.pending)
    )
    return replace(cluster, measured=rows, pending=pending)


_lists = st.lists(_use, min_size=1, max_size=5)


def _pods(count: int, cpu: int = 1000, memory: int = GI, foreseen: tuple[int, int] | None = None) -> list[PendingPod]:
    pod_class = PodClass(requests=amounts(cpu, memory))
    return [PendingPod(f"p{at}", f"p{at}", pod_class, BUILT_IN.name, foreseen=foreseen) for at in range(count)]


def _counts(result: RoundResult) -> Counter[str]:
    return Counter(placement.node for placement in result.placements)


# -- what counts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("utilisation", "expected"),
    [
        (Utilisation.REQUESTED, [[1000, GI], [1000, GI], [1000, GI]]),
        (Utilisation.MEASURED, [[300, 2 * GI], [1000, GI], [0, 0]]),
        (Utilisation.LARGER, [[1000, 2 * GI], [1000, GI], [1000, GI]]),
    ],
)
def test_a_load_is_made_of_what_the_policy_says(utilisation: Utilisation, expected: list[list[int]]) -> None:
    """Of three nodes with the same pods one is measured, one is not, and one is measured idle."""
    cluster = snapshot([node(f"n{at}") for at in range(3)], [], [(f"n{at}", amounts(1000, GI), ()) for at in range(3)])
    cluster = replace(cluster, measured=np.array([[300, 2 * GI, _NAN], [_NAN] * 3, [0, 0, _NAN]]))
    assert Load.of(cluster, utilisation).taken[:, :2].tolist() == expected


@pytest.mark.parametrize("utilisation", list(Utilisation))
def test_measured_bandwidth_replaces_the_annotation(utilisation: Utilisation) -> None:
    """Whatever a policy says of cpu and memory: where a node's bandwidth is measured its annotation does not count."""
    offering = [
        msgspec.structs.replace(
            node(f"n{at}"), allocatable=(*node("n").allocatable, (BANDWIDTH, 1000)), report=Report(bandwidth=500)
        )
        for at in range(2)
    ]
    cluster = replace(snapshot(offering, []), measured=np.array([[_NAN, _NAN, 70.0], [_NAN] * 3]))
    assert Load.of(cluster, utilisation).taken[:, 2].tolist() == [70, 500]


@pytest.mark.parametrize(
    ("utilisation", "expected"),
    [
        (Utilisation.REQUESTED, [1000, GI, 0]),
        (Utilisation.MEASURED, [200, 3 * GI, 0]),
        (Utilisation.LARGER, [1000, 3 * GI, 0]),
    ],
)
def test_a_pod_counts_for_what_is_foreseen(utilisation: Utilisation, expected: list[int]) -> None:
    """And for its requests where nothing is foreseen."""
    pod_class = PodClass(amounts(1000, GI))
    assert counted_amounts(pod_class, (200, 3 * GI), utilisation).tolist() == expected
    assert counted_amounts(pod_class, None, utilisation).tolist() == [1000, GI, 0]


def test_pods_that_use_differently_are_not_interchangeable() -> None:
    """Equal requests, another use: two groups."""
    pods = [*_pods(2), *(msgspec.structs.replace(pod, key=f"{pod.key}x") for pod in _pods(2, foreseen=(100, GI)))]
    groups = group(pods, snapshot([node("n")], []).pod_index)
    assert [(found.foreseen, len(found.pods)) for found in groups] == [(None, 2), ((100, GI), 2)]


# -- plans -------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(15))
@given(crowded_cases(), _lists, st.sampled_from(sorted(MODELS)))
def test_a_policy_that_says_nothing_plans_as_before(
    case: Case, loads: list[tuple[int, int] | None], model: str
) -> None:
    """Measured cpu and memory make no difference for it, to the last unit of cost."""
    cluster = snapshot_of(case, now=_NOW, place_blocked=False)
    policies = {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(model))}
    plain, measured = run_round(cluster, policies), run_round(_measured(cluster, loads, [None]), policies)
    assert (measured.placements, measured.unplaced) == (plain.placements, plain.unplaced)
    assert (measured.cost, measured.lower_bound) == (plain.cost, plain.lower_bound)


@settings(max_examples=examples(25))
@given(crowded_cases(), _lists, _lists, _BY_USE, st.sampled_from(sorted(MODELS)))
def test_plans_by_use_are_sound(
    case: Case,
    loads: list[tuple[int, int] | None],
    foreseen: list[tuple[int, int] | None],
    utilisation: Utilisation,
    model: str,
) -> None:
    """All safety and liveness checks: requests stay the limit, though a node is measured full or empty."""
    cluster = _measured(snapshot_of(case, now=_NOW, place_blocked=False), loads, foreseen)
    plan_and_check(cluster, _under(utilisation, model))


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.sampled_from((2000, 4000, 8000)), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from((500, 1500, 4000)), _use), min_size=1, max_size=4),
    _lists,
    _BY_USE,
    st.sampled_from(sorted(MODELS)),
)
def test_no_plan_by_use_beats_the_bound(
    nodes: list[int],
    pods: list[tuple[int, tuple[int, int] | None]],
    loads: list[tuple[int, int] | None],
    utilisation: Utilisation,
    model: str,
) -> None:
    """Against all plans of small clusters; a certified plan is the cheapest of them."""
    waiting = [
        PendingPod(f"p{at}", f"p{at}", PodClass(requests=amounts(cpu, GI)), BUILT_IN.name, foreseen=use)
        for at, (cpu, use) in enumerate(pods)
    ]
    cluster = snapshot([node(f"n{at}", cpu) for at, cpu in enumerate(nodes)], waiting)
    cluster = _measured(cluster, loads, [pod.foreseen for pod in waiting])
    policies, start = _under(utilisation, model), Plan(cluster)
    demands = demands_of(cluster, start.load(), policies)
    best = min(Objective(demands, start).total(commits) for commits in all_plans(demands, start))
    result = run_round(cluster, policies)
    assert result.lower_bound <= best <= result.cost
    if result.certified:
        assert result.cost == best


def test_pods_go_where_little_is_used() -> None:
    """n0 has large requests and is idle, n1 has small requests and is busy: only Measured goes to n0."""
    running = [("n0", amounts(3000, GI), ()), ("n1", amounts(1000, GI), ())]
    cluster = snapshot([node("n0", 8000), node("n1", 8000)], _pods(2), running)
    cluster = replace(cluster, measured=np.array([[200, GI, _NAN], [6000, GI, _NAN]]))
    assert _counts(run_round(cluster, _under(Utilisation.REQUESTED))) == {"n1": 2}
    assert _counts(run_round(cluster, _under(Utilisation.MEASURED))) == {"n0": 2}
    assert _counts(run_round(cluster, _under(Utilisation.LARGER))) == {"n0": 2}


def test_requests_stay_the_hard_limit() -> None:
    """A node full of requests takes no pod, however idle it is; one that is measured full does."""
    running = [("n0", amounts(8000, GI), ()), ("n1", amounts(1000, GI), ())]
    cluster = snapshot([node("n0", 8000), node("n1", 8000)], _pods(8), running)
    cluster = replace(cluster, measured=np.array([[0, 0, _NAN], [8000, 2 * GI, _NAN]]))
    result = run_round(cluster, _under(Utilisation.MEASURED))
    assert _counts(result) == {"n1": 7}
    assert len(result.unplaced) == 1


def test_pods_of_a_round_count_at_once() -> None:
    """No herd: of two nodes the idle one gets pods until both are foreseen to be as full."""
    cluster = snapshot([node("n0", 8000), node("n1", 8000)], _pods(6, cpu=100, foreseen=(1000, GI)))
    cluster = replace(cluster, measured=np.array([[0, 0, _NAN], [4000, 4 * GI, _NAN]]))
    assert _counts(run_round(cluster, _under(Utilisation.MEASURED))) == {"n0": 5, "n1": 1}


def test_two_policies_measure_each_its_own_way() -> None:
    """In one round a policy that asks for requests is as it was, beside one that asks for measured load."""
    by_use = Policy("by-use", cost=CostPolicy(utilisation=Utilisation.MEASURED))
    running = [("n0", amounts(3000, GI), ()), ("n1", amounts(1000, GI), ())]
    used = [msgspec.structs.replace(pod, key="used", policy="by-use") for pod in _pods(1)]
    cluster = snapshot([node("n0", 8000), node("n1", 8000)], [*_pods(1), *used], running)
    cluster = replace(cluster, measured=np.array([[200, GI, _NAN], [6000, GI, _NAN]]))
    result = run_round(cluster, {BUILT_IN.name: BUILT_IN, "by-use": by_use})
    assert {placement.pod.key: placement.node for placement in result.placements} == {"p0": "n1", "used": "n0"}


# -- tables and caches -------------------------------------------------------------------------------------------------


_loads = st.builds(
    MeasuredLoad,
    st.sampled_from(("n0", "n1", "n2")),
    st.sampled_from((None, 5)),
    st.sampled_from((None, 7)),
    st.sampled_from((None, 9)),
)


@settings(max_examples=examples(50))
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("load"), _loads),
            st.tuples(st.just("put"), st.sampled_from(("n0", "n1", "n2"))),
            st.tuples(st.just("gone"), st.sampled_from(("n0", "n1", "n2"))),
        ),
        max_size=20,
    )
)
def test_tables_keep_the_newest_load_of_each_node(history: list[tuple[str, MeasuredLoad | str]]) -> None:
    """Whatever nodes come and go; a node that comes anew is not measured; and copies of the tables say the same."""
    tables, truth = ClusterTables(NodeTable.of(())), dict[str, MeasuredLoad]()
    for what, value in history:
        if isinstance(value, MeasuredLoad):
            rows = tables.apply(ClusterChanges(measured=[value]))
            known = value.node in tables.table.index
            assert rows.measured == ([tables.table.index[value.node]] if known else [])
            if known:
                truth[value.node] = value
        elif what == "put":
            tables.apply(ClusterChanges(nodes=[node(value)]))
        else:
            tables.apply(ClusterChanges(removed_nodes=[value]))
            truth.pop(value, None)
        copied = ClusterTables()
        copied.apply(tables.full_changes())
        for each in (tables, copied):
            state = each.to_snapshot(generation=0, now=0.0, pending=())
            expected = {name: truth.get(name, MeasuredLoad(name)).amounts for name in state.table.index}
            if state.measured is None:
                assert all(amounts == (None, None, None) for amounts in expected.values())
                continue
            seen = [tuple(None if np.isnan(one) else one for one in row) for row in state.measured.tolist()]
            assert dict(zip(expected, seen, strict=True)) == expected


def test_remembered_prices_follow_the_measured_load() -> None:
    """A cache that is told of a new measurement gives the prices of a fresh look."""
    tables = ClusterTables(NodeTable.of([node("n0"), node("n1")]))
    cache, policies = VerdictCache(), _under(Utilisation.MEASURED)
    cache.change_nodes(NodeTable.of(()), tables.table, ())

    def increases(remembered: VerdictCache | None) -> list[int]:
        state = tables.to_snapshot(generation=0, now=0.0, pending=tuple(_pods(1)))
        if remembered is not None:
            remembered.follow(state)
        (demand,) = demands_of(state, Load.of(state), policies, cache=remembered)
        return demand.first_increase.tolist()

    before = increases(cache)
    rows = tables.apply(ClusterChanges(measured=[MeasuredLoad("n1", 6000, 3 * GI)]))
    cache.change_at(Event.NODE_MEASURED, rows.measured)
    assert increases(cache) == increases(None) != before
