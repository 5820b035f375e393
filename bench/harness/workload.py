"""The nodes and pods of the load benchmarks: the same for every scheduler, drawn with a fixed seed. Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from thalweg_controlplane.client.objects import Manifest, node, pod

#: Namespace of the pods whose placing is measured; the API server makes it itself.
MEASURED = "default"
#: Namespace of the pods that are there before, so that a watch of the measured ones does not see them.
RUNNING = "running"
GANGS, GANGS_OF_TEN = "gangs", "gangs-of-10"
GROUPS, GROUPS_OF_TEN = "groups", "groups-of-10"
MIXES = ("plain", "mixed", "affinity", "apart", "spread", "rack", GANGS, GANGS_OF_TEN, GROUPS, GROUPS_OF_TEN)
#: Pods that constrain each other: sets of so many, told apart by a label.
_SET = 100
SET = "set"
#: Mix -> pods of a gang.
GANG_SIZES = {GANGS: _SET, GANGS_OF_TEN: 10, GROUPS: _SET, GROUPS_OF_TEN: 10}
#: Mixes whose gangs are PodGroups of Kubernetes itself, which kube-scheduler's own gang scheduling takes as a whole.
POD_GROUPS = (GROUPS, GROUPS_OF_TEN)
_HOST, _HALL, _RACK = "kubernetes.io/hostname", "example.com/hall", "example.com/rack"
#: Halls are what zones are to `spread`: ten, so that a set puts ten pods into each; nodes of a rack are in one hall.
_HALLS, _RACK_NODES = 10, 25
SPREAD_OVER = _HALL

_SEED = 20230501
_ZONE = "topology.kubernetes.io/zone"
_ZONES = ("zone-a", "zone-b", "zone-c")
_TAINT = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
_TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}

#: Common requests of the openb trace: milli-CPU, MiB, pods in the trace. Its GPUs are left out here.
_SIZES = (
    (3152, 5600, 1592),
    (11300, 49152, 857),
    (11908, 47104, 778),
    (8000, 30517, 649),
    (11400, 48128, 534),
    (12500, 57344, 364),
    (32000, 49152, 284),
    (18708, 64512, 255),
    (9810, 41560, 195),
    (4000, 22888, 189),
    (4000, 15258, 182),
    (12000, 24576, 158),
    (15700, 58368, 158),
    (4152, 10600, 152),
    (4000, 30517, 136),
)


def make_nodes(count: int) -> list[Manifest]:
    """Three zones, ten halls of racks of 25; every tenth node is tainted. All pods of a usual run fit easily."""
    return [
        node(
            f"node-{i:05}",
            cpu="64",
            memory="512Gi",
            labels={
                _ZONE: _ZONES[i % len(_ZONES)],
                _HALL: f"hall-{i // _RACK_NODES % _HALLS}",
                _RACK: f"rack-{i // _RACK_NODES:03}",
            },
            taints=[_TAINT] if i % 10 == 9 else None,
        )
        for i in range(count)
    ]


def make_running(count: int, nodes: int) -> Iterator[Manifest]:
    """Pods that have a node from their creation on, spread evenly."""
    for i in range(count):
        yield pod(
            f"running-{i:06}",
            cpu="100m",
            memory="100Mi",
            namespace=RUNNING,
            scheduler="nobody",
            labels={"app": f"running-{i % 50}"},
            nodeName=f"node-{i % nodes:05}",
        )


def make_pods(mix: str, count: int, scheduler: str) -> list[Manifest]:
    """The pods to place: `plain` (all alike), `mixed` (see the README), or sets of a hundred.

    The pods of a set are in two of three zones (`affinity`: node affinity), on different nodes (`apart`:
    anti-affinity), in all halls alike (`spread`: maxSkew 1, DoNotSchedule), or in one rack, whichever (`rack`: affinity
    to their own set). All of that is required. A set of `gangs` is a gang of a hundred pods for Thalweg, and nothing
    to kube-scheduler. `gangs-of-10` are gangs of ten. `groups` and `groups-of-10` are the same as PodGroups
    (`make_groups`).
    """
    if mix == "plain":
        return [pod(f"pod-{i:06}", "100m", "100Mi", MEASURED, scheduler, labels={"app": "plain"}) for i in range(count)]
    if mix in GANG_SIZES:
        make = _in_group if mix in POD_GROUPS else _in_gang
        return [make(i, GANG_SIZES[mix], scheduler) for i in range(count)]
    if mix != "mixed":
        return [_in_set(mix, i, scheduler) for i in range(count)]
    draw = random.Random(_SEED)
    return [_mixed(i, draw, scheduler) for i in range(count)]


def _mixed(i: int, draw: random.Random, scheduler: str) -> Manifest:
    at = draw.choices(range(len(_SIZES)), [size[2] for size in _SIZES])[0]
    cpu, memory, _ = _SIZES[at]
    rules: dict[str, Any] = {}
    where = draw.randrange(6)
    if where == 0:
        rules["nodeSelector"] = {_ZONE: draw.choice(_ZONES)}
    elif where == 1:
        rules["affinity"] = _in_zones(draw.sample(_ZONES, 2))
    if draw.randrange(10) == 0:
        rules["tolerations"] = [_TOLERATION]
    return pod(f"pod-{i:06}", f"{cpu}m", f"{memory}Mi", MEASURED, scheduler, labels={"app": f"size-{at}"}, **rules)


def whole_gangs(mix: str, bound: Collection[str]) -> int | None:
    """How many gangs of a mix are bound whole, given the names of pods; None: the mix has no gangs."""
    if mix not in GANG_SIZES:
        return None
    size = GANG_SIZES[mix]
    return sum(count == size for count in Counter(int(name[-6:]) // size for name in bound).values())


def make_groups(mix: str, count: int) -> list[Manifest]:
    """The PodGroups of so many pods of a mix; none where it has none. All pods of a group are needed at once."""
    if mix not in POD_GROUPS:
        return []
    size = GANG_SIZES[mix]
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": f"gang-{number}", "namespace": MEASURED},
            "spec": {"schedulingPolicy": {"gang": {"minCount": min(size, count - number * size)}}},
        }
        for number in range(-(-count // size))
    ]


def _in_group(i: int, size: int, scheduler: str) -> Manifest:
    group = {"podGroupName": f"gang-{i // size}"}
    labels = {SET: str(i // size)}
    return pod(f"pod-{i:06}", "100m", "100Mi", MEASURED, scheduler, labels=labels, schedulingGroup=group)


def _in_gang(i: int, size: int, scheduler: str) -> Manifest:
    terms = {"scheduling.thalweg/gang": f"gang-{i // size}", "scheduling.thalweg/gang-min-member": str(size)}
    return pod(f"pod-{i:06}", "100m", "100Mi", MEASURED, scheduler, labels={SET: str(i // size)}, annotations=terms)


def _in_set(mix: str, i: int, scheduler: str) -> Manifest:
    number = i // _SET
    labels = {SET: str(number)}
    if mix == "affinity":
        zones = [zone for zone in _ZONES if zone != _ZONES[number % len(_ZONES)]]
        return pod(f"pod-{i:06}", "100m", "100Mi", MEASURED, scheduler, labels=labels, affinity=_in_zones(zones))
    selector = {"labelSelector": {"matchLabels": labels}}
    return pod(f"pod-{i:06}", "100m", "100Mi", MEASURED, scheduler, labels=labels, **_IN_SETS[mix](selector))


def _required(affinity: str, key: str) -> Callable[[Manifest], Manifest]:
    return lambda selector: {
        "affinity": {affinity: {"requiredDuringSchedulingIgnoredDuringExecution": [{**selector, "topologyKey": key}]}}
    }


def _evenly(selector: Manifest) -> Manifest:
    constraint = {"maxSkew": 1, "topologyKey": _HALL, "whenUnsatisfiable": "DoNotSchedule", **selector}
    return {"topologySpreadConstraints": [constraint]}


#: Fields of the spec, given the set's selector.
_IN_SETS: Mapping[str, Callable[[Manifest], Manifest]] = {
    "apart": _required("podAntiAffinity", _HOST),
    "spread": _evenly,
    "rack": _required("podAffinity", _RACK),
}


def _in_zones(zones: list[str]) -> Manifest:
    """`affinity` of a spec."""
    expression = {"key": _ZONE, "operator": "In", "values": sorted(zones)}
    terms = [{"matchExpressions": [expression]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
