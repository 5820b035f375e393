"""Volcano's HyperNodes: the labels that they give to nodes, and what gangs ask of their tiers."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of

from flowcore.api import Interner, WirePod, WirePodGroup, to_pod, to_pod_group
from flowcore.api.hyper_nodes import MAX_SELECTORS, MAX_SUB_GROUPS, MAX_VALUES, WireHyperNode, to_hyper_node
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.hyper_nodes.hyper_node_tree import MAX_TIERS
from flowcore.cluster.indexes.round_gangs import gangs_for
from flowcore.cluster.saved_state import BesideCluster, put_lines, to_lines
from flowcore.model.gang_spec import GangSource
from flowcore.model.gangs import Gang
from flowcore.model.hyper_nodes import HyperNode, is_tier_key, tier_key
from flowcore.model.name_patterns import NamePattern
from flowcore.model.nodes import Node
from flowcore.model.policies import Delivery
from flowcore.model.selectors import is_label_key, value_of
from flowcore.planning.round import RoundResult
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.plan import plan_scenario

Manifest = dict[str, Any]
ONE, TWO, THREE = tier_key(1), tier_key(2), tier_key(3)
#: Each would be compared with each pod of the gang, in each round.
MANY_VALUES = [f"v{at}" for at in range(MAX_VALUES + 1)]


def exact(kind: str, *names: str) -> list[Manifest]:
    """Members by their names."""
    return [{"type": kind, "selector": {"exactMatch": {"name": name}}} for name in names]


def pattern(text: str) -> list[Manifest]:
    """Nodes by a regular expression."""
    return [{"type": "Node", "selector": {"regexMatch": {"pattern": text}}}]


def labelled(**labels: str) -> list[Manifest]:
    """Nodes by labels."""
    return [{"type": "Node", "selector": {"labelMatch": {"matchLabels": labels}}}]


def hyper_node(name: str, tier: int, members: list[Manifest], tier_name: str = "") -> HyperNode:
    """A HyperNode as it is read."""
    manifest = {"metadata": {"name": name}, "spec": {"tier": tier, "tierName": tier_name, "members": members}}
    return to_hyper_node(msgspec.convert(manifest, WireHyperNode))


#: The example of Volcano's design: two leaves below each of two spines, and one HyperNode above these.
TREE = (
    hyper_node("s0", 1, exact("Node", "n0", "n1"), "leaf"),
    hyper_node("s1", 1, exact("Node", "n2", "n3"), "leaf"),
    hyper_node("s2", 1, pattern("^n[45]$"), "leaf"),
    hyper_node("s3", 1, labelled(leaf="s3"), "leaf"),
    hyper_node("s4", 2, exact("HyperNode", "s0", "s1"), "spine"),
    hyper_node("s5", 2, exact("HyperNode", "s2", "s3"), "spine"),
    hyper_node("s6", 3, exact("HyperNode", "s4", "s5")),
)
NODES = tuple(Node(f"n{at}", labels=(("leaf", f"s{at // 2}"),)) for at in range(8))


def known(*objects: HyperNode, nodes: tuple[Node, ...] = NODES) -> Cluster:
    """A cluster with nodes and HyperNodes."""
    cluster = Cluster()
    for each in nodes:
        cluster.put_node(each)
    for hyper in objects:
        cluster.set_hyper_node(hyper.name, hyper)
    return cluster


def tiers(cluster: Cluster, node: str) -> dict[str, str]:
    """The labels of a node's tiers."""
    return {key: value for key, value in cluster.nodes[node].labels if is_tier_key(key)}


def problems(cluster: Cluster) -> list[str]:
    """What does not count."""
    return list(cluster.hyper_nodes.problems())


# --- labels of nodes ---


