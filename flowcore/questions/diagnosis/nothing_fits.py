"""A pod that no node takes even if no other pod waits: the filters that prove it, and the shortest way out."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.cluster.running import leaving_for
from flowcore.model.resources import PODS
from flowcore.questions.diagnosis.answers import WhyKind
from flowcore.questions.diagnosis.claimed_devices import claimed_devices
from flowcore.questions.diagnosis.evidence import in_the_way, step_for_claims
from flowcore.questions.diagnosis.finding import Finding, UnplacedCase
from flowcore.questions.diagnosis.fixes.proposals.closed_pools import asked_devices, closed_nodes
from flowcore.questions.diagnosis.kept_pods import kept_there
from flowcore.questions.diagnosis.lists import listed
from flowcore.questions.diagnosis.missing_dependencies import missing_device_classes, missing_storage
from flowcore.questions.diagnosis.near_labels import missing_labels
from flowcore.rules.devices.pod_claims import ClaimRejection
from flowcore.rules.filters import (
    Verdicts,
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resource_topology,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    policy_constraints,
    taint_eviction,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from flowcore.rules.filters.registry import NODE_UNREADABLE
from flowcore.rules.reasons.exclusion import WayOut, smallest_exclusion, way_out
from flowcore.rules.reasons.preemption import only_lacks_room, too_small, why_nobody_leaves
from flowcore.rules.reasons.shortage import best_node, lacking

#: What to do about each filter.
STEPS = {
    NODE_UNREADABLE: "Mend the node's status.allocatable.",
    node_unschedulable.NAME: "Uncordon a node.",
    node_name.NAME: "Drop spec.nodeName.",
    taint_toleration.NAME: "Tolerate the taint, or remove it.",
    node_affinity.NAME: "Relax its nodeSelector or node affinity, or label a node.",
    node_ports.NAME: "Ask for another host port, or for none.",
    node_resources_fit.NAME: "Ask for less, or add a node with more room.",
    volume_restrictions.NAME: "Use a claim of its own, or stop the pod that holds the disk or the claim.",
    node_volume_limits.NAME: "Add a node: those that are there have as many volumes as they can.",
    volume_binding.NAME: "Mend its volume claims, or add a node where the volumes can be.",
    volume_zone.NAME: "Add a node in the zone of its volumes.",
    pod_topology_spread.NAME: "Raise maxSkew, or add nodes to the domains with few of these pods.",
    inter_pod_affinity.NAME: "Relax its pod affinity or anti-affinity, or those of the pods that run.",
    dynamic_resources.NAME: "Mend its resource claims, free devices, or add a node that has them.",
    node_declared_features.NAME: "Add a node whose kubelet declares what the pod needs.",
    taint_eviction.NAME: "Tolerate the NoExecute taint without tolerationSeconds, or remove it.",
    node_resource_topology.NAME: "Ask for less, or add a node with a NUMA zone that has room.",
    policy_constraints.NAME: "Raise what the constraint allows, or drop it.",
}


def nothing_fits(pod: UnplacedCase) -> Finding:
    """The finding for a pod that no node takes."""
    verdicts = pod.after
    # Only callers who may read nodes get the labels of nodes.
    missing = missing_labels(pod.unplaced.pod.pod_class, verdicts.table.nodes) if pod.context.nodes else []
    lacking = [
        absent
        for kind in (missing_storage, missing_device_classes)
        for absent in kind(pod.scenario, pod.scenario.cluster.pods[pod.key], pod.context)
    ]
    evidence = [*(each.text for each in missing), *(each.text for each in lacking), *keeps_out(pod)]
    evidence.extend(excluding_filters(verdicts))
    out, step = _way_out(pod), "Add nodes."
    if out is not None:
        nodes = np.flatnonzero(out.nodes)
        by_room = node_resources_fit.NAME in out.filters
        nearest = best_node(pod.unplaced.pod.pod_class, pod.plan.result.after, nodes) if by_room else int(nodes[0])
        evidence.append(_opens(pod, out, nearest))
        if by_room:
            evidence.extend(kept_there(pod, nearest))
        step = " ".join(STEPS[name] for name in out.filters)
        if _closed(pod)[out.nodes].all():
            step = "Add nodes: those that are left are for other pods."
    evidence.extend(nobody_leaves(pod))
    if of_claims := step_for_claims(pod):
        step = of_claims
    if pod.unplaced.frees:
        step = "Wait: it is planned anew once that is done."
    elif lacking:
        step = lacking[0].step
    elif missing:
        wrong = missing[0]
        right = f"{wrong.near_label}={wrong.near_value}"
        asked = f"{wrong.label}={wrong.value}"
        step = (
            f"Ask for {right}, not {asked}."
            if wrong.near_label
            else f"Label a node with {asked}, or do not ask for it."
        )
    return Finding(WhyKind.NOTHING_FITS, pod.unplaced.reason, tuple(evidence), step)


def keeps_out(pod: UnplacedCase) -> list[str]:
    """What is in the pod's way, by name, and which devices its claims lack."""
    out, decide = _way_out(pod), smallest_exclusion(pod.after).filters
    filters = {*decide, *(out.filters if out is not None else ())}
    devices = claimed_devices(pod) if dynamic_resources.NAME in decide else ()
    return [*in_the_way(pod, filters), *devices]


