"""What moving data costs, where data is read from, and that pods go there."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import GI, node, pod, snapshot
from support.profiles import examples

from flowcore.api import Interner, WirePod, to_pod, to_storage_object
from flowcore.api.data import parse_data
from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.costs.data_locality import DataPrices
from flowcore.model.cost_policy import CostPolicy, DataLocality
from flowcore.model.data import DATA, DataPlace, DataSource, Level
from flowcore.model.errors import ModelError
from flowcore.model.nodes import Node, Report
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.volumes import ZONE, Claim, ClaimVolume, PersistentVolume
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import run_round

TERMS = DataLocality(node=1, rack=10, zone=100, rack_label="rack")
NEAR = {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(data_locality=TERMS))}


def machine(name: str, rack: str = "", zone: str = "", **fields: object) -> Node:
    labels = {"rack": rack, ZONE: zone}
    return node(name, labels=tuple((key, value) for key, value in sorted(labels.items()) if value), **fields)


def on(*names: str, size: int = GI) -> DataSource:
    return DataSource(tuple(DataPlace(Level.NODE, name) for name in names), size)


def costs(nodes: list[Node], *data: DataSource, terms: DataLocality = TERMS) -> list[int]:
    return DataPrices(snapshot(nodes, [])).costs(PodClass(data=data), terms).tolist()


CLUSTER = [machine("n0", "r0", "z0"), machine("n1", "r0", "z0"), machine("n2", "r1", "z0"), machine("n3", "r0", "z1")]


def test_each_border_that_data_crosses_is_paid() -> None:
    """Node, rack, zone; a rack of the same name in another zone is another rack."""
    assert costs(CLUSTER, on("n0")) == [0, 1, 11, 111]
    assert costs(CLUSTER, on("n0", size=3 * GI), on("n2")) == [11, 3 + 11, 33, 333 + 111]


def test_the_cheapest_replica_is_read() -> None:
    """Of several places each node reads the one that costs it least."""
    assert costs(CLUSTER, on("n1", "n3")) == [1, 0, 11, 0]


def test_data_of_a_rack_or_a_zone_is_on_some_node_there() -> None:
    """Inside, the borders below are crossed."""
    assert costs(CLUSTER, DataSource((DataPlace(Level.RACK, "r1"),), GI)) == [11, 11, 1, 111]
    assert costs(CLUSTER, DataSource((DataPlace(Level.ZONE, "z1"),), GI)) == [111, 111, 111, 11]


def test_nodes_without_labels_are_one_rack_and_one_zone() -> None:
    """A cluster that names no racks and zones has only the borders of nodes."""
    assert costs([node("n0"), node("n1")], on("n0")) == [0, 1]
    assert costs([machine("n0", "r0"), machine("n1"), machine("n2")], on("n1")) == [11, 0, 1]


def test_when_the_worst_node_goes_the_others_cost_what_they_cost() -> None:
    """Costs follow from the nodes that there are; data of a node that is gone is behind all borders."""
    assert costs(CLUSTER[:3], on("n0")) == [0, 1, 11]
    assert costs(CLUSTER[:3], on("n3")) == [111, 111, 111]
    assert costs(CLUSTER[:3], on("n3", "n2")) == [11, 11, 0]


_places = st.one_of(
    st.builds(DataPlace, st.just(Level.NODE), st.sampled_from([f"n{at}" for at in range(6)])),
    st.builds(DataPlace, st.just(Level.RACK), st.sampled_from(["r0", "r1", "r2"])),
    st.builds(DataPlace, st.just(Level.ZONE), st.sampled_from(["z0", "z1"])),
)
_sources = st.builds(
    DataSource, st.lists(_places, min_size=1, max_size=3).map(tuple), st.integers(0, 40).map(lambda size: size * GI)
)
_machines = st.lists(
    st.tuples(st.sampled_from(["", "r0", "r1"]), st.sampled_from(["", "z0", "z1"])), min_size=1, max_size=5
).map(lambda drawn: [machine(f"n{at}", *each) for at, each in enumerate(drawn)])


def _by_hand(nodes: list[Node], here: Node, place: DataPlace) -> int:
    """From the definition, node by node: the least over the nodes where the data may be."""
    rack_of, zone_of = ({each.name: dict(each.labels).get(key, "") for each in nodes} for key in ("rack", ZONE))
    match place.level:
        case Level.NODE:
            homes, known = [each.name for each in nodes if each.name == place.name], True
        case Level.RACK:
            homes, known = [each for each, rack in rack_of.items() if rack == place.name], False
        case Level.ZONE:
            homes, known = [each for each, zone in zone_of.items() if zone == place.name], False
    least = TERMS.node + TERMS.rack + TERMS.zone
    for home in homes:
        far = zone_of[home] != zone_of[here.name]
        other_rack = far or rack_of[home] != rack_of[here.name] or place.level is Level.ZONE
        if place.level is Level.RACK and rack_of[here.name] == place.name:
            far = other_rack = False
        other_node = not (known and home == here.name)
        least = min(least, TERMS.node * other_node + TERMS.rack * other_rack + TERMS.zone * far)
    return least


@settings(max_examples=examples(150))
@given(_machines, st.lists(_sources, max_size=4))
def test_costs_are_what_the_definition_says(nodes: list[Node], sources: list[DataSource]) -> None:
    """GiB times the borders between each node and the nearest replica, counted in Python's own integers."""
    expected = [
        sum(source.size // GI * min(_by_hand(nodes, here, place) for place in source.places) for source in sources)
        for here in nodes
    ]
    assert costs(nodes, *sources) == expected


def test_costs_stay_small_whatever_is_written() -> None:
    """Nobody overflows a sum."""
    dear = DataLocality(node=10**6, rack=10**6, zone=10**6)
    assert costs([node("n0")], on("gone", size=2**63 - 1), terms=dear) == [10**9]


def test_images_that_a_node_does_not_hold_are_pulled() -> None:
    """At their own price, and no image without that."""
    held = [machine("n0", report=Report(images=(("big", 2 * GI),))), machine("n1")]
    wants = PodClass(images=("big", "unknown"), containers=1)
    found = snapshot(held, [])
    assert DataPrices(found).costs(wants, DataLocality(image=5)).tolist() == [0, 10]
    assert DataPrices(found).costs(wants, DataLocality()).tolist() == [0, 0]


def _with_storage(cluster: Snapshot, claim: Claim, volume: PersistentVolume) -> Snapshot:
    cluster.storage.put(claim)
    cluster.storage.put(volume)
    return cluster


def test_claims_and_volumes_say_where_data_is() -> None:
    """The claim's annotation counts before that of its volume."""
    mounts = PodClass(volumes=(ClaimVolume("default", "c"),))
    volume = PersistentVolume("v", data=(on("n1"),))
    bare, telling = (Claim("default", "c", volume_name="v", data=data) for data in ((), (on("n0"),)))
    assert DataPrices(_with_storage(snapshot(CLUSTER, []), bare, volume)).costs(mounts, TERMS).tolist() == [
        1,
        0,
        11,
        111,
    ]
    assert DataPrices(_with_storage(snapshot(CLUSTER, []), telling, volume)).costs(mounts, TERMS).tolist() == [
        0,
        1,
        11,
        111,
    ]


def test_pods_go_to_their_data() -> None:
    """Each to the node that has it, against what load alone would say."""
    pending = [pod(f"p{at}", 100, data=(on(f"n{at % 2}", size=100 * GI),)) for at in range(6)]
    result = run_round(snapshot(CLUSTER, pending), NEAR)
    assert {placement.pod.key[-1]: placement.node for placement in result.placements} == {
        str(at): f"n{at % 2}" for at in range(6)
    }


def test_where_no_policy_prices_data_nothing_changes() -> None:
    """The same demands, the same plan and the same cost as of pods that say nothing."""
    cluster = [*CLUSTER, machine("n4", report=Report(images=(("small", GI // 8),)))]
    plain = [pod(f"p{at}", 100, images=("small",), containers=1) for at in range(6)]
    told = [
        pod(f"p{at}", 100, images=("small",), containers=1, data=(on("n0", size=(at + 1) * GI),)) for at in range(6)
    ]
    one, other = (snapshot(cluster, pending) for pending in (plain, told))
    policies = {BUILT_IN.name: BUILT_IN}
    assert len(Problem(other, policies, MODELS).demands) == len(Problem(one, policies, MODELS).demands) == 1
    first, second = run_round(one), run_round(other)
    assert [(each.pod.key, each.node, each.price) for each in first.placements] == [
        (each.pod.key, each.node, each.price) for each in second.placements
    ]


def test_the_annotation_says_where_data_is() -> None:
    """Nodes, racks, zones, replicas; sizes are quantities."""
    text = '[{"node": "n1", "bytes": "10Gi"}, {"anyOf": [{"rack": "r1"}, {"zone": "z"}], "bytes": 1024}]'
    assert parse_data(text) == (
        DataSource((DataPlace(Level.NODE, "n1"),), 10 * GI),
        DataSource((DataPlace(Level.RACK, "r1"), DataPlace(Level.ZONE, "z")), 1024),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("n1", "^annotation scheduling.thalweg/data: it is no JSON; write a JSON list such as"),
        ('[{"node": "n1"', "it is no JSON"),
        ('[{"node": "\ud800", "bytes": 1}]', "it is no JSON"),
        ('{"node": "n1"}', "write a JSON list"),
        ('[{"node": "n1"}]', "bytes"),
        ('[{"node": "n1", "bytes": "many"}]', 'entry 0: bytes: "many" is not a quantity'),
        ('[{"node": "n1", "bytes": 1}, {"node": "n1", "bytes": "-1"}]', "entry 1: bytes: -1 is negative"),
        ('[{"bytes": "1Gi"}]', "entry 0: give one of node, rack, zone and anyOf"),
        ('[{"node": "a", "anyOf": [{"node": "b"}], "bytes": 1}]', "give one of"),
        ('[{"node": "a", "rack": "b", "bytes": 1}]', "a place is one of node, rack and zone"),
        ('[{"anyOf": [{}], "bytes": 1}]', "a place is one of node, rack and zone"),
        ('[{"machine": "a", "bytes": 1}]', "machine"),
        ("[" + ", ".join(['{"node": "a", "bytes": 1}'] * 65) + "]", "at most 64"),
        ('[{"anyOf": [' + ", ".join(['{"node": "a"}'] * 17) + '], "bytes": 1}]', "at most 16"),
        (f'[{{"node": "{"a" * 254}", "bytes": 1}}]', "253"),
        ("[" + " " * 70_000 + "]", "characters"),
    ],
)
def test_a_bad_annotation_is_refused_with_a_sentence(text: str, told: str) -> None:
    """It names the entry and says what would do; the pod is planned as if it read no data."""
    with pytest.raises(ModelError, match=told) as error:
        parse_data(text)
    wire = {"metadata": {"name": "p", "annotations": {DATA: text}}, "spec": {}}
    found = to_pod(msgspec.convert(wire, WirePod), Interner())
    assert not found.pod_class.data
    assert not found.blocked_reason
    assert (found.bad_annotation, found.annotation_problem) == (f"annotation {DATA}", error.value.problem)
    for kind in ("PersistentVolume", "PersistentVolumeClaim"):
        stored = to_storage_object(kind, {"metadata": {"name": "x", "annotations": {DATA: text}}})
        assert isinstance(stored, Claim | PersistentVolume)
        assert (stored.data, stored.data_problem) == ((), error.value.problem)


def test_data_is_read_from_pods_claims_and_volumes() -> None:
    """From the same annotation, whether the pod is bound or not."""
    meta = {"name": "x", "annotations": {DATA: '[{"node": "n1", "bytes": "1Gi"}]'}}
    waiting, bound = (
        to_pod(msgspec.convert({"metadata": meta, "spec": spec}, WirePod), Interner())
        for spec in ({}, {"nodeName": "n1"})
    )
    assert waiting.pod_class.data == bound.pod_class.data == (on("n1"),)
    for kind in ("PersistentVolume", "PersistentVolumeClaim"):
        stored = to_storage_object(kind, {"metadata": meta})
        assert isinstance(stored, Claim | PersistentVolume)
        assert stored.data == (on("n1"),)
