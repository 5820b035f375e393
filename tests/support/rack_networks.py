"""A network with an aggregator for each rack, and clusters with many racks."""

from __future__ import annotations

from support.cli import Manifest, node, pod


def many_nodes(count: int, racks: int) -> list[Manifest]:
    nodes = [node(f"n{number}") for number in range(count)]
    for number, each in enumerate(nodes):
        labels = {"rack": f"r{number % racks:03}", "topology.kubernetes.io/zone": "ab"[number % 2]}
        each["metadata"]["labels"] |= labels
    return nodes


def many_pods(count: int) -> list[Manifest]:
    owners = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{n}", "uid": "u", "controller": True} for n in range(30)
    ]
    return [
        pod(f"p{n}", metadata={"name": f"p{n}", "namespace": "default", "labels": {"app": "cache"},
                               "ownerReferences": [owners[n % 30]]}, schedulerName="thalweg")
        for n in range(count)
    ]  # fmt: skip


BY_RACK: Manifest = {
    "apiVersion": "scheduling.thalweg/v1alpha1",
    "kind": "FlowSchedulingPolicy",
    "metadata": {"name": "by-rack"},
    "spec": {
        "selects": {"podSelector": {"matchLabels": {"app": "cache"}}},
        "network": {
            "aggregators": [{"name": "rack", "over": {"nodeLabel": "rack"}, "arcs": [{"to": "Nodes", "maximum": 1}]}],
            "arcs": [{"from": {"podSelector": {}}, "to": "rack", "maximum": 2}],
        },
    },
}
