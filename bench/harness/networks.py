"""Rounds in which a cost model's own network decides about all pods: with minimums, maximums and gains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from flowcore.api.policies import parse_policy
from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.costs import BUILT_IN_MODELS, MODELS
from flowcore.costs.network_model import NetworkCostModel, NetworkView, arc_to, from_pods
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.gangs import Gang
from flowcore.model.networks import (
    NODES,
    UNSCHEDULED,
    Aggregator,
    ArcCost,
    CostPart,
    NetworkArc,
    NetworkSpec,
    Over,
    PodArc,
    Segment,
)
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.round import RoundResult, run_round
from flowcore.rules.filters import run_filters
from harness.instances import ZONE

#: Of so many kinds of pods one comes in pairs if their number is even, and one in gangs.
_PAIRS, _GANGS = 5, 7
#: Of so many nodes that take pods one must get a pod.
_WANTED = 10
#: Pods of a gang.
_GANG = 8
#: How many pods a node has at its price; what each further one pays more.
_CHEAP, _DEARER = 3, 100
#: Of the pods at most so many are in one zone, over an equal share.
_UNEVEN = 1.3
#: Labels with the zone of nodes that must get a pod, and of the others.
_OF_WANTED, _OF_REST = "bench/wanted", "bench/rest"


class Drawn(NetworkCostModel):
    """Zones with a maximum, a pod at least on some nodes, the emptiest nodes first; and pairs that share a node."""

    name = "Drawn"

    def network(self, view: NetworkView) -> NetworkSpec:
        """Zones, in them the nodes that want a pod and the others; and an arc with a gain for each kind of pairs."""
        counts = Counter[str]()
        for pods in view.pods:
            counts[pods.labels["app"]] += pods.count
        pairs = [app for app, number in sorted(counts.items()) if _in_pairs(app) and number % 2 == 0]
        # Pods that run count in the network too.
        count, zones = sum(pods.count for pods in view.pods) + sum(view.running({}).values()), len(view.by_label(ZONE))
        aggregators = [
            Aggregator("zone", Over(node_label=ZONE), (arc_to("wanted"), arc_to("rest"))),
            Aggregator("wanted", Over(node_label=_OF_WANTED), (_room(minimum=1),)),
            Aggregator("rest", Over(node_label=_OF_REST), (_room(minimum=0),)),
            *(Aggregator(f"pairs-{app}", arcs=_PAIR) for app in pairs),
        ]
        alone = LabelSelector((Requirement("app", "NotIn", tuple(pairs)),)) if pairs else LabelSelector()
        arcs = [from_pods(alone, arc_to("zone", maximum=round(_UNEVEN * count / max(zones, 1))))]
        return NetworkSpec(tuple(aggregators), (*arcs, *map(_to_pairs, pairs)))


def _room(minimum: int) -> NetworkArc:
    cost = ArcCost((Segment(0, _CHEAP), Segment(_DEARER)), CostPart.UTILISATION)
    return NetworkArc(NODES, cost, minimum=minimum)


#: One unit of each pair ends at once; the other one counts for both on the node that it goes to.
_PAIR = arc_to(UNSCHEDULED), arc_to(NODES, part=CostPart.UTILISATION, weight=2, gain=2)


def _to_pairs(app: str) -> PodArc:
    return from_pods({"app": app}, arc_to(f"pairs-{app}"))


def _in_pairs(app: str) -> bool:
    return int(app.rsplit("-", 1)[-1]) % _PAIRS == 0


POLICY = Policy("drawn", cost=CostPolicy(Drawn.name))


def _with_wanted_nodes(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which some of the nodes that take pods have the label of those that must get one."""
    classes = {pod.pod_class: pod for pod in snapshot.pending if not _in_pairs(dict(pod.signature.labels)["app"])}
    fits = [run_filters(each.pod_class, snapshot, each.signature).fits for each in classes.values()]
    taking = np.nonzero(np.logical_or.reduce(fits))[0] if fits else np.zeros(0, dtype=np.int64)
    wanted = set(taking[::_WANTED].tolist())
    nodes = [
        msgspec.structs.replace(
            node,
            labels=tuple(
                sorted((*node.labels, (_OF_WANTED if place in wanted else _OF_REST, dict(node.labels)[ZONE])))
            ),
        )
        for place, node in enumerate(snapshot.table.nodes)
    ]
    return replace(snapshot, table=NodeTable.of(nodes))


def under_network(snapshot: Snapshot, *, gangs: bool) -> Snapshot:
    """The same pods under a policy whose cost model draws the network; gangs: some of them in gangs of eight."""
    snapshot = _with_wanted_nodes(snapshot)
    pending = tuple(msgspec.structs.replace(pod, policy=POLICY.name) for pod in snapshot.pending)
    if not gangs:
        return replace(snapshot, pending=pending)
    apps = {app: place for place, app in enumerate(sorted({dict(pod.signature.labels)["app"] for pod in pending}))}
    members: Counter[str] = Counter()
    named = []
    for pod in pending:
        app = dict(pod.signature.labels)["app"]
        if apps[app] % _GANGS == 1:
            gang = f"{app}-{members[app] // _GANG}"
            members[app] += 1
            pod = msgspec.structs.replace(pod, gangs=(gang,))  # noqa: PLW2901 - the same pod in a gang
        named.append(pod)
    sizes = Counter(gang for pod in named for gang in pod.gangs)
    return replace(snapshot, pending=tuple(named), gangs={gang: Gang(gang, count) for gang, count in sizes.items()})


def plan(snapshot: Snapshot) -> RoundResult:
    """The plan of the network."""
    return run_round(snapshot, {POLICY.name: POLICY}, {**MODELS, Drawn.name: Drawn()})


def _by_rack(arc: Mapping[str, Any]) -> Mapping[str, Any]:
    racks = {"name": "rack", "over": {"nodeLabel": ZONE}, "arcs": [{"to": "Nodes", "cost": {"of": "Model"}}]}
    return {"aggregators": [racks], "arcs": [{"from": {"podSelector": {}}, "to": "rack", **arc}]}


#: Networks that policies draw: racks with a limit, that cost more and more, and nodes that do.
DRAWN: Mapping[str, Mapping[str, Any]] = {
    "cap for each rack": _by_rack({"maximum": 50}),
    "rising cost for each rack": _by_rack(
        {"cost": [{"upTo": 20, "each": 0}, {"upTo": 40, "each": 500}, {"each": 2000}]}
    ),
    "rising cost for each node": {
        "arcs": [
            {
                "from": {"podSelector": {}},
                "to": "Nodes",
                "cost": [{"upTo": 1, "each": 0}, {"upTo": 2, "each": 500}, {"each": 900}],
            }
        ]
    },
}


def drawing(name: str) -> Policy:
    """A policy with a network that it draws; "": with none."""
    spec = {"selects": {"podSelector": {}}, **({"network": DRAWN[name]} if name else {})}
    return parse_policy(POLICY.name, spec, BUILT_IN_MODELS)