def test_a_node_has_a_label_for_each_tier() -> None:
    """By name, by pattern and by labels; nobody else can write such a label."""
    cluster = known(*TREE)
    assert [tiers(cluster, f"n{at}") for at in (0, 3, 5, 7)] == [
        {ONE: leaf, TWO: spine, THREE: "s6"} for leaf, spine in (("s0", "s4"), ("s1", "s4"), ("s2", "s5"), ("s3", "s5"))
    ]
    assert value_of(cluster.nodes["n7"].labels, "leaf") == "s3"
    assert problems(cluster) == []
    assert not is_label_key(ONE)


def test_whatever_comes_first_the_labels_are_the_same() -> None:
    """Nodes before HyperNodes or after them, spines before their leaves; a saved state has them too."""
    expected = known(*TREE).nodes
    late = Cluster()
    for hyper in reversed(TREE):
        late.set_hyper_node(hyper.name, hyper)
    for each in NODES:
        late.put_node(each)
    assert late.nodes == expected
    again = Cluster()
    put_lines([line.decode() for line in to_lines(late, BesideCluster(), 1.0)], again)
    assert (again.nodes, again.hyper_nodes.objects) == (expected, late.hyper_nodes.objects)


def test_a_change_reaches_the_nodes_below_it_and_no_others() -> None:
    """A worker is sent these only; what changes nothing is no change."""
    cluster = known(*TREE)
    cluster.take_changes()
    generation = cluster.generation
    assert not cluster.set_hyper_node("s4", TREE[4])
    assert cluster.put_node(NODES[0]) is None, "a heartbeat: the node as the API server has it"
    assert cluster.generation == generation
    assert cluster.set_hyper_node("s1", None)
    sent = {node.name: node.labels for node in cluster.take_changes().changes.nodes}
    assert sent.keys() == {"n2", "n3"}
    assert tiers(cluster, "n2") == {}
    cluster.put_node(msgspec.structs.replace(NODES[7], labels=()))
    assert tiers(cluster, "n7") == {}, "it lost the label that s3 selects by"
    for hyper in TREE:
        cluster.set_hyper_node(hyper.name, None)
    assert all(not tiers(cluster, name) for name in cluster.nodes)


def test_a_tier_that_is_missing_above_a_node() -> None:
    """Gangs ask for one HyperNode of tier 2 or lower: where no spine is above, the leaf counts."""
    cluster = known(TREE[0], TREE[1], hyper_node("s4", 2, exact("HyperNode", "s0")))
    assert tiers(cluster, "n2") == {ONE: "s1", TWO: "s1"}
    assert tiers(cluster, "n0") == {ONE: "s0", TWO: "s4"}


def _expected(objects: dict[str, HyperNode], nodes: dict[str, Node], node: str) -> dict[str, str]:
    """The labels of a node's tiers, looked up from nothing."""
    order = sorted(objects, key=lambda name: (objects[name].tier, name))
    held: dict[int, str] = {}
    for start in order:
        members = objects[start].nodes
        if not any(
            node in (each.name, each.pattern and re.search(each.pattern, node) and node)
            or (each.selector is not None and each.selector.matches(nodes[node].labels))
            for each in members
        ):
            continue
        at: str | None = start
        while at is not None and objects[at].tier not in held:
            held[objects[at].tier] = at
            tier = objects[at].tier
            at = next((up for up in order if objects[up].tier > tier and at in objects[up].hyper_nodes), None)
    labels, lowest = dict[str, str](), ""
    for tier in sorted({each.tier for each in objects.values()}):
        lowest = held.get(tier, lowest)
        if lowest:
            labels[tier_key(tier)] = lowest
    return labels


