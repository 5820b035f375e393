"""What every cost model promises, and what each is for."""

from collections import Counter
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.draw import Case, crowded_cases
from support.model import GI, amounts, node, pod, snapshot
from support.profiles import examples
from support.safety import plan_and_check
from support.verdicts import snapshot_of

from flowcore.api import Interner, WireNode, to_node
from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.costs import MODELS, CostModel, Load
from flowcore.costs.model import counted_amounts
from flowcore.model.cost_policy import CostPolicy, CostWeights
from flowcore.model.nodes import MEASURED_BANDWIDTH, Node, Report, Taint
from flowcore.model.pods import PodClass, PreferredTerm
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import BANDWIDTH
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round import RoundResult, run_one_by_one, run_round
from flowcore.rules.verdicts import group

NOW = 1_767_225_600.0
MI = 1024**2
weights = st.builds(CostWeights, *[st.sampled_from((0, 1, 5, 100))] * 7)
models = st.sampled_from(sorted(MODELS))
each_model = pytest.mark.parametrize("model", sorted(MODELS))


def under(model: str, given_weights: CostWeights = BUILT_IN.cost.weights) -> Mapping[str, Policy]:
    """The built-in policy with another model."""
    return {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(model, given_weights))}


def load_of(cluster: Snapshot) -> Load:
    return Load.of(cluster)


def pods_on(result: RoundResult) -> Counter[str]:
    return Counter(placement.node for placement in result.placements)


# -- promises ----------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(crowded_cases(), models, weights)
def test_arcs_are_positive_and_the_same_each_time(case: Case, model: str, given_weights: CostWeights) -> None:
    """One positive integer a node, whatever the pods and nodes are like."""
    cluster = snapshot_of(case, now=NOW, place_blocked=False)
    for found in group(cluster.pending, cluster.pod_index):
        size = counted_amounts(found.pod_class)
        arcs = MODELS[model].arc_costs(found.pod_class, size, load_of(cluster), given_weights)
        assert (arcs.dtype, arcs.shape) == (np.int64, (len(cluster.table.nodes),))
        assert (arcs > 0).all()
        again = MODELS[model].arc_costs(found.pod_class, size, load_of(cluster), given_weights)
        assert (arcs == again).all()


_amounts = st.sampled_from((0.0, 1.0, 100.0, 4000.0, float(GI), 2.0**40))
_loads = st.lists(st.tuples(_amounts, _amounts, _amounts, st.integers(0, 200)), min_size=1, max_size=6)
_units = st.tuples(*[st.sampled_from((2.0**7, 2.0**20, 2.0**28, np.inf))] * 3)


@settings(max_examples=examples(100))
@given(_loads, st.tuples(_amounts, _amounts, _amounts, st.integers(0, 110)), _units, models, weights)
def test_potentials_are_convex_and_never_fall(
    loads: list[tuple[float, ...]],
    capacity: tuple[float, ...],
    unit: tuple[float, ...],
    model: str,
    given_weights: CostWeights,
) -> None:
    """Each is above all of its tangents, by the curvature at least; no slope is below zero or above the steepest."""
    priced, units, table = MODELS[model], np.array(unit), NodeTable.of([])

    def load(columns: np.ndarray) -> Load:
        rows = np.ones((len(columns), 1))
        return Load(table, rows * capacity[:3], columns[:, :3], (rows * capacity[3]).ravel(), columns[:, 3])

    def asked(what: str, columns: np.ndarray) -> np.ndarray:
        return getattr(priced, what)(load(columns), units, given_weights)

    ends = np.array(loads, dtype=np.float64)
    values, slopes, largest = asked("potential", ends), asked("gradient", ends), ends.max(axis=0)[np.newaxis]
    bend = asked("curvature", largest)
    assert values.shape == (len(ends),)
    assert slopes.shape == (len(ends), 4)
    assert np.isfinite(values).all()
    assert (slopes >= 0).all()
    assert (bend >= 0).all()
    assert (slopes <= asked("steepest", largest) * (1 + 1e-12)).all()
    for start, value, slope in zip(ends, values, slopes, strict=True):
        step = ends - start
        tangent = value + step @ slope + (step**2) @ bend[0] / 2
        error = 1e-9 * (1 + np.abs(values) + np.abs(step) @ slope + (step**2) @ bend[0] + abs(value))
        assert (values >= tangent - error).all()


