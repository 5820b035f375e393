"""The scene in which pods take the place of running ones: figures 4 and 5 of the seed."""

from __future__ import annotations

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.amount_text import counted
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import REPLACES
from flowcore.planning.round import RoundResult, run_round
from thalweg.demo.page import ScenePage
from thalweg.demo.scene import demo_pod, demo_snapshot
from thalweg.demo.scene_result import checked

_CORES = 1000
_RUNNING = tuple(
    demo_pod(name, PodClass(requests=(("cpu", cores * _CORES),)), node_name=node, owner=owner)
    for name, node, cores, owner in (
        ("model-1", "node-1", 6, "model"),
        ("cache-1", "node-2", 4, "cache"),
        ("web-1", "node-2", 4, "web"),
    )
)
_NEW = (("model-2", 8, "model-1", "model"), ("cache-2", 6, "cache-1", "cache"), ("small", 1, None, "small"))


def snapshot() -> Snapshot:
    """Two nodes of eight cores with running pods, and new pods; two of them name a running pod."""
    nodes = [Node(name, allocatable=(("cpu", 8 * _CORES), ("pods", 110))) for name in ("node-1", "node-2")]
    new = [
        demo_pod(name, PodClass(requests=(("cpu", cores * _CORES),)), replaces=old, owner=owner)
        for name, cores, old, owner in _NEW
    ]
    return demo_snapshot(nodes, [*_RUNNING, *new])


def claim(plan: RoundResult) -> str:
    """Who makes way for whom.

    Raises:
        ClaimError: a pod makes way for another that does not get its node.
    """
    replaced = [(each.pod, each.pod.victim, each.node) for each in plan.placements if each.pod.victim]
    new = " and ".join(f"{_short(pod.key)} gets {node} from {_short(old.key)}" for pod, old, node in replaced)
    named = [each.pod.victim for each in plan.unplaced if each.pod.victim]
    stay = " and ".join(_short(old.key) for old in named)
    others = [_short(each.pod.key) for each in plan.unplaced if not each.pod.victim]
    return checked(
        f"{new}; {stay} runs on; {' and '.join(others)} waits.",
        len(replaced) == len(named) == len(others) == 1,
        all(old.node == node for _, old, node in replaced),
    )


def replacing_page() -> ScenePage:
    """The scene, planned."""
    plan = run_round(snapshot())
    placed = {each.pod.key: each.node for each in plan.placements}
    rows = []
    for pod in snapshot().pending:
        old = "-" if pod.victim is None else _short(pod.victim.key)
        where = placed.get(pod.key, "waits")
        if pod.victim is not None and pod.key in placed:
            where += f", once {old} has left"
        rows.append((_short(pod.key), _cores(pod.pod_class.requests), old, where))
    runs = ", ".join(f"{_short(each.key)} on {each.node_name} ({_cores(each.usage)})" for each in _RUNNING)
    return ScenePage(
        "In the place of another",
        (
            f"A new pod can name a running one (annotation {REPLACES}).",
            "Thalweg evicts that pod only if the new one fits in its place, and keeps the room for the new one.",
            "One by one, no pod takes the place of another: this scene is planned once.",
            f"Nodes: node-1 (8 cores), node-2 (8 cores). Running: {runs}.",
        ),
        (("POD", "ASKS FOR", "REPLACES", "THALWEG"), *rows),
        [f"{_short(each.pod.key)} waits: {each.reason}" for each in plan.unplaced],
        claim(plan),
    )


def _short(key: str) -> str:
    return key.removeprefix("demo/")


def _cores(amounts: tuple[tuple[str, int], ...]) -> str:
    return counted(dict(amounts)["cpu"] // _CORES, "core")