_NAMES = st.sampled_from([f"h{at}" for at in range(5)])
_MEMBERS = st.one_of(
    st.sampled_from([f"n{at}" for at in range(4)]).map(lambda name: exact("Node", name)),
    _NAMES.map(lambda name: exact("HyperNode", name)),
    st.sampled_from(["^n[01]$", "[12]", "^n"]).map(pattern),
    st.sampled_from(["s0", "s1"]).map(lambda leaf: labelled(leaf=leaf)),
)
_MEMBER_LISTS = st.lists(_MEMBERS, max_size=3).map(lambda lists: [member for each in lists for member in each])
_CHANGES = st.one_of(
    st.tuples(
        _NAMES,
        st.one_of(st.none(), st.tuples(st.integers(0, 3), _MEMBER_LISTS, st.sampled_from(["", "leaf", "spine"]))),
    ),
    st.tuples(st.integers(0, 3), st.one_of(st.none(), st.sampled_from(["s0", "s1", ""]))),
)


@settings(max_examples=examples(150))
@given(st.lists(_CHANGES, max_size=15))
def test_after_any_history_the_labels_are_those_of_the_objects(changes: list[Any]) -> None:
    """Circles, HyperNodes in two others, nodes in two, in any order of events."""
    cluster, objects, nodes = Cluster(), dict[str, HyperNode](), dict[str, Node]()
    for key, value in changes:
        if isinstance(key, str):
            objects.pop(key, None)
            if value is not None:
                objects[key] = hyper_node(key, *value)
            cluster.set_hyper_node(key, objects.get(key))
        elif value is None:
            nodes.pop(f"n{key}", None)
            cluster.remove_node(f"n{key}")
        else:
            nodes[f"n{key}"] = Node(f"n{key}", labels=(("leaf", value),) if value else ())
            cluster.put_node(nodes[f"n{key}"])
        assert {name: tiers(cluster, name) for name in nodes} == {
            name: _expected(objects, nodes, name) for name in nodes
        }
        known_tiers = cluster.hyper_nodes.numbered()
        assert known_tiers.numbers == tuple(sorted({each.tier for each in objects.values()}))
        by_tier = sorted(((each.tier, each.tier_name) for each in objects.values() if each.tier_name), reverse=True)
        assert known_tiers.by_name == {name: tier for tier, name in by_tier}
        problems(cluster)


def test_thousands_of_hyper_nodes_come_one_by_one() -> None:
    """What one more costs does not rise with those that are there: none of them is looked at."""

    class NotLookedThrough(dict[str, HyperNode]):
        def values(self) -> Any:
            raise AssertionError

    cluster = Cluster()
    cluster.hyper_nodes.objects = NotLookedThrough()
    for at in range(100):
        cluster.set_hyper_node(f"h{at}", hyper_node(f"h{at}", 1, exact("Node", f"n{at}"), "leaf"))
    assert cluster.hyper_nodes.numbered().by_name == {"leaf": 1}