@settings(max_examples=examples(60))
@given(crowded_cases(), models, weights)
def test_plans_are_sound(case: Case, model: str, given_weights: CostWeights) -> None:
    """All safety and liveness checks under each model."""
    plan_and_check(snapshot_of(case, now=NOW, place_blocked=False), under(model, given_weights))


@settings(max_examples=examples(50))
@given(crowded_cases())
def test_a_room_knows_its_load(case: Case) -> None:
    """After whatever was committed it is that of the snapshot that the room makes, for any nodes in any order."""
    cluster = snapshot_of(case, now=NOW, place_blocked=False)
    room = Plan(cluster)
    demands = demands_of(cluster, room.load(), {BUILT_IN.name: BUILT_IN})
    for at, demand in enumerate(demands):
        room.place(demand, at % len(cluster.table.nodes), 2)
    after = load_of(room.to_snapshot(()))
    some = np.arange(len(cluster.table.nodes), dtype=np.int64)[::-2]
    for field in ("capacity", "taken", "pods_allowed", "pods"):
        assert (getattr(room.load(), field) == getattr(after, field)).all()
        for potential in {demand.potential for demand in demands}:  # they are all priced alike
            assert (getattr(room.load_at(some, potential), field) == getattr(after, field)[some]).all()


@each_model
def test_a_model_keeps_the_seam(model: str) -> None:
    """And goes by the name that it is registered under."""
    assert isinstance(MODELS[model], CostModel)
    assert MODELS[model].name == model


# -- what each is for --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(30))
@given(st.lists(st.integers(0, 10), min_size=2, max_size=8), st.integers(1, 60), st.data())
def test_load_spreading_evens_out_pod_counts(running: list[int], waiting: int, data: st.DataObject) -> None:
    """Running and planned pods count alike, and their sizes not at all.

    Stated for up to 16 pods a node, which is where the network's slots are single ones.
    """
    nodes = [node(f"n{at}", 64_000, 256 * GI) for at in range(len(running))]
    there = [(f"n{at}", amounts(100), ()) for at, count in enumerate(running) for _ in range(count)]
    cpus = data.draw(st.lists(st.sampled_from((0, 100, 500, 1000)), min_size=waiting, max_size=waiting))
    result = plan_and_check(
        snapshot(nodes, [pod(f"p{at}", cpu) for at, cpu in enumerate(cpus)], there), under("LoadSpreading")
    )
    assert not result.unplaced
    came = pods_on(result)
    assume(max(came.values()) <= 16)
    totals = [count + came[f"n{at}"] for at, count in enumerate(running)]
    # A node that came to a pod has no more than one above any other.
    assert all(totals[at] <= min(totals) + 1 for at in range(len(running)) if came[f"n{at}"])


def test_load_spreading_counts_shares_of_what_nodes_allow() -> None:
    """A node that allows twice the pods gets twice the pods."""
    nodes = [node("small", 64_000, pods=30), node("large", 64_000, pods=60)]
    result = plan_and_check(snapshot(nodes, [pod(f"p{at}") for at in range(24)]), under("LoadSpreading"))
    assert pods_on(result) == {"small": 8, "large": 16}


