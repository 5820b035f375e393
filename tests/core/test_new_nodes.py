"""New nodes: headroom, why and what-if say the same of them, of the right zone or rack and as few as a plan needs."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of

from flowcore.questions.diagnosis.answers import Fix, WhyQuery
from flowcore.questions.diagnosis.why import answer_why
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.alternatives.headroom import HeadroomQuery, answer_headroom
from flowcore.questions.scenario.alternatives.what_if import WhatIfAnswer, WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import AddNodes

CONTEXT = AnswerContext(now=NOW)
ZONE, HOSTNAME, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack"
Manifest = dict[str, Any]


def what_if(scenario: Scenario, count: int, like: str) -> WhatIfAnswer:
    """``what-if --add-nodes COUNT --like NODE``."""
    return answer_what_if(scenario, WhatIfQuery([AddNodes(count, like)] if count else []), CONTEXT)


def more_placed(answer: WhatIfAnswer) -> int:
    """How many more pods have a node."""
    return len(answer.placed) - len(answer.waiting)


def additions(fixes: list[Fix]) -> list[tuple[int, str]]:
    """The fixes that add nodes and do nothing else."""
    alone = [fix.change[0] for fix in fixes if len(fix.change) == 1]
    return [(change.count, change.like) for change in alone if isinstance(change, AddNodes)]


# -- clusters ----------------------------------------------------------------------------------------------------------


def node(name: str, zone: str = "a", rack: str = "", cpu: str = "4") -> Manifest:
    """A node with a rack."""
    made = manifest_node(name, zone, cpu)
    made["metadata"]["labels"][RACK] = rack or f"r-{name}"
    return made


def pod(name: str, on: str = "", cpu: str = "1", app: str = "web", **spec: Any) -> Manifest:
    """A pod of a workload."""
    made = manifest_pod(name, on, cpu)
    made["metadata"]["labels"] = {"app": app}
    (owner,) = made["metadata"]["ownerReferences"]
    owner["name"] = owner["uid"] = app
    made["spec"].update(spec)
    return made


def daemon(on: str, app: str) -> Manifest:
    """A pod of a DaemonSet."""
    made = pod(f"daemon-{on}", on, app=app)
    made["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    return made


def full(name: str) -> Manifest:
    """What fills a node."""
    return pod(f"full-{name}", name, "4", "other")


def apart(key: str, app: str = "web") -> Manifest:
    """Required anti-affinity."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def beside(key: str, app: str) -> Manifest:
    """Required affinity."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(key: str, skew: int = 1, **more: Any) -> Manifest:
    """Required spread."""
    selects = {"labelSelector": {"matchLabels": {"app": "web"}}, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{"maxSkew": skew, "topologyKey": key, **selects, **more}]}


def gang(name: str, size: int, cpu: str = "4", **annotations: str) -> list[Manifest]:
    """Pods that wait, all or none."""
    said = {"scheduling.thalweg/gang": name, "scheduling.thalweg/gang-min-member": str(size), **annotations}
    return [manifest_pod(f"{name}-{at}", cpu=cpu, annotations=said) for at in range(size)]


CLAIMED = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def claim(storage_class: str = "", volume: str = "") -> Manifest:
    """The claim of CLAIMED, bound to a volume or of a class."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}} if volume else {}
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default", "uid": "data", **bound},
        "spec": {**spec, "storageClassName": storage_class, "volumeName": volume},
    }