# --- bad ones ---


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        (
            [hyper_node("a", 1, exact("HyperNode", "b")), hyper_node("b", 2, exact("HyperNode", "a"))],
            ["HyperNode a: spec.members: HyperNode b has tier 2, which is not below 1"],
        ),
        (
            [hyper_node("a", 1, exact("HyperNode", "a"))],
            ["HyperNode a: spec.members: HyperNode a has tier 1, which is not below 1"],
        ),
        (
            [hyper_node("a", 1, exact("Node", "n0", "gone")), hyper_node("b", 2, exact("HyperNode", "lost"))],
            [
                "HyperNode a: spec.members: Node gone does not exist",
                "HyperNode b: spec.members: HyperNode lost does not exist",
            ],
        ),
        (
            [hyper_node("a", 1, exact("Node", "n0", "n1")), hyper_node("b", 1, exact("Node", "n1", "n2"))],
            ["HyperNode b: spec.members: nodes that are in a of tier 1 too count there"],
        ),
        (
            [TREE[0], hyper_node("p", 2, exact("HyperNode", "s0")), hyper_node("q", 2, exact("HyperNode", "s0"))],
            ["HyperNode q: spec.members: HyperNode s0 is in p already"],
        ),
        (
            [hyper_node("a", 1, exact("Node", "n0"), "leaf"), hyper_node("b", 2, exact("Node", "n1"), "leaf")],
            ["HyperNode b: spec.tierName: leaf is the name of tier 1"],
        ),
        (
            [hyper_node(f"h{tier}", tier, exact("Node", "n0")) for tier in range(MAX_TIERS + 1)],
            [f"HyperNode h{MAX_TIERS}: spec.tier: {MAX_TIERS} tiers count, the lowest ones"],
        ),
    ],
)
def test_what_does_not_count_is_told(objects: list[HyperNode], said: list[str]) -> None:
    """And all else does: the first node has labels in each case where one selects it."""
    cluster = known(*objects)
    assert problems(cluster) == said
    assert bool(tiers(cluster, "n0")) == any(each.name == "n0" for hyper in objects for each in hyper.nodes)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (
            pattern("n("),
            'spec.members[0].selector.regexMatch.pattern: "n(": it is no regular expression: missing ): n(',
        ),
        (pattern("x" * 2000), "it has 2000 characters, 1 to 1024 are allowed"),
        (pattern("(([a-z]{100}){10})"), "it is too large"),
        ([{"type": "Rack", "selector": {}}], 'spec.members[0].type: "Rack" is neither Node nor HyperNode'),
        ([{"type": "Node"}], "spec.members[0].selector: it selects no nodes"),
        (labelled(), "spec.members[0].selector: it selects no nodes"),
        (labelled(**{"a b": "c"}), "spec.members[0].selector.labelMatch: it is no selector of labels"),
        (
            [{"type": "HyperNode", "selector": {"regexMatch": {"pattern": "s"}}}],
            "spec.members[0].selector: a member of type HyperNode needs exactMatch",
        ),
        (pattern("n7") * (MAX_SELECTORS + 1), f"spec.members: {MAX_SELECTORS + 1} members select by pattern or labels"),
    ],
)
def test_a_member_that_cannot_be_read(members: list[Manifest], said: str) -> None:
    """The others count."""
    hyper = hyper_node("a", 1, [*members, *exact("Node", "n0")])
    assert said in hyper.problem
    cluster = known(hyper)
    assert tiers(cluster, "n0") == {ONE: "a"}
    assert problems(cluster) == [f"HyperNode a: {hyper.problem}: it does not count"]


def test_many_bad_members_make_a_short_text() -> None:
    """Three of them are told."""
    hyper = hyper_node("a", 1, [{"type": "Node"}] * 1000)
    assert hyper.problem.endswith("; and 997 more")


@pytest.mark.parametrize(
    "text", ["^n-(a|b)1$", "^n-[0-9]+$", "^n", "n$", "^n?1$", r"^n\$", "(?i)^N-A", "^", "1", "^n-a|b$"]
)
def test_patterns_are_searched_in_names(text: str) -> None:
    """As Go does, also where most names are ruled out without a search."""
    names = ["n", "n-1", "n-a1", "n-b1", "xn-a1", "b", "N-A", "1", "n1x"]
    assert [NamePattern(text).is_in(name) for name in names] == [bool(re.search(text, name)) for name in names]


@pytest.mark.parametrize("text", ["^n-01-.*$", "^n-01-", "^n-01-[0-9]+$", "^n-01-[0-9]"])
def test_most_names_need_no_search(text: str) -> None:
    """Thousands of HyperNodes with a pattern each are compared with thousands of nodes."""
    name_range = NamePattern(text).range
    assert name_range is not None
    assert [name_range[0] <= name <= name_range[1] for name in ("n-00-9", "n-01-9", "n-02-0")] == [False, True, False]


@pytest.mark.parametrize("text", [r"^n\Q-a", "^n-a$", "^n-$", r"^n-a\$", "^n-a1$$", "^(n|x)-a"])
def test_the_end_of_a_pattern(text: str) -> None:
    """Whatever it is, names are found as without the shortcut."""
    plain = NamePattern(f"(?:){text}")
    names = ["n-a", "n-a1", "n-", "x-a", "n-b"]
    assert plain.range is None
    assert [NamePattern(text).is_in(name) for name in names] == [plain.is_in(name) for name in names]


