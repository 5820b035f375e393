"""Hypothetical changes of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count

import msgspec

from flowcore.cluster.kinds import RESOURCE_SLICES, STORAGE_OBJECTS
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.nodes import Node, Report, Taint
from flowcore.model.pods import Pod
from flowcore.model.resource_slices import NodeReach, ResourceSlice
from flowcore.model.selectors import Labels, value_of
from flowcore.model.volumes import CsiNode
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.hypothetical.change_pods import evict
from flowcore.questions.scenario.hypothetical.changes import AddNodes, FailDomain, RemoveTaint
from flowcore.questions.scenario.near_names import did_you_mean
from flowcore.questions.scenario.reading.edits import Edits

#: Taints whose keys begin so say what state a node is in: a new node has none, and nobody tolerates them for one pod.
#: They are of the node controller, the cloud's, those of autoscalers (for nodes that come or go), and of Cilium.
STATE_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    *(f"{word}-taint.cluster-autoscaler.kubernetes.io/" for word in ("ignore", "startup", "status")),
    "karpenter.sh/",
    "node.cilium.io/",
)
_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
#: Labels that ``FailDomain`` may name by their last word.
_SHORT_LABELS = {each: f"topology.kubernetes.io/{each}" for each in ("zone", "region")}


def find_node(edits: Edits, name: str) -> Node:
    """A node by its name.

    Raises:
        UnknownName: there is none.
    """
    node = edits.scenario.cluster.nodes.get(name)
    if node is None:
        raise UnknownName("", f"there is no node {name}{did_you_mean(name, edits.scenario.cluster.nodes)}")
    return node


def cordon(edits: Edits, name: str, *, unschedulable: bool) -> None:
    """Cordons or uncordons a node."""
    node = find_node(edits, name)
    taints = tuple(taint for taint in node.taints if taint.key != _UNSCHEDULABLE.key)
    if unschedulable:
        taints = (*taints, _UNSCHEDULABLE)
    edits.put_node(msgspec.structs.replace(node, unschedulable=unschedulable, taints=taints))


def remove_taint(edits: Edits, change: RemoveTaint) -> None:
    """Takes taints off a node."""
    node = find_node(edits, change.node)
    kept = [taint for taint in node.taints if taint.key != change.key or change.effect not in ("", taint.effect)]
    if len(kept) == len(node.taints):
        near = did_you_mean(change.key, {taint.key for taint in node.taints})
        raise UnknownName("", f"node {change.node} has no taint {change.key}{near}")
    edits.put_node(msgspec.structs.replace(node, taints=tuple(kept)))


def drain(edits: Edits, name: str, context: AnswerContext) -> list[str]:
    """Cordons a node and evicts its pods; returns what would hold that up in a real cluster."""
    cordon(edits, name, unschedulable=True)
    leaving = [pod for pod in _on(edits, {name}) if not _is_permanent(pod)]
    notes = [f"node {name}: {each}" for each in hindrances(edits, leaving, context)]
    evict(edits, leaving, context.now)
    return notes


def hindrances(edits: Edits, leaving: Iterable[Pod], context: AnswerContext) -> list[str]:
    """Sentences on why evictions would take longer, or lose pods, in a real cluster."""
    staying = [pod for pod in leaving if not pod.deleting]
    budgets = edits.scenario.cluster.budgets.objects.values()
    texts = []
    for budget in budgets:
        protected = sum(budget.selects(pod.namespace, pod.labels) for pod in staying)
        if protected > budget.allowed and context.may_name(budget.key):
            texts.append(
                f"PodDisruptionBudget {budget.key} allows {budget.allowed} evictions now, and {protected} of its pods "
                "leave; the others wait until it allows more"
            )
    bare = [pod.key for pod in staying if not pod.owner]
    if bare:
        which = f"pod {context.name(bare[0])} has" if len(bare) == 1 else f"{len(bare)} pods have"
        texts.append(f"{which} no controller: nobody creates such a pod anew, though it is planned here")
    return texts


def remove(edits: Edits, names: Iterable[str], context: AnswerContext) -> None:
    """Nodes are gone with the pods that belong to them; other pods wait."""
    gone = set(names)
    for name in gone:
        find_node(edits, name)
    for pod in list(_on(edits, gone)):
        if _is_permanent(pod):
            edits.remove_pod(pod.key)
        else:
            evict(edits, [pod], context.now)
    for name in sorted(gone):
        edits.remove_node(name)


def nodes_of_domain(edits: Edits, change: FailDomain) -> list[str]:
    """Names of the nodes with a value of a label.

    Raises:
        UnknownName: there is none; the message names known values.
    """
    nodes = edits.scenario.cluster.nodes.values()
    values: Counter[str] = Counter()
    label = change.label
    for label in dict.fromkeys((change.label, _SHORT_LABELS.get(change.label, change.label))):
        values = Counter(value for node in nodes if (value := value_of(node.labels, label)) is not None)
        if values:
            break
    if not values:
        keys = {key for node in nodes for key, _ in node.labels}
        raise UnknownName("", f"no node has the label {label}{did_you_mean(label, keys)}")
    names = [node.name for node in nodes if value_of(node.labels, label) == change.value]
    if not names:
        known = sorted(values)
        shown = ", ".join(known[:5]) + (f" and {len(known) - 5} more" if len(known) > 5 else "")
        raise UnknownName("", f"no node has {label}={change.value}; there are {shown}")
    return names


def add(edits: Edits, change: AddNodes) -> list[str]:
    """Adds nodes; returns their names."""
    like = find_node(edits, change.like)
    permanent = [pod for pod in _on(edits, {like.name}) if _is_permanent(pod) and not pod.deleting]
    drivers = edits.scenario.cluster.storage.objects.get(("CSINode", "", like.name))
    published = edits.scenario.cluster.tainted_slices.published.values()
    slices = [each for each in published if each.reach.node_name == like.name]
    names = []
    for name in _new_names(edits, like.name, change.count):
        names.append(name)
        edits.put_node(as_new(like, name))
        if isinstance(drivers, CsiNode):
            edits.put_object(STORAGE_OBJECTS, msgspec.structs.replace(drivers, name=name))
        for resource_slice in slices:
            edits.put_object(RESOURCE_SLICES, as_new_slice(resource_slice, name))
        for pod in permanent:
            pod_name = f"{pod.name}-{name}"
            edits.put_pod(msgspec.structs.replace(pod, name=pod_name, uid=f"{pod.uid}-{name}", node_name=name))
    return names


def as_new(like: Node, name: str) -> Node:
    """A new node of the same shape: sound, schedulable, with its own name."""
    labels: Labels = tuple((key, name if key == HOSTNAME else value) for key, value in like.labels)
    taints = tuple(taint for taint in like.taints if not taint.key.startswith(STATE_TAINTS))
    return msgspec.structs.replace(
        like,
        name=name,
        uid=name,
        labels=labels,
        taints=taints,
        unschedulable=False,
        report=msgspec.structs.replace(like.report, images=()) if like.report.images else Report(),
    )


def as_new_slice(resource_slice: ResourceSlice, node: str) -> ResourceSlice:
    """The same devices, in a pool of a new node."""
    return msgspec.structs.replace(
        resource_slice,
        name=f"{resource_slice.name}-{node}",
        pool=f"{resource_slice.pool}-{node}",
        reach=NodeReach(node_name=node),
    )


def _new_names(edits: Edits, like: str, wanted: int) -> Iterator[str]:
    nodes, taken = edits.scenario.cluster.nodes, 0
    for number in count(1):
        if taken == wanted:
            return
        name = f"{like}-new-{number}"
        if name not in nodes:
            taken += 1
            yield name


def _is_permanent(pod: Pod) -> bool:
    return pod.permanent or pod.static


def _on(edits: Edits, names: set[str]) -> list[Pod]:
    """Pods that hold room on these nodes."""
    return [pod for pod in edits.scenario.running() if pod.node_name in names]