def _way_out(pod: UnplacedCase) -> WayOut | None:
    small = too_small(pod.unplaced.pod.pod_class, pod.plan.result.after)
    return way_out(pod.after, small | _closed(pod))


def _closed(pod: UnplacedCase) -> Bools:
    """bool[N]: nodes of the control plane, and those with devices that it does not ask for."""
    asked = asked_devices([pod.scenario.cluster.pods[pod.key]])
    return closed_nodes(pod.unplaced.pod.pod_class, asked, pod.plan.result.after)


def excluding_filters(verdicts: Verdicts) -> tuple[str, ...]:
    """A sentence that names the fewest filters that reject every node, with counts; () where a node fits."""
    exclusion, total = smallest_exclusion(verdicts), len(verdicts.table.nodes)
    if not exclusion.filters:
        return ()
    parts = [
        f"{name} rejects {count} of {total} nodes"
        for name, count in zip(exclusion.filters, exclusion.nodes, strict=True)
    ]
    if len(parts) == 1:
        return (f"{parts[0]}; no other filter is needed to exclude them all.",)
    return (f"{'; '.join(parts)}. Fewer filters do not exclude them all.",)


def nobody_leaves(pod: UnplacedCase) -> tuple[str, ...]:
    """Why no running pod leaves for it; () where room would not help."""
    running, claiming = pod.plan.before.running, pod.unplaced.pod.pod_class.devices
    if claiming is not None:
        claims = dynamic_resources.claimable_devices(pod.plan.result.after).claims_of(claiming)
        if isinstance(claims, ClaimRejection):
            return ()  # whoever leaves, it cannot use its claims
    if running is None or not only_lacks_room(pod.unplaced.pod.pod_class, pod.after, pod.plan.result.after):
        return ()
    if pod.unplaced.pod.waits_for_leavers:
        waiting = pod.scenario.cluster.pods[pod.key]
        who = [each.key for each in leaving_for(pod.scenario.cluster, waiting)]
        leave = "leaves" if len(who) == 1 else "leave"
        return (f"{listed(who)} {leave} node {waiting.nominated_node} already, for which it is nominated.",)
    reason = why_nobody_leaves(pod.unplaced.pod, pod.policy, running, pod.context.now, pod.plan.result.after)
    if reason in pod.unplaced.reason:
        return ()  # it is said already
    return (f"No running pod leaves for it: {reason}.",)


def _opens(pod: UnplacedCase, out: WayOut, nearest: int) -> str:
    count = int(out.nodes.sum())
    node = pod.after.table.nodes[nearest]
    details = [detail for name in out.filters if (detail := _detail(pod, name, nearest))]
    where = f"{count} nodes would take it, such as {node.name}" if count > 1 else f"{node.name} would take it"
    lacks = f" ({'; '.join(details)})" if details else ""
    return f"Without {listed(out.filters)}, {where}{lacks}."


def _detail(pod: UnplacedCase, name: str, position: int) -> str:
    """What a filter has against a node, in amounts and names."""
    if name == node_resources_fit.NAME:
        return f"it lacks {listed(_lacking(pod, position))}"
    if name == taint_toleration.NAME:
        return f"its taint is {pod.untolerated_taint(position)}"
    return ""


def _lacking(pod: UnplacedCase, position: int) -> list[str]:
    lacks = lacking(pod.unplaced.pod.pod_class, pod.plan.result.after, position)
    return [
        "room for one more pod" if each.resource == PODS else f"{each.amount_text} {each.resource}" for each in lacks
    ]