@pytest.mark.parametrize("text", ["^?n-a1$", "^*n-a1$", "^{0,1}n-a1$"])
def test_a_beginning_that_may_be_left_out(text: str) -> None:
    """Then a match is not the whole name. Python refuses such patterns, Go does not."""
    assert NamePattern(text).is_in("xn-a1")


def test_a_pattern_that_python_would_search_for_hours() -> None:
    """RE2 needs time in proportion to the name."""
    names = ["a" * 250 + str(at) for at in range(200)]
    cluster = known(hyper_node("a", 1, pattern("^(([a-z])+)+$")), nodes=tuple(map(Node, names)))
    assert not any(tiers(cluster, name) for name in names)


# --- gangs ---


def told(
    cluster: Cluster,
    topology: Manifest | None,
    *,
    policies: list[Manifest] | None = None,
    count: int = 4,
    **annotations: str,
) -> list[Gang]:
    """The gangs of a round with a PodGroup of Volcano and its pods, in two partitions."""
    spec: Manifest = {"minMember": count}
    if topology is not None:
        spec["networkTopology"] = topology
    if policies is not None:
        spec["subGroupPolicy"] = policies
    wire = msgspec.convert({"metadata": {"name": "g", "namespace": "ml"}, "spec": spec}, WirePodGroup)
    cluster.put_pod_group(to_pod_group(wire, GangSource.VOLCANO, Interner()))
    said = {"scheduling.k8s.io/group-name": "g"} | {f"volcano.sh/{key}": value for key, value in annotations.items()}
    for at in range(count):
        labels = {"volcano.sh/task-spec": "worker", "volcano.sh/partition-id": str(at * 2 // count)}
        meta = {"name": f"p{at}", "namespace": "ml", "annotations": said, "labels": labels}
        cluster.put_pod(to_pod(msgspec.convert({"metadata": meta, "spec": {}}, WirePod), Interner()))
    pending = [(pod, Delivery.BINDER) for pod in cluster.waiting.values()]
    return gangs_for(cluster.gangs, pending, {}, cluster.domain)[1]


@pytest.mark.parametrize(
    ("topology", "required", "preferred"),
    [
        ({"mode": "hard", "highestTierAllowed": 1}, ONE, []),
        ({"highestTierAllowed": 2}, TWO, [ONE]),
        ({"mode": "hard", "highestTierName": "spine"}, TWO, [ONE]),
        ({"mode": "hard", "highestTierAllowed": 4}, "", [THREE, TWO, ONE]),
        ({"mode": "hard"}, "", [THREE, TWO, ONE]),
        ({"mode": "soft", "highestTierAllowed": 1}, "", [THREE, TWO, ONE]),
        ({"mode": "soft", "highestTierName": "unknown"}, "", [THREE, TWO, ONE]),
    ],
)
def test_a_limit_becomes_levels(topology: Manifest, required: str, preferred: list[str]) -> None:
    """As near as there is room within what is required; all nodes are a HyperNode above all others."""
    (gang,) = told(known(*TREE), topology)
    assert gang.topology_key == required
    assert [level.split(", ")[-1] for level, _ in gang.preferred] == preferred


@pytest.mark.parametrize(
    ("topology", "reason"),
    [
        ({"highestTierAllowed": 0}, "no HyperNode has tier 0 or a lower one"),
        ({"highestTierAllowed": -(10**15)}, "no HyperNode has tier -1000000000000000 or a lower one"),
        ({"highestTierName": "rack"}, "no HyperNode has the tierName rack"),
        ({"mode": "firm"}, 'spec.networkTopology.mode: "firm" is neither hard nor soft'),
        (
            {"highestTierAllowed": 1, "highestTierName": "leaf"},
            "spec.networkTopology: it has highestTierAllowed and highestTierName",
        ),
    ],
)
def test_a_limit_that_nothing_can_keep_is_a_reason(topology: Manifest, reason: str) -> None:
    """Of the gang that asks, and of no other."""
    cluster = known(*TREE)
    (gang,) = told(cluster, topology)
    assert gang.unschedulable_reason == f"PodGroup ml/g of scheduling.volcano.sh: {reason}"


@pytest.mark.parametrize("limit", [{"highestTierAllowed": 1}, {"highestTierAllowed": 0}, {"highestTierName": "leaf"}])
def test_without_hyper_nodes_a_limit_limits_nothing(limit: Manifest) -> None:
    """So Jobs of a cluster without them, or whose HyperNodes the operator may not read, go on as they did."""
    policy = {"matchLabelKeys": ["volcano.sh/partition-id"], "networkTopology": limit}
    (gang,) = told(known(), limit, policies=[policy])
    assert (gang.topology_key, gang.preferred, gang.unschedulable_reason) == ("", (), "")
    gone = known(*TREE)
    for hyper in TREE:
        gone.set_hyper_node(hyper.name, None)
    assert told(gone, limit) == [gang]


def test_a_tier_that_does_not_count_is_a_limit_all_the_same() -> None:
    """The highest one that counts is nearer than what was asked for."""
    tall = [hyper_node(f"h{tier}", tier, exact("Node", "n0"), f"t{tier}") for tier in range(MAX_TIERS + 1)]
    for limit in ({"highestTierAllowed": MAX_TIERS}, {"highestTierName": f"t{MAX_TIERS}"}):
        (gang,) = told(known(*tall), limit)
        assert gang.topology_key == tier_key(MAX_TIERS - 1)
    (gang,) = told(known(*tall), {"highestTierAllowed": MAX_TIERS + 1})
    assert gang.topology_key == ""


def test_a_gang_follows_the_tiers_that_come_and_go() -> None:
    """A round is wanted for it."""
    cluster = known(*TREE[:4])
    assert told(cluster, {"highestTierName": "spine"})[0].unschedulable_reason
    assert cluster.set_hyper_node("s4", TREE[4])
    assert told(cluster, {"highestTierName": "spine"})[0].topology_key == TWO


def test_partitions_are_slices() -> None:
    """As Volcano's controller writes those of a task. A pod without the label is in none."""
    policy = {
        "name": "worker",
        "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "worker"}},
        "matchLabelKeys": ["volcano.sh/partition-id"],
        "subGroupSize": 2,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    gang, first, second = told(known(*TREE), {"highestTierAllowed": 2}, policies=[policy])
    assert (gang.topology_key, gang.min_placed) == (TWO, 4)
    assert [(each.topology_key, each.min_placed, each.slice_of) for each in (first, second)] == [
        (ONE, 2, gang.name)
    ] * 2
    other = policy | {"labelSelector": {"matchLabels": {"volcano.sh/task-spec": "ps"}}}
    soft = policy | {"networkTopology": {"mode": "soft"}}
    unlimited = policy | {"networkTopology": {"mode": "hard", "highestTierAllowed": 9}}
    whole = {key: value for key, value in policy.items() if key != "matchLabelKeys"}
    for unsliced in (other, soft, unlimited, whole):
        assert len(told(known(*TREE), {"highestTierAllowed": 2}, policies=[unsliced])) == 1
    assert len(told(known(*TREE), None, policies=[soft, policy])) == 1, "the first that selects a pod counts"
    assert len(told(known(*TREE), None, policies=[other, policy])) == 3


@pytest.mark.parametrize(
    ("policies", "reason"),
    [
        ([{"networkTopology": {"highestTierName": "none"}}], "no HyperNode has the tierName none"),
        ([{}] * (MAX_SUB_GROUPS + 1), "spec.subGroupPolicy: it has 17 entries, 16 are allowed"),
        ([{"matchLabelKeys": ["a"] * 9}], "spec.subGroupPolicy[0]: it names more than 8 labels"),
        (
            [{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": MANY_VALUES}]}}],
            f"spec.subGroupPolicy[0].labelSelector: it names more than {MAX_VALUES} values",
        ),
        (
            [{"networkTopology": {"mode": "x"}}],
            'spec.subGroupPolicy[0].networkTopology.mode: "x" is neither hard nor soft',
        ),
        (
            [{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}],
            "spec.subGroupPolicy[0].labelSelector: it is no selector of labels",
        ),
    ],
)
def test_partitions_that_cannot_be_read(policies: list[Manifest], reason: str) -> None:
    """The gang waits and says so."""
    policies = [{"matchLabelKeys": ["volcano.sh/partition-id"]} | policy for policy in policies]
    (gang,) = told(known(*TREE), None, policies=policies)
    assert gang.unschedulable_reason.endswith(reason)


def test_slices_of_two_tiers() -> None:
    """Each has the tier of its own policy."""
    policies = [
        {
            "labelSelector": {"matchLabels": {"volcano.sh/partition-id": str(number)}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
            "networkTopology": {"highestTierAllowed": number + 1},
        }
        for number in range(2)
    ]
    gangs = told(known(*TREE), None, policies=policies)
    assert [gang.topology_key for gang in gangs if gang.slice_of] == [ONE, TWO]


def test_annotations_of_volcano_on_pods() -> None:
    """Volcano's controller copies them into the PodGroup; pods of any other gang have them, too."""
    mode, tier = "network-topology-mode", "network-topology-highest-tier"
    assert told(known(*TREE), None, **{mode: "hard", tier: "2"})[0].topology_key == TWO
    assert told(known(*TREE), {"highestTierAllowed": 1}, **{tier: "2"})[0].topology_key == ONE
    for said, problem in (({mode: "firm"}, "neither hard nor soft"), ({tier: "x"}, '"x" is no tier')):
        assert problem in told(known(*TREE), None, **said)[0].unschedulable_reason


# --- dumps ---


def manifest_of(hyper: HyperNode) -> Manifest:
    """A HyperNode, whose members have their names, as a dump has it."""
    members = exact("HyperNode", *hyper.hyper_nodes) + exact("Node", *(member.name for member in hyper.nodes))
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": hyper.name},
        "spec": {"tier": hyper.tier, "members": members},
    }


def dumped(*objects: HyperNode, count: int, tier: int) -> Scenario:
    """A dump with nodes of one pod each, and a gang that asks for one HyperNode."""
    meta = {"name": "g", "namespace": "ml"}
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": meta}
    group["spec"] = {"minMember": count, "networkTopology": {"highestTierAllowed": tier}}
    nodes = [manifest_node(f"n{at}", "z", pods=1) for at in range(4)]
    said = {"scheduling.k8s.io/group-name": "g"}
    pods = [manifest_pod(f"p{at}", namespace="ml", annotations=said) for at in range(count)]
    return scenario_of([*nodes, group, *pods, *map(manifest_of, objects)])


def test_a_plan_of_a_dump_keeps_to_a_hyper_node() -> None:
    """n0 and n3 are in no HyperNode with room for two."""
    leaves = hyper_node("a", 1, exact("Node", "n0")), hyper_node("b", 1, exact("Node", "n1", "n2"))
    plan = plan_scenario(dumped(*leaves, count=2, tier=1), NOW)
    assert {each.node for each in plan.result.placements} == {"n1", "n2"}
    assert plan.gaps == ()
    plan = plan_scenario(dumped(*leaves, count=3, tier=1), NOW)
    reasons = {each.reason for each in plan.result.unplaced}
    (reason,) = reasons
    assert "needs 3 pods at once in one domain of HyperNode tier 1, and none can hold them" in reason
    spine = hyper_node("s", 2, exact("HyperNode", "a", "b", "lost"))
    plan = plan_scenario(dumped(*leaves, spine, count=3, tier=2), NOW)
    assert {each.node for each in plan.result.placements} == {"n0", "n1", "n2"}
    assert plan.gaps == ("HyperNode s: spec.members: HyperNode lost does not exist",)


def test_many_nodes_that_are_gone_make_a_short_text() -> None:
    """Three are told: nodes come and go, and HyperNodes name them all the while."""
    leaf = hyper_node("a", 1, exact("Node", "n0", "n1", *(f"gone-{at}" for at in range(10))))
    gaps = plan_scenario(dumped(leaf, count=2, tier=1), NOW).gaps
    assert gaps == (
        *(f"HyperNode a: spec.members: Node gone-{at} does not exist" for at in range(3)),
        "7 more of what HyperNodes say does not count",
    )


def test_a_tier_in_which_no_node_is() -> None:
    """The reason says so."""
    (unplaced, *_) = plan_scenario(
        dumped(hyper_node("a", 1, exact("Node", "gone")), count=2, tier=1), NOW
    ).result.unplaced
    assert "keeps to one domain of HyperNode tier 1, and no node is in one" in unplaced.reason


def test_a_dump_without_hyper_nodes_is_told() -> None:
    """The gang is placed as on a cluster without them."""
    plan = plan_scenario(dumped(count=2, tier=1), NOW)
    assert len(plan.result.placements) == 2
    add = "the files contain no HyperNode (add them: kubectl get hypernodes -o json)"
    assert plan.gaps == (f"2 pods, such as ml/p0: placed as if there were none: {add}",)


# --- partitions among running pods ---

#: Two racks with room for two pods each.
RACKS = hyper_node("a", 1, exact("Node", "n0", "n1")), hyper_node("b", 1, exact("Node", "n2", "n3"))


def partitioned(on: dict[int, str], others: dict[str, int], *, nodes: int = 4) -> RoundResult:
    """The plan for an urgent gang of two partitions of two pods, each partition in one rack.

    Args:
        on: the nodes of its pods that have one.
        others: node -> priority of another pod that runs there.
    """
    policy = {"matchLabelKeys": ["volcano.sh/partition-id"], "networkTopology": {"highestTierAllowed": 1}}
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "ml"},
        "spec": {"minMember": 4, "subGroupPolicy": [policy]},
    }
    said = {"scheduling.k8s.io/group-name": "g"}
    pods = [
        manifest_pod(
            f"p{at}",
            on.get(at, ""),
            namespace="ml",
            annotations=said,
            labels={"volcano.sh/partition-id": str(at // 2)},
        )
        for at in range(4)
    ]
    running = [manifest_pod(f"on-{node}", node, namespace="ml") for node in others]
    for pod, priority in [*((pod, 10) for pod in pods), *zip(running, others.values(), strict=True)]:
        pod["spec"]["priority"] = priority
    hosts = [manifest_node(f"n{at}", "z", cpu="1", pods=9) for at in range(nodes)]
    return plan_scenario(scenario_of([*hosts, group, *pods, *running, *map(manifest_of, RACKS)]), NOW).result


def test_pods_leave_for_partitions() -> None:
    """Of each rack as many as a partition needs; nobody leaves where one partition finds no rack."""
    result = partitioned({}, {"n0": 0, "n3": 0})
    assert {each.pod.key for each in result.evictions} == {"ml/on-n0", "ml/on-n3"}
    in_first = {each.pod.key: each.node in ("n0", "n1") for each in result.placements}
    assert in_first["ml/p0"] == in_first["ml/p1"] != in_first["ml/p2"] == in_first["ml/p3"]
    assert not partitioned({}, {"n0": 0, "n3": 20}).evictions


def test_a_pod_that_comes_back_keeps_to_the_rack_of_its_partition() -> None:
    """It is told which HyperNode has no room, though another has some."""
    result = partitioned({0: "n0", 2: "n2", 3: "n3"}, {"n1": 20}, nodes=5)
    (reason,) = (each.reason for each in result.unplaced)
    assert "slice 0 keeps to HyperNode tier 1 a, where no node has room for it." in reason