def volume_at(key: str, value: str) -> Manifest:
    """The volume "disk", which nodes with this label reach."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": "data", "uid": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "csi": {"driver": "csi.example.com", "volumeHandle": "disk"},
        },
    }


def class_of(key: str, value: str) -> Manifest:
    """The StorageClass "late", whose volumes are made where a pod goes, on nodes with this label."""
    return {
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": key, "values": [value]}]}],
    }


ZONES = [node(f"{zone}1", zone) for zone in "abcd"]
FULL_ZONES = [*ZONES, *(full(f"{zone}1") for zone in "abcd")]
RACKS = [node(f"n{at}", rack=f"r{at}") for at in range(8)]


def one_per_policy(key: str) -> Manifest:
    """A policy that lets one pod of the workload into a domain."""
    selects = {"podSelector": {"matchLabels": {"app": "web"}}}
    conflict = {"pods": {"matchLabels": {"app": "web"}}, "topologyKey": key, "maxPerDomain": 1}
    constraints = [{"name": "one", "conflict": conflict}]
    spec = {"selects": selects, "constraints": constraints}
    return {"kind": "FlowSchedulingPolicy", "metadata": {"name": "one"}, "spec": spec}


def in_racks(*, running: Manifest, waiting: list[Manifest]) -> list[Manifest]:
    """Eight racks of a node each: the last is full, and each other has a pod already."""
    there = [pod(f"there-{at}", f"n{at}", app=running.get("app", "web"), **running["spec"]) for at in range(7)]
    return [*RACKS, full("n7"), *there, *waiting]


CASES: dict[str, tuple[list[Manifest], str, tuple[int, str, int]]] = {
    "spread over zones, the last is full": (
        [*ZONES, full("d1"), *(pod(f"on-{zone}", f"{zone}1", **spread(ZONE)) for zone in "abc"),
         *(pod(f"w{at}", **spread(ZONE)) for at in range(4))],
        "replicaset/default/web",
        (1, "d1", 4),
    ),
    "spread over racks": (
        in_racks(running={"spec": spread(RACK)}, waiting=[pod(f"w{at}", **spread(RACK)) for at in range(8)]),
        "replicaset/default/web",
        (1, "n7", 8),
    ),
    "eleven pods over three racks": (
        [*(node(f"n{at}", rack=f"r{at}", cpu="8") for at in range(3)), pod("full", "n2", "8", "other"),
         *(pod(f"on-{at}", f"n{at}", **spread(RACK)) for at in range(2)),
         *(pod(f"w{at}", **spread(RACK)) for at in range(9))],
        "replicaset/default/web",
        (1, "n2", 9),
    ),
    "six replicas apart, one node": (
        [node("a"), *(pod(f"w{at}", "" if at else "a", **apart(HOSTNAME)) for at in range(6))],
        "replicaset/default/web",
        (5, "a", 5),
    ),
    "apart by rack, one rack has none": (
        in_racks(running={"spec": apart(RACK)}, waiting=[pod("w", **apart(RACK))]),
        "default/w",
        (1, "n7", 1),
    ),
    "others keep apart by rack": (
        in_racks(running={"app": "guard", "spec": apart(RACK)}, waiting=[pod("w")]),
        "default/w",
        (1, "n7", 1),
    ),
    "beside a partner in a full rack": (
        [*RACKS, pod("partner", "n6", "4", "db"), pod("w", **beside(RACK, "db"))],
        "default/w",
        (1, "n6", 1),
    ),
    "beside a pod of a DaemonSet that not all nodes have": (
        [node("a"), node("b"), daemon("a", "db"), pod("fills", "a", "3", "other"),
         pod("w", cpu="2", **beside(HOSTNAME, "db"))],
        "default/w",
        (1, "a", 1),
    ),
    "more hosts than there are by minDomains": (
        [node("a"), node("b"), *(pod(f"on-{name}", name, **spread(HOSTNAME, minDomains=4)) for name in "ab"),
         *(pod(f"w{at}", **spread(HOSTNAME, minDomains=4)) for at in range(2))],
        "replicaset/default/web",
        (2, "a", 2),
    ),
    "a volume of a zone": ([*FULL_ZONES, claim(volume="disk"), volume_at(ZONE, "d"), pod("w", **CLAIMED)],
                           "default/w", (1, "d1", 1)),
    "a volume by a label of its own": ([*FULL_ZONES, claim(volume="disk"), volume_at(RACK, "r-c1"),
                                        pod("w", **CLAIMED)], "default/w", (1, "c1", 1)),
    "a class of a zone": ([*FULL_ZONES, class_of(ZONE, "d"), claim("late"), pod("w", **CLAIMED)],
                          "default/w", (1, "d1", 1)),
    "a gang in one rack": (
        [*(node(f"n{at}", rack=f"r{at // 2}") for at in range(8)), *(full(f"n{at}") for at in range(7)),
         *gang("train", 3, **{"scheduling.thalweg/gang-topology": RACK})],
        "gang/default/train",
        (2, "n6", 3),
    ),
    "a policy's limit by rack": (
        [one_per_policy(RACK), *in_racks(running={"spec": {"schedulerName": "thalweg"}},
                                         waiting=[pod("w", schedulerName="thalweg")])],
        "default/w",
        (1, "n7", 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_nodes_that_help(case: str) -> None:
    """So few nodes, like that one, place so many pods: headroom and why say so, of several shapes this one first."""
    objects, target, (count, like, pods) = CASES[case]
    scenario = scenario_of(objects)
    best = answer_headroom(scenario, HeadroomQuery(), CONTEXT).scale_ups[0]
    assert (best.count, best.like, best.pods, best.at_most) == (count, like, pods, False)
    assert additions(answer_why(scenario, WhyQuery(target), CONTEXT).fixes) == [(count, like)]
    assert len(what_if(scenario, count, like).placed) == pods


def test_the_nodes_for_a_gang_are_the_same() -> None:
    """A ProvisioningRequest asks for as many."""
    objects, _, (count, like, _) = CASES["a gang in one rack"]
    found = answer_headroom(scenario_of(objects), HeadroomQuery(gang="default/train"), CONTEXT).gang
    assert found is not None
    assert (found.count, found.like) == (count, like)


@pytest.mark.parametrize("at", ["x", "r-none"])
def test_no_node_helps_where_no_node_reaches_the_volume(at: str) -> None:
    """None is offered then."""
    scenario = scenario_of([*FULL_ZONES, claim(volume="disk"), volume_at(RACK, at), pod("w", **CLAIMED)])
    assert not answer_headroom(scenario, HeadroomQuery(), CONTEXT).scale_ups
    assert not additions(answer_why(scenario, WhyQuery("default/w"), CONTEXT).fixes)


def test_who_else_gets_the_room() -> None:
    """Pods of a higher priority come first: the pod has the third node."""
    urgent = [pod(f"u{at}", app="urgent", cpu="4", priority=10, preemptionPolicy="Never") for at in range(2)]
    scenario = scenario_of([node("a"), full("a"), *urgent, pod("w0", cpu="4")])
    (fix,) = [fix for fix in answer_why(scenario, WhyQuery("default/w0"), CONTEXT).fixes if additions([fix])]
    assert fix.text == "Add 3 nodes like a: 2 pods of replicaset/default/urgent get a node too, nobody loses a place."


@pytest.mark.parametrize(("asked", "count"), [("w0", 1), ("w1", 2), ("w2", 3)])
def test_the_nodes_place_the_very_pod(asked: str, count: int) -> None:
    """Of equal pods the first one gets the first new node: why of another one counts nodes until it has one, too."""
    scenario = scenario_of([node("a"), full("a"), *(pod(f"w{at}", cpu="4") for at in range(3))])
    fixes = answer_why(scenario, WhyQuery(f"default/{asked}"), CONTEXT).fixes
    assert additions(fixes) == [(count, "a")]
    assert f"default/{asked}" in what_if(scenario, count, "a").placed
    (text,) = [fix.text for fix in fixes if additions([fix])]
    assert (
        text
        == {
            "w0": "Add a node like a: nobody loses a place.",
            "w1": "Add 2 nodes like a: default/w0 gets a node too, nobody loses a place.",
            "w2": "Add 3 nodes like a: 2 pods of replicaset/default/web get a node too, nobody loses a place.",
        }[asked]
    )


# -- drawn clusters ----------------------------------------------------------------------------------------------------


@st.composite
def short_clusters(draw: st.DrawFn) -> Scenario:
    """Two to five nodes in zones and racks, some of them full, and pods with rules, volumes or gangs that wait."""
    objects = [manifest_pod("ended") | {"status": {"phase": "Succeeded"}}]  # without any pod there is no answer
    for at in range(draw(st.integers(2, 5))):
        name = f"n{at}"
        objects.append(node(name, draw(st.sampled_from("abc")), f"r{at // 2}", draw(st.sampled_from("248"))))
        if draw(st.booleans()):
            objects.append(pod(f"full-{at}", name, str(draw(st.integers(1, 4))), "other"))
        if draw(st.booleans()):
            objects.append(pod(f"there-{at}", name, app=draw(st.sampled_from(("web", "db")))))
    rules = [{}, apart(HOSTNAME), apart(RACK), apart(ZONE), spread(ZONE), spread(RACK), spread(HOSTNAME, minDomains=3),
             beside(RACK, "db"), beside(ZONE, "web")]  # fmt: skip
    if draw(st.booleans()):
        key, value = draw(st.sampled_from(((ZONE, "a"), (RACK, "r1"))))
        objects += draw(st.sampled_from(([claim(volume="disk"), volume_at(key, value)],
                                         [claim("late"), class_of(key, value)])))  # fmt: skip
        objects.append(pod("keeps", app="keeps", **CLAIMED))
    if draw(st.booleans()):
        said = draw(st.sampled_from(({}, {"scheduling.thalweg/gang-topology": RACK})))
        objects += gang("train", draw(st.integers(2, 4)), str(draw(st.integers(1, 3))), **said)
    for at, app in enumerate(("web", "db")):
        rule, cpu = draw(st.sampled_from(rules)), str(draw(st.integers(1, 3)))
        priority = draw(st.sampled_from((0, 0, 10)))
        objects += [
            pod(f"w{at}-{number}", cpu=cpu, app=app, priority=priority, preemptionPolicy="Never", **rule)
            for number in range(draw(st.integers(0, 4)))
        ]
    return scenario_of(objects)


@settings(max_examples=examples(30, quick=2))
@given(short_clusters())
def test_what_headroom_says_is_what_what_if_gives(scenario: Scenario) -> None:
    """The same pods; any smaller number places fewer, and a larger one no more."""
    for found in answer_headroom(scenario, HeadroomQuery(), CONTEXT).scale_ups:
        given = what_if(scenario, found.count, found.like)
        assert not found.at_most
        assert sorted(given.placed) == sorted(found.places)
        assert len(found.places) == found.pods
        for fewer in range(found.count):
            assert more_placed(what_if(scenario, fewer, found.like)) < more_placed(given)
        for more in (1, 3):
            assert more_placed(what_if(scenario, found.count + more, found.like)) <= more_placed(given)


@settings(max_examples=examples(30, quick=8))
@given(scenario=short_clusters(), data=st.data())
def test_what_why_says_is_what_what_if_gives(scenario: Scenario, data: st.DataObject) -> None:
    """With the nodes of a fix the pod is placed; with any smaller number it is not, or others lose a place."""
    if not scenario.cluster.waiting:
        return
    asked = data.draw(st.sampled_from(sorted(scenario.cluster.waiting)))
    for fix in answer_why(scenario, WhyQuery(asked), CONTEXT).fixes:
        for count, like in additions([fix]):
            given = what_if(scenario, count, like)
            assert sorted(given.placed) == sorted(fix.places)
            assert asked in given.placed
            for fewer in () if fix.loses or "at most" in fix.text else range(count):
                given = what_if(scenario, fewer, like)
                assert asked not in given.placed or given.waiting


@settings(max_examples=examples(30, quick=2))
@given(short_clusters())
def test_new_nodes_that_help_are_found(scenario: Scenario) -> None:
    """Where up to three nodes like any that is there place pods, headroom has nodes that place as many."""
    names = list(scenario.cluster.nodes)
    most = max(more_placed(what_if(scenario, count, name)) for count in (1, 2, 3) for name in names)
    found = answer_headroom(scenario, HeadroomQuery(), CONTEXT).scale_ups
    assert bool(found) == (most > 0)
    assert not found or max(each.pods for each in found) >= most