@settings(max_examples=examples(30))
@given(st.integers(3, 40), st.integers(1, 40))
def test_bin_packing_uses_few_nodes(count: int, waiting: int) -> None:
    """On an empty cluster as few as can be for pods of one size, CPUMemory as many as there are."""
    cluster = snapshot([node(f"n{at:02}") for at in range(count)], [pod(f"p{at}", 1000, GI) for at in range(waiting)])
    packed = plan_and_check(cluster, under("BinPacking"))
    assert len(packed.placements) == min(waiting, 4 * count)
    assert len(pods_on(packed)) == min(-(-waiting // 4), count)
    spread = plan_and_check(cluster, under("CPUMemory"))
    assert len(pods_on(spread)) == min(waiting, count)


_loads_of_nodes = st.tuples(*[st.integers(1, 6_000)] * 2, st.integers(8_000, 32_000), st.integers(8_000, 32_000))


@settings(max_examples=examples(100))
@given(st.lists(_loads_of_nodes, min_size=2, max_size=6), st.integers(100, 2_000), st.integers(100, 2_000))
def test_a_lone_pod_follows_the_load_as_with_kube_scheduler(
    nodes: list[tuple[int, int, int, int]], milli: int, mib: int
) -> None:
    """Whatever its size: its node has the most of LeastAllocated and BalancedAllocation, which are 0 to 100 each.

    All containers state requests: without them, LeastAllocated counts 100m and 200 MiB.
    """
    there = [(f"n{at}", amounts(cpu, memory * MI), ()) for at, (cpu, memory, _, _) in enumerate(nodes)]
    table = [node(f"n{at}", cpu, memory * MI) for at, (_, _, cpu, memory) in enumerate(nodes)]
    (chosen,) = pods_on(plan_and_check(snapshot(table, [pod("p", milli, mib * MI)], there), under("CPUMemory")))

    def points(at: int) -> float:
        cpu, memory, all_cpu, all_memory = nodes[at]
        before, after = (cpu / all_cpu, memory / all_memory), ((cpu + milli) / all_cpu, (memory + mib) / all_memory)
        balance = abs(after[0] - after[1]) - abs(before[0] - before[1])
        return 100 - 50 * sum(after) + 75 - 25 * balance

    # A tenth of a point is a whole unit of cost. Four rounded potentials are compared: two units at most.
    assert points(int(chosen[1:])) >= max(map(points, range(len(nodes)))) - 0.2


def test_bin_packing_on_a_large_empty_cluster() -> None:
    """Whole units do not tell thousands of nodes apart; what is spread over more than needed stays small."""
    cluster = snapshot([node(f"n{at:04}") for at in range(5000)], [pod(f"p{at}", 400, GI) for at in range(400)])
    assert len(pods_on(plan_and_check(cluster, under("BinPacking")))) <= 60


def test_bin_packing_goes_to_the_fullest_that_fits() -> None:
    """The full one cannot, the fuller one gets all it can take, the emptier one the rest, the empty one nothing."""
    nodes = [node(name) for name in ("empty", "emptier", "fuller", "full")]
    there = [("emptier", amounts(1000, GI), ()), ("fuller", amounts(2000, GI), ()), ("full", amounts(3900, GI), ())]
    result = plan_and_check(snapshot(nodes, [pod(f"p{at}", 500, GI) for at in range(6)], there), under("BinPacking"))
    assert pods_on(result) == {"fuller": 4, "emptier": 2}


def test_bin_packing_one_by_one_is_the_same_order() -> None:
    """Prices are those of the start for every method, so that their plans compare."""
    cluster = snapshot([node(f"n{at}") for at in range(5)], [pod(f"p{at}", 1000) for at in range(9)])
    at_once, in_turn = run_round(cluster, under("BinPacking")), run_one_by_one(cluster, under("BinPacking"))
    assert pods_on(at_once) == pods_on(in_turn) == {"n0": 4, "n1": 4, "n2": 1}
    assert at_once.cost == in_turn.cost


@each_model
@pytest.mark.parametrize("liked", ["a", "b"])
def test_preferred_affinity_counts(model: str, liked: str) -> None:
    """A weight of 100 outweighs what a pod makes of two alike nodes; a weight of 0 in the policy turns it off."""
    nodes = [node("a", labels=(("name", "a"),)), node("b", labels=(("name", "b"),))]
    term = NodeSelectorTerm((Requirement("name", "In", (liked,)),), ())
    cluster = snapshot(nodes, [pod("p", 500, preferred_affinity=(PreferredTerm(100, term),))])
    assert pods_on(plan_and_check(cluster, under(model))) == {liked: 1}
    off = replace_weight("node_preference")
    indifferent = snapshot(nodes, [pod("p", 500)])
    assert pods_on(plan_and_check(cluster, under(model, off))) == pods_on(
        plan_and_check(indifferent, under(model, off))
    )


@each_model
@pytest.mark.parametrize("tainted", ["a", "b"])
def test_soft_taints_count(model: str, tainted: str) -> None:
    """A PreferNoSchedule taint keeps a pod on the other node, unless the policy turns that off."""
    taint = (Taint("slow", "", "PreferNoSchedule"),)
    nodes = [node(name, taints=taint if name == tainted else ()) for name in ("a", "b")]
    cluster = snapshot(nodes, [pod("p", 500)])
    (chosen,) = pods_on(plan_and_check(cluster, under(model)))
    assert chosen != tainted
    off, plain = replace_weight("taint_preference"), snapshot([node("a"), node("b")], [pod("p", 500)])
    assert pods_on(plan_and_check(cluster, under(model, off))) == pods_on(plan_and_check(plain, under(model, off)))


def replace_weight(name: str) -> CostWeights:
    """The default weights with one turned off."""
    fields = {each: getattr(CostWeights(), each) for each in CostWeights.__struct_fields__}
    return CostWeights(**{**fields, name: 0})


def test_a_model_of_ones_own() -> None:
    """A round takes models as an argument: here one that likes nodes by the last letter of their name."""

    class Alphabet:
        name = "Alphabet"

        def arc_costs(self, pod_class, size, load, weights):
            return np.array([ord("z") + 1 - ord(each.name[-1]) for each in load.table.nodes], dtype=np.int64)

        def potential(self, load, unit, weights):
            return np.zeros(load.pods.shape)

        def gradient(self, load, unit, weights):
            return np.zeros((*load.pods.shape, 4))

        curvature = steepest = gradient

    cluster = snapshot([node("a"), node("z"), node("m")], [pod(f"p{at}", 1000) for at in range(6)])
    result = run_round(cluster, under("Alphabet"), {**MODELS, "Alphabet": Alphabet()})
    assert pods_on(result) == {"z": 4, "m": 2}
    with pytest.raises(KeyError, match="Alphabet"):
        run_round(cluster, under("Alphabet"))


# -- network -----------------------------------------------------------------------------------------------------------

GBIT = 10**9


def linked(name: str, gbits: float, measured: float | None = None, **fields: object) -> Node:
    """A node with so much network, and so much of it measured in use."""
    offered = amounts(64_000, 256 * GI, pods=110, **{BANDWIDTH: int(gbits * GBIT)})
    return Node(name, allocatable=offered, report=Report(bandwidth=None if measured is None else int(measured * GBIT)))


def sender(name: str, gbits: float) -> PendingPod:
    return PendingPod(name, name, PodClass(requests=amounts(100, **{BANDWIDTH: int(gbits * GBIT)})), BUILT_IN.name)


def test_bandwidth_fills_nodes_by_their_share_of_it() -> None:
    """Nodes with more network get more pods, and none more than it offers: it is a resource like others."""
    nodes = [linked("slow", 1), linked("fast", 3)]
    result = plan_and_check(snapshot(nodes, [sender(f"p{at}", 0.1) for at in range(20)]), under("NetworkAware"))
    assert pods_on(result) == {"slow": 5, "fast": 15}
    crowd = plan_and_check(snapshot(nodes, [sender(f"p{at}", 0.3) for at in range(20)]), under("NetworkAware"))
    assert pods_on(crowd) == {"slow": 3, "fast": 10}
    assert len(crowd.unplaced) == 7


def test_the_larger_of_asked_and_measured_counts() -> None:
    """A busy network is avoided though nobody asked for it; what is asked for counts though it lies idle."""
    there = [("asked", amounts(100, **{BANDWIDTH: GBIT // 2}), ())]
    for measured, chosen in ((0.7, "asked"), (0.3, "busy"), (None, "busy")):
        nodes = [linked("asked", 1, 0.0), linked("busy", 1, measured)]
        assert pods_on(plan_and_check(snapshot(nodes, [sender("p", 0.1)], there), under("NetworkAware"))) == {chosen: 1}


def test_nothing_known_of_a_network_is_half_used() -> None:
    """Such a node comes after one that is used less and before one that is used more."""
    for measured, chosen in ((0.3, "known"), (0.7, "unknown")):
        nodes = [linked("known", 1, measured), node("unknown", 64_000, 256 * GI)]
        assert pods_on(plan_and_check(snapshot(nodes, [pod("p", 100)]), under("NetworkAware"))) == {chosen: 1}


def test_pods_that_ask_for_no_network_spread_by_number() -> None:
    """They do not pile up on the node whose network is the most idle, once it has its share of pods."""
    nodes = [linked(name, 1) for name in "abc"]
    assert pods_on(plan_and_check(snapshot(nodes, [pod(f"p{at}", 100) for at in range(9)]), under("NetworkAware"))) == {
        "a": 3, "b": 3, "c": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1200M", 1_200_000_000),
        ("1.5G", 1_500_000_000),
        ("0", 0),
        ("-1", None),
        ("fast", None),
        (7, None),
        (None, None),
    ],
)
def test_what_an_agent_writes_is_read_or_passed_over(text: object, read: int | None) -> None:
    """A cost is no reason to lose a node."""
    manifest = {"metadata": {"name": "n", "annotations": {MEASURED_BANDWIDTH: text, "other": 7}}}
    found = to_node(msgspec.convert(manifest, WireNode), Interner())
    assert (found.report.bandwidth, found.problem) == (read, "")
