"""Ten networks of the largest size that the API accepts: pods of others are placed as without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.model import GI, node, pod, snapshot

from flowcore.api.policies import parse_policy
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.round import run_round

EVERYBODY: Mapping[str, Any] = {"podSelector": {}}
SEGMENTS = [*({"upTo": at + 1, "each": at * 10} for at in range(31)), {"each": 1000}]
NODES = [
    node(f"n{at}", 8000, 32 * GI, labels=(("kubernetes.io/hostname", f"n{at}"), ("rack", f"r{at % 20}")))
    for at in range(100)
]


def layers() -> dict[str, Any]:
    """Fifty layers of two points: more ways than there are atoms of anything."""
    names = [[f"a{layer}-{side}" for side in (0, 1)] for layer in range(50)]
    onward = [[{"to": name} for name in layer] for layer in names[1:]] + [[{"to": "Nodes"}]]
    aggregators = [{"name": name, "arcs": arcs} for layer, arcs in zip(names, onward, strict=True) for name in layer]
    return {"aggregators": aggregators, "arcs": [{"from": EVERYBODY, "to": name} for name in names[0]]}


def kinds() -> dict[str, Any]:
    """A hundred kinds of pods with an aggregator over racks each, and all the segments that there may be."""
    arcs = [{"to": "Nodes", "maximum": 30, "cost": SEGMENTS}]
    aggregators = [{"name": f"g{at}", "over": {"nodeLabel": "rack"}, "arcs": arcs} for at in range(100)]
    of_kinds = [{"from": {"podSelector": {"matchLabels": {"app": f"a{at}"}}}, "to": f"g{at}"} for at in range(100)]
    return {"aggregators": aggregators, "arcs": [{**arc, "maximum": 20, "cost": SEGMENTS} for arc in of_kinds]}


def gains() -> dict[str, Any]:
    """A hundred aggregators over hosts, behind arcs with gains and minimums."""
    arcs = [{"to": "Nodes", "maximum": 3, "cost": SEGMENTS}]
    hosts = {"nodeLabel": "kubernetes.io/hostname"}
    aggregators = [{"name": f"g{at}", "over": hosts, "arcs": arcs} for at in range(100)]
    to_hosts = [{"from": EVERYBODY, "to": f"g{at}", "gain": 2, "minimum": at % 2} for at in range(100)]
    return {"aggregators": aggregators, "arcs": to_hosts}


def drawing(number: int, network: dict[str, Any]) -> Policy:
    return parse_policy(f"p{number}", {"selects": {"podSelector": {}}, "network": network}, BUILT_IN_MODELS)


@pytest.mark.parametrize(("drawn", "places"), [(layers, False), (kinds, True), (gains, False)])
def test_pods_of_others_are_placed_as_without_them(drawn: Any, *, places: bool) -> None:
    """And each pod of the networks is placed, or says why not."""
    policies = [drawing(number, drawn()) for number in range(10)]
    strangers = [pod(f"s{at}", 500, GI, policy=BUILT_IN.name) for at in range(50)]
    own = [
        pod(f"t{number}-{at}", 100, GI // 8, policy=f"p{number}", kind=PodSignature("default", (("app", f"a{at}"),)))
        for number in range(10)
        for at in range(10)
    ]
    result = run_round(snapshot(NODES, [*strangers, *own]), {each.name: each for each in (BUILT_IN, *policies)})
    placed = {each.pod.uid for each in result.placements}
    assert placed.issuperset(each.uid for each in strangers)
    assert len(placed) == len(strangers) + (len(own) if places else 0)
    assert {each.code for each in result.unplaced} == (set() if places else {"NetworkRefused"})
    assert all(each.reason for each in result.unplaced)
