"""kube-scheduler agrees with what `thalweg why` names: without that the pod fits, without less it does not."""

from copy import deepcopy
from typing import Any

from hypothesis import Phase, given, settings
from support.draw import GENEROUS, Case, cases_for
from support.profiles import examples
from support.verdicts import snapshot_of, verdicts_from_cache
from thalweg_controlplane import Oracle

from flowcore.rules.filters import run_filters
from flowcore.rules.reasons.exclusion import way_out

ASPECTS = ("NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "InterPodAffinity")


def test_kube_scheduler_agrees(oracle: Oracle) -> None:
    """For objects that lack what the named filters read; pods of a drawn cluster with two filters named among them."""
    named = set[int]()

    @settings(max_examples=examples(40), phases=(Phase.generate,))
    @given(cases_for(ASPECTS))
    def agree(case: Case) -> None:
        snapshot = snapshot_of(case)
        for manifest, pod in zip(case.pending, snapshot.pending, strict=True):
            out = way_out(run_filters(pod.pod_class, snapshot, pod.signature))
            if out is None:
                continue
            named.add(len(out.filters))
            opened = {snapshot.table.nodes[at].name for at in out.nodes.nonzero()[0].tolist()}
            assert opened <= fitting(oracle, without(case, manifest, out.filters))
            for left in out.filters:
                less = tuple(name for name in out.filters if name != left)
                assert not fitting(oracle, without(case, manifest, less)), (out.filters, less)

    agree()
    assert named >= {1, 2}


def fitting(oracle: Oracle, case: Case) -> set[str]:
    """The nodes that kube-scheduler's default profile accepts for the one pending pod."""
    verdicts = oracle.judge(case.nodes, verdicts_from_cache(case), case.pending, [], case.namespaces, case.storage)[""]
    (by_node,) = verdicts.values()
    return {name for name, verdict in by_node.items() if verdict.fits}


def without(case: Case, pending: dict[str, Any], filters: tuple[str, ...]) -> Case:
    """The same cluster and this pod without what the filters read."""
    nodes, pods, waiting = deepcopy(case.nodes), deepcopy(case.pods), deepcopy(pending)
    for node in nodes:
        if "NodeUnschedulable" in filters:
            node["spec"].pop("unschedulable", None)
        if "TaintToleration" in filters:
            node["spec"].pop("taints", None)
        if "NodeResourcesFit" in filters:
            node["status"]["allocatable"] = dict(GENEROUS)
    for pod in (waiting, *pods):
        if "InterPodAffinity" in filters:
            for side in ("podAffinity", "podAntiAffinity"):
                (pod["spec"].get("affinity") or {}).pop(side, None)
    spec = waiting["spec"]
    if "NodeAffinity" in filters:
        spec.pop("nodeSelector", None)
        (spec.get("affinity") or {}).pop("nodeAffinity", None)
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        if "NodePorts" in filters:
            container.pop("ports", None)
        if "NodeResourcesFit" in filters:
            container.pop("resources", None)
    if "NodeResourcesFit" in filters:
        spec.pop("resources", None)
        spec.pop("overhead", None)
    return Case(nodes, pods, [waiting], case.namespaces, case.storage)
