"""Is each pod where it may be? Asked of kube-scheduler's own filters, once all is bound.

Rules between pods of a set make some orders of placing them legal and others not, and bindings are not seen in the
order in which they were decided. So the pods of a set are placed again one after the other, in any order in which the
filters let them: one that they refuse gets another turn once others are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from thalweg_controlplane import Binaries, Oracle

from harness import workload

Object = dict[str, Any]


def misplaced(executables: Binaries, nodes: Sequence[Object], pods: Iterable[Object]) -> list[str]:
    """Bound pods of the measured namespace that no such order has a place for where they are.

    Each set is judged by itself, on the nodes that it uses and one more of each domain that it may have to fill: its
    rules speak of no other pods, and room is checked elsewhere (``room``).
    """
    nodes = [_bare(node, "spec", "status") for node in nodes]
    sets: dict[str, list[Object]] = {}
    for pod in pods:
        bound = pod["spec"].get("nodeName") and pod["metadata"]["namespace"] == workload.MEASURED
        if bound and workload.SET in pod["metadata"].get("labels", {}):
            sets.setdefault(pod["metadata"]["labels"][workload.SET], []).append(_bare(pod, "spec"))
    if not sets:
        return []
    of_domains = {node["metadata"]["labels"][workload.SPREAD_OVER]: node for node in nodes}
    by_name = {node["metadata"]["name"]: node for node in nodes}
    left: list[str] = []
    with Oracle(executables) as oracle:
        for members in sets.values():
            used = {pod["spec"]["nodeName"] for pod in members}
            some = {node["metadata"]["name"]: node for node in of_domains.values()}
            some |= {name: by_name[name] for name in used if name in by_name}
            left += _unplaceable(oracle, list(some.values()), members)
    return left


def _bare(thing: Object, *parts: str) -> Object:
    """Less what filters do not read, of which the API server's objects have a lot."""
    metadata = {key: thing["metadata"].get(key) for key in ("name", "namespace", "uid", "labels")}
    return {"metadata": metadata, **{part: thing[part] for part in parts}}


def _unplaceable(oracle: Oracle, nodes: list[Object], members: list[Object]) -> list[str]:
    there: list[Object] = []
    waiting = sorted(members, key=lambda pod: str(pod["metadata"]["name"]))
    while waiting:
        again = []
        for pod in waiting:
            unbound = {**pod, "spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"}}
            key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            verdict = oracle.judge(nodes, there, [unbound])[""][key].get(pod["spec"]["nodeName"])
            (there if verdict is not None and verdict.fits else again).append(pod)
        if len(again) == len(waiting):
            break
        waiting = again
    return [str(pod["metadata"]["name"]) for pod in waiting]
