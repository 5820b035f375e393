"""What pods would rather have: priced the same beside every model, never above what hard rules say."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.draw import SCORES, SOFT, Case, cases
from support.model import GI, amounts, node, pod, snapshot
from support.profiles import examples
from support.safety import plan_and_check
from support.verdicts import read_pods, snapshot_of

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs import MODELS, preferences, without_idle_images
from flowcore.model.cost_policy import CostPolicy, CostWeights, Preferences
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint, WeightedTerm
from flowcore.model.nodes import Node, Report
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.round import RoundResult
from flowcore.rules.verdicts import group

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
MIB = 2**20
soft_cases = cases(frozenset({*SCORES, SOFT}))
weights = st.builds(CostWeights, *[st.sampled_from((0, 1, 5, 100))] * 7)
each_model = pytest.mark.parametrize("model", sorted(MODELS))


def zoned(name: str, zone: str, **fields: object) -> Node:
    return node(name, labels=((HOST, name), (ZONE, zone)), **fields)


def kind(app: str, rules: InterPodConstraints | None = None) -> PodSignature:
    return PodSignature("default", (("app", app),), constraints=rules)


def speaks_of(app: str, key: str = ZONE) -> AffinityTerm:
    return AffinityTerm(key, LabelSelector((Requirement("app", "In", (app,)),)), ("default",))


def wish(weight: int, app: str, key: str = ZONE) -> InterPodConstraints:
    """Below zero: to be far from such pods."""
    return InterPodConstraints(preferred=(WeightedTerm(weight, speaks_of(app, key)),))


def cluster(
    waiting: PodSignature, running: dict[str, PodSignature], nodes: list[Node] | None = None, count: int = 1
) -> Snapshot:
    """Two nodes in each of two zones, these pods running, by node, and ``count`` of one kind waiting."""
    nodes = nodes or [zoned(f"{zone}{at}", zone) for zone in "ab" for at in (1, 2)]
    return snapshot(
        nodes,
        [pod(f"p{at}", 100, kind=waiting) for at in range(count)],
        [(at, amounts(100), ()) for at in running],
        pod_index=PodIndex.of(running.items()),
    )


def under(model: str = "CPUMemory", **chosen: int) -> dict[str, Policy]:
    """The built-in policy with another model and weights."""
    return {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(model, CostWeights(**chosen)))}


def where(result: RoundResult) -> list[str]:
    assert not result.unplaced
    return sorted(placement.node for placement in result.placements)


def prices(found: Snapshot, written: Preferences = Preferences.SCALED, **chosen: int) -> Int64s:
    """What each node costs the first pending pod, every weight off but the chosen ones."""
    off = dict.fromkeys(CostWeights.__struct_fields__, 0)
    first, everywhere = found.pending[0], np.ones(len(found.table.nodes), dtype=np.bool_)
    cost = CostPolicy(weights=CostWeights(**{**off, **chosen}), preferences=written)
    return preferences(first.pod_class, first.signature, found, everywhere, cost)


# -- promises ----------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(150))
@given(soft_cases, weights, st.sampled_from(Preferences), st.data())
def test_preferences_are_prices(
    case: Case, given_weights: CostWeights, written: Preferences, data: st.DataObject
) -> None:
    """None is below zero or without bound, whatever somebody writes, and no weight, no price.

    So also on nodes that do not pass now: a pod may come to use them once others have left.
    """
    found = snapshot_of(case)
    count = len(found.table.nodes)
    passing = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    bound = (1 if written is Preferences.SCALED else 10_000) * 1000 * given_weights.taint_preference
    bound += 1000 * (given_weights.pod_affinity + given_weights.spread + given_weights.image_locality)
    bound += 1000 * (given_weights.device_alternatives + given_weights.free_storage + given_weights.idle_resources)
    for waiting in found.pending:
        policy = CostPolicy(weights=given_weights, preferences=written)
        cost = preferences(waiting.pod_class, waiting.signature, found, passing, policy)
        assert (cost.dtype, cost.shape) == (np.int64, (count,))
        assert (cost >= 0).all()
        assert (cost <= bound).all()
        nothing = CostPolicy(
            weights=CostWeights(**dict.fromkeys(CostWeights.__struct_fields__, 0)), preferences=written
        )
        assert not preferences(waiting.pod_class, waiting.signature, found, passing, nothing).any()


@settings(max_examples=examples(70))
@given(soft_cases, st.sampled_from(sorted(MODELS)), weights)
def test_plans_are_sound_whatever_pods_prefer(case: Case, model: str, given_weights: CostWeights) -> None:
    """A preference never overcommits a node, never breaks a filter and never leaves a pod out that has room."""
    policies = {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(model, given_weights))}
    plan_and_check(snapshot_of(case, place_blocked=False), policies)


@settings(max_examples=examples(70))
@given(soft_cases)
def test_pods_of_a_group_are_priced_alike(case: Case) -> None:
    """Whichever of them is asked: those that some preference tells apart are in different groups."""
    found = snapshot_of(case)
    everywhere = np.ones(len(found.table.nodes), dtype=np.bool_)
    classes = without_idle_images({waiting.pod_class for waiting in found.pending}, found)
    for each in group(found.pending, found.pod_index, classes):
        theirs = preferences(each.pod_class, each.signature, found, everywhere, CostPolicy())
        for waiting in each.pods:
            own = preferences(waiting.pod_class, waiting.signature, found, everywhere, CostPolicy())
            assert (own == theirs).all()


# -- pods around it ----------------------------------------------------------------------------------------------------


@each_model
def test_a_pod_goes_near_those_it_would_rather_be_near(model: str) -> None:
    """To their zone, whichever that is, and to the other one where it would rather be far; not with the weight off."""
    for zone, other in (("a", "b"), ("b", "a")):
        there = {f"{zone}1": kind("db")}
        (near,) = where(plan_and_check(cluster(kind("web", wish(100, "db")), there), under(model)))
        (far,) = where(plan_and_check(cluster(kind("web", wish(-100, "db")), there), under(model)))
        assert (near[0], far[0]) == (zone, other)
    indifferent = where(plan_and_check(cluster(kind("web"), {"a1": kind("db")}), under(model)))
    off = under(model, pod_affinity=0)
    for weight in (100, -100):
        assert where(plan_and_check(cluster(kind("web", wish(weight, "db")), {"a1": kind("db")}), off)) == indifferent


@pytest.mark.parametrize(
    ("rules", "drawn"),
    [
        (wish(40, "web"), 400),
        (wish(-40, "web"), -400),
        (InterPodConstraints(affinity=(speaks_of("web"),)), 10),
        (InterPodConstraints(), 0),
    ],
)
def test_what_running_pods_would_rather_have_counts_too(rules: InterPodConstraints, drawn: int) -> None:
    """The whole weight; of points ten units each, and what a running pod requires of others weighs 1."""
    found = cluster(kind("web"), {"a1": kind("db", rules)})
    a1, a2, b1, b2 = prices(found, Preferences.POINTS, pod_affinity=1)
    assert (a1, b1) == (a2, b2)
    assert b1 - a1 == drawn
    a1, a2, b1, b2 = prices(found, pod_affinity=1)
    assert (a1, b1) == (a2, b2)
    assert b1 - a1 == 1000 * np.sign(drawn)


def test_attraction_is_scaled_to_the_whole_weight() -> None:
    """However little a pod says, or however much: the best node costs nothing, the worst the weight."""
    three = {"a1": kind("db"), "a2": kind("db"), "b1": kind("db")}
    nodes = [zoned(name, zone) for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c"))]
    for weight in (1, 20, 90):
        found = cluster(kind("w", wish(weight, "db")), three, nodes)
        assert prices(found, pod_affinity=2).tolist() == [0, 0, 1000, 2000]


def test_points_of_attraction_are_absolute_up_to_a_weight_of_100_and_scaled_beyond() -> None:
    """Three pods of 20 weigh 600; three of 90 as much as one node, and where two are twice a third of it."""
    points = Preferences.POINTS
    three = {"a1": kind("db"), "a2": kind("db"), "b1": kind("db")}
    assert prices(cluster(kind("w", wish(20, "db")), three), points, pod_affinity=1).tolist() == [0, 0, 200, 200]
    on_nodes = cluster(kind("w", wish(90, "db", HOST)), three)
    assert prices(on_nodes, points, pod_affinity=2).tolist() == [0, 0, 0, 1800]
    many = {**three, "a1": kind("db")}
    nodes = [zoned(name, zone) for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c"))]
    found = cluster(kind("w", wish(90, "db")), many, nodes)
    assert prices(found, points, pod_affinity=1).tolist() == [0, 0, 500, 1000]


@each_model
def test_schedule_anyway_prefers_the_emptier_zone_and_never_waits(model: str) -> None:
    """However skewed the zones become: with one zone full the pods go to the other."""
    rules = InterPodConstraints(soft_spread=(SpreadConstraint(ZONE, 1, speaks_of("web").selector),))
    there = {"a1": kind("web"), "b1": kind("other")}
    (chosen,) = where(plan_and_check(cluster(kind("web", rules), there), under(model)))
    assert chosen.startswith("b")
    nodes = [zoned("a1", "a"), zoned("b1", "b", pods=1)]
    assert where(plan_and_check(cluster(kind("web", rules), there, nodes, count=3), under(model))) == ["a1"] * 3


def test_crowding_is_scaled_by_the_most_crowded() -> None:
    """Two, four and one there, times ln(5) and rounded: 3, 6 and 2. A node without the label is the last choice."""
    rules = InterPodConstraints(soft_spread=(SpreadConstraint(ZONE, 1, speaks_of("web").selector),))
    nodes = [zoned("a1", "a"), zoned("b1", "b"), zoned("c1", "c"), node("nowhere")]
    web = kind("web")
    some = PodIndex.of([("a1", web), ("a1", web), ("b1", web), ("b1", web), ("b1", web), ("b1", web), ("c1", web)])
    found = snapshot(nodes, [pod("p", kind=kind("web", rules))], pod_index=some)
    assert prices(found, spread=1).tolist() == [1000 * (3 - 2) // 6, 1000 * (6 - 2) // 6, 0, 1000]


# -- images ------------------------------------------------------------------------------------------------------------


def holding(name: str, *images: tuple[str, int]) -> Node:
    return node(name, report=Report(images=images))


@each_model
def test_a_pod_goes_where_its_image_is(model: str) -> None:
    """Unless the weight is off, or the image is so small that nobody waits for it."""
    nodes = [node("x"), holding("y", ("big:v1", 1000 * MIB), ("small:v1", 20 * MIB)), node("z")]

    def chosen(image: str, **off: int) -> list[str]:
        waiting = pod("p", 100, images=(image,), containers=1)
        return where(plan_and_check(snapshot(nodes, [waiting]), under(model, **off)))

    assert chosen("big:v1") == ["y"]
    indifferent = chosen("unheard-of:v1")
    assert chosen("big:v1", image_locality=0) == indifferent
    assert chosen("small:v1") == indifferent


def test_images_split_groups_only_where_a_node_holds_them() -> None:
    """Pods that are alike but for images nobody holds stay one class of the network."""
    waiting = [
        pod(f"{name}{at}", images=(f"{name}:v1",), containers=1) for name in ("held", "one", "two") for at in "ab"
    ]
    found = snapshot([holding("x", ("held:v1", GI))], waiting)
    classes = without_idle_images({each.pod_class for each in waiting}, found)
    groups = group(found.pending, found.pod_index, classes)
    assert [[each.key for each in one.pods] for one in groups] == [
        ["default/helda", "default/heldb"],
        ["default/onea", "default/oneb", "default/twoa", "default/twob"],
    ]


def test_image_names_are_read_as_nodes_report_them() -> None:
    """Without a tag they mean latest; init containers and image volumes count; a bound pod brings none any more."""
    spec = {
        "containers": [{"name": "a", "image": "web"}, {"name": "b", "image": "example.com:5000/db"}],
        "initContainers": [{"name": "c", "image": "web:v1"}],
        "volumes": [{"name": "v", "image": {"reference": "model@sha256:00"}}],
    }
    waiting, bound = read_pods(
        [{"metadata": {"name": "p"}, "spec": spec}, {"metadata": {"name": "q"}, "spec": {**spec, "nodeName": "n"}}]
    )
    assert waiting.pod_class.images == ("example.com:5000/db:latest", "model@sha256:00", "web:latest", "web:v1")
    assert waiting.pod_class.containers == 3
    assert bound.pod_class == msgspec.structs.replace(waiting.pod_class, images=(), containers=0)


# -- zones -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["CPUMemory", "LoadSpreading"])
def test_a_new_instance_goes_to_the_emptier_zone_and_to_the_freest_node_in_it(model: str) -> None:
    """The zone use case of the seed: zones by a soft constraint, the node within the zone by the model."""
    rules = InterPodConstraints(soft_spread=(SpreadConstraint(ZONE, 1, speaks_of("web").selector),))
    web, other = kind("web", rules), kind("other")
    running = [("a1", web), ("b1", web), ("b2", web), ("c2", other), ("c2", other), ("c3", other)]
    nodes = [zoned(f"{zone}{at}", zone) for zone in "abc" for at in (1, 2, 3)]
    found = snapshot(
        nodes,
        [pod("p", 500, GI, kind=web)],
        [(at, amounts(500, GI), ()) for at, _ in running],
        pod_index=PodIndex.of(running),
    )
    assert where(plan_and_check(found, under(model))) == ["c1"]
