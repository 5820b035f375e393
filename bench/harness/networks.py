"""Rounds in which a cost model's own network decides about all pods: with minimums, maximums and gains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from flowcore.api.policies import parse_policy
from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import BUILT_IN_MODELS, MODELS
from flowcore.costs.network_model import UNSCHEDULED, Arc, Network, NetworkCostModel, NetworkView, Pods
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.policies import Policy
from flowcore.planning.round import RoundResult, run_round
from harness.instances import ZONE

#: Of so many kinds of pods one comes in pairs, and one in gangs.
_PAIRS, _GANGS = 5, 7
#: Of so many nodes that take pods one must get a pod.
_WANTED = 10
#: Pods of a gang.
_GANG = 8
#: How many pods a node takes at its price; what each further one pays more.
_CHEAP, _DEARER = 3, 100
#: Of the waiting pods at most so many go to one zone, over an equal share.
_UNEVEN = 1.3


class Drawn(NetworkCostModel):
    """Zones with a maximum, a pod at least on some nodes, the emptiest nodes first; and pairs that share a node."""

    name = "Drawn"

    def network(self, view: NetworkView) -> Network:
        """Some arcs for each node, and for each kind of pairs two for each node that takes one of them."""
        arcs: list[Arc] = []
        for pods in view.pods:
            if _in_pairs(pods):
                arcs += self._pairs(view, pods)
            else:
                arcs.append(Arc(pods, "all"))
        waiting, zones = sum(pods.count for pods in view.pods), view.by_label(ZONE)
        alone = [pods for pods in view.pods if not _in_pairs(pods)]
        taking = sorted({node.name for pods in alone for node in view.takes(pods)})
        wanted = set(taking[::_WANTED])
        for zone, nodes in zones.items():
            arcs.append(Arc("all", zone, maximum=round(_UNEVEN * waiting / len(zones))))
            for node in nodes:
                arcs += self._room(view, zone, node, minimum=int(node.name in wanted))
        return Network.of(arcs)

    def _pairs(self, view: NetworkView, pods: Pods) -> Iterator[Arc]:
        """One unit of each pair ends at once; the other one counts for both on the node that it goes to.

        One pod of an odd number goes alone.
        """
        pair = f"pairs {pods.name}"
        yield Arc(pods, pair)
        yield Arc(pair, UNSCHEDULED)
        yield Arc(pods, "all", maximum=pods.count % 2)
        for node in view.takes(pods):
            yield Arc(pair, f"{pair} on {node.name}", cost=2 * int(1000 * view.taken(node)), gain=2)
            yield Arc(f"{pair} on {node.name}", node)

    def _room(self, view: NetworkView, zone: str, node: Node, minimum: int) -> Iterator[Arc]:
        cost = int(1000 * view.taken(node))
        yield Arc(zone, node, cost=cost, minimum=minimum, maximum=_CHEAP)
        yield Arc(zone, node, cost=cost + _DEARER)


def _in_pairs(pods: Pods) -> bool:
    return int(pods.labels["app"].rsplit("-", 1)[-1]) % _PAIRS == 0


POLICY = Policy("drawn", cost=CostPolicy(Drawn.name))


def under_network(snapshot: Snapshot, *, gangs: bool) -> Snapshot:
    """The same pods under a policy whose cost model draws the network; gangs: some of them in gangs of eight."""
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
