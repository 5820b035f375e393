"""Scenarios from drawn cases and from manifests, and their whole state, for comparing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from support.draw import Case

from flowcore.costs import BUILT_IN_MODELS
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.questions.scenario.reading.objects import ObjectReader
from flowcore.questions.scenario.reading.saved import state_of as lines_of

#: Seconds since the epoch, when the drawn pods have waited for a while.
NOW = 1_770_000_000.0
_KINDS = {
    "persistentVolumes": "PersistentVolume",
    "persistentVolumeClaims": "PersistentVolumeClaim",
    "storageClasses": "StorageClass",
    "csiNodes": "CSINode",
    "volumeAttachments": "VolumeAttachment",
    "csiDrivers": "CSIDriver",
    "csiStorageCapacities": "CSIStorageCapacity",
}


def scenario_of(objects: Iterable[dict[str, Any]]) -> Scenario:
    """A scenario with these objects of the API."""
    scenario = Scenario(moment=NOW)
    reader = ObjectReader(Edits(scenario), NOW, BUILT_IN_MODELS)
    for each in objects:
        reader.put(each, each["kind"])
    scenario.gaps += reader.resolve()
    return scenario


def drawn_scenario(case: Case) -> Scenario:
    """A scenario of a drawn case."""
    kinds = {"Namespace": case.namespaces, "Node": case.nodes, "Pod": [*case.pods, *case.pending]}
    kinds |= {_KINDS[plural]: objects for plural, objects in case.storage.items()}
    kinds["PodDisruptionBudget"] = case.budgets
    return scenario_of({"kind": kind, **each} for kind, objects in kinds.items() for each in objects)


def manifest_node(name: str, zone: str, cpu: str = "4", pods: int = 10, kind: str = "") -> dict[str, Any]:
    """A node; ``kind`` is the value of its label "kind"."""
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, "kind": kind}
    allocatable = {"cpu": cpu, "memory": "16Gi", "pods": str(pods)}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


def manifest_pod(
    name: str, node: str = "", cpu: str = "1", owner: str = "ReplicaSet", kind: str = "", **metadata: Any
) -> dict[str, Any]:
    """A pod with its own controller, unless ``owner`` is ""; further words are fields of its metadata.

    Args:
        kind: value of the label "kind" that it wants of its node; "": any.
    """
    owners = [{"kind": owner, "uid": f"of-{name}", "controller": True, "apiVersion": "v1", "name": f"of-{name}"}]
    return {
        "kind": "Pod",
        "metadata": {"name": name, "uid": name, "labels": {"app": name}, "ownerReferences": owners if owner else []}
        | metadata,
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "nodeName": node,
            "nodeSelector": {"kind": kind} if kind else {},
        },
    }


def state_of(scenario: Scenario) -> dict[str, Any]:
    """All that a plan reads of a scenario, with the order of what has one."""
    cluster = scenario.cluster
    gangs = sorted({pod.gang.key for pod in cluster.pods.values() if pod.gang is not None})
    return {
        "objects": list(lines_of(scenario)),
        "waiting": list(cluster.waiting.items()),
        "usage": {name: sums.to_usage(name) for name, sums in sorted(_stripped(cluster).items())},
        "signatures": sorted(map(repr, cluster.occupancy.pod_index.counts())),
        "populations": sorted((repr(of), each.placed, each.waiting) for of, each in cluster.populations.items()),
        "priorities": dict(cluster.bound_priorities),
        "gangs": {key: (cluster.gangs.order(key), cluster.gangs.state(key)) for key in gangs},
        "numa": {name: cluster.numa.claims(name) for name in cluster.numa.reports},
        "rest": (
            dict(scenario.policies),
            dict(scenario.priority_classes),
            dict(scenario.claim_templates),
            dict(scenario.node_samples),
            dict(scenario.pod_samples),
            scenario.warnings[:],
            scenario.gaps[:],
        ),
    }


def _stripped(scenario_cluster: Any) -> dict[str, Any]:
    """What is taken on each node, without amounts of zero."""
    found = {}
    for name, sums in scenario_cluster.occupancy.usage.items():
        found[name] = sums.copy()
        for resource in [each for each, amount in sums.amounts.items() if not amount]:
            del found[name].amounts[resource]
    return found
