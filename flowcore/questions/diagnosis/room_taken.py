"""A pod for which there was room before the plan: who has the room, and how much more it costs to leave them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.costs.shares.shares import Shares
from flowcore.model.workloads import workload_of
from flowcore.planning.problem.result import Placement
from flowcore.questions.diagnosis.answers import WhyKind
from flowcore.questions.diagnosis.evidence import in_the_way, step_for_claims
from flowcore.questions.diagnosis.finding import Finding, UnplacedCase
from flowcore.questions.diagnosis.lists import listed_pods
from flowcore.rules.filters import node_ports, node_resources_fit
from flowcore.rules.filters.registry import PORTS, RESOURCES, run_filter
from flowcore.rules.reasons.exclusion import smallest_exclusion

#: Nodes on which the pods are looked for that leave most cheaply; and those where every filter must be asked again.
_MAX_NODES, _MAX_FILTERED = 256, 4
#: Filters that pods on the same node decide, by what they hold.
_HELD = (node_ports.NAME, node_resources_fit.NAME)


@dataclass(frozen=True, slots=True)
class Takers:
    """Placements on one node without which the pod would fit there; it fits beside no smaller part of them gone.

    Attributes:
        price: what leaving all of them would cost.
    """

    node: str
    placements: tuple[Placement, ...]
    price: int


def room_taken(pod: UnplacedCase) -> Finding | None:
    """The finding for a pod that fitted before the plan; None: it did not fit."""
    if not pod.before.fits.any():
        return None
    cheapest = takers(pod)
    # A priority would take the volume of another pod: a volume is missing.
    higher = step_for_claims(pod) or "Give it a higher priority, or add room."
    in_its_way = in_the_way(pod, smallest_exclusion(pod.after).filters)
    if cheapest is None:
        count = int(pod.before.fits.sum())
        some = "1 node" if count == 1 else f"{count} nodes"
        evidence = [f"Before the plan {some} had room for it.", *in_its_way]
        return Finding(WhyKind.ROOM_TAKEN, pod.unplaced.reason, tuple(evidence), higher)
    who = [placement.pod.key for placement in cheapest.placements]
    has = "has" if len(who) == 1 else "have"
    evidence = [f"{listed_pods(who, pod.context)} {has} its room on {cheapest.node}.", _comparison(pod, cheapest)]
    evidence += in_its_way
    it = "it" if len(who) == 1 else "them"
    details = (f"To leave {it} costs {cheapest.price}, and to leave this pod {pod.unplaced.price}.",)
    if share := _share(pod, cheapest):
        wait = "Wait until pods of the queue end, or give it a higher weight."
        return Finding(WhyKind.SHARE, pod.unplaced.reason, (share, *evidence), wait, details)
    return Finding(WhyKind.ROOM_TAKEN, pod.unplaced.reason, tuple(evidence), higher, details)


def _comparison(pod: UnplacedCase, taken: Takers) -> str:
    """Why they have the room and not the pod, in words; what both cost is in the details."""
    own, others = pod.unplaced.pod, [placement.pod for placement in taken.placements]
    it, has = ("It", "has") if len(others) == 1 else ("They", "have")
    pods = pod.scenario.cluster.pods
    own_workload = workload_of(pods[own.key])
    if all(workload_of(pods[other_pod.key]) == own_workload for other_pod in others):
        are = "It is another pod" if len(others) == 1 else "They are other pods"
        return f"{are} of {own_workload}: which of them waits is all the same."
    priorities = [other_pod.pod_class.priority for other_pod in others]
    priority = own.pod_class.priority
    if max(priorities) > priority:
        whose = "Its priority is" if len(others) == 1 else "Their highest priority is"
        return f"{whose} {max(priorities)}, that of this pod {priority}."
    if min(priorities) == max(priorities) == priority:
        if all(other_pod.waiting_since < own.waiting_since for other_pod in others):
            return f"{it} {has} the same priority and came earlier."
        if taken.price > pod.unplaced.price:
            return f"{it} {has} the same priority, and the plan counts their waiting for more."
        return f"{it} {has} the same priority, and with {it.lower().replace('they', 'them')} there the plan costs less."
    return "More of the pods have a node this way, or the plan costs less."


def takers(pod: UnplacedCase) -> Takers | None:
    """The placements whose leaving costs least; None: no node would take the pod for those on it alone."""
    by_node: dict[str, list[Placement]] = defaultdict(list)
    for placement in pod.plan.result.placements:
        by_node[placement.node].append(placement)
    table = pod.plan.result.after.table
    possible = [
        name
        for row in np.flatnonzero(pod.before.fits & ~pod.after.fits).tolist()
        if (name := table.nodes[row].name) in by_node
    ]
    possible.sort(key=lambda name: min(each.unscheduled_price for each in by_node[name]))
    groups: dict[str, list[Placement]] = defaultdict(list)
    for placement in pod.plan.result.placements:
        if placement.atomic_group and not placement.optional:
            groups[placement.atomic_group].append(placement)
    held, filtered = _by_what_is_held(pod), 0
    best: Takers | None = None
    for name in possible[:_MAX_NODES]:
        if not held[table.index[name]]:
            filtered += 1
            if filtered > _MAX_FILTERED:
                continue
        fits = _FitsWithout(pod, name, only_held=bool(held[table.index[name]]))
        candidate = _on_node(fits, name, by_node[name], groups)
        if candidate is not None and (best is None or candidate.price < best.price):
            best = candidate
    return best


def _by_what_is_held(pod: UnplacedCase) -> Bools:
    """bool[N]: nodes that reject the pod for what other pods hold there, and for nothing else."""
    fitting = np.ones(len(pod.after.table.nodes), dtype=np.bool_)
    for name, rejections in pod.after.by_filter:
        for rejection in rejections if name not in _HELD else ():
            fitting &= ~rejection.nodes
    return fitting


class _FitsWithout:
    """Whether a pod fits on a node without some of the pods that the plan placed there."""

    def __init__(self, pod: UnplacedCase, node: str, *, only_held: bool) -> None:
        self._pod, self._only_held = pod, only_held
        after = pod.plan.result.after
        row = after.table.index[node]
        #: Only the node, where the pods on other nodes do not matter.
        self._snapshot = after.of_nodes(np.array([row])) if only_held else after
        self._at = 0 if only_held else row

    def __call__(self, gone: Sequence[Placement]) -> bool:
        snapshot, pending = _without(self._snapshot, gone), self._pod.unplaced.pod
        if not self._only_held:
            return bool(self._pod.verdicts(snapshot).fits[self._at])
        return not any(
            rejection.nodes.any()
            for which in (PORTS, RESOURCES)
            for rejection in run_filter(which, pending.pod_class, pending.signature, snapshot)
        )


def _on_node(
    fits: _FitsWithout, node: str, placed: Sequence[Placement], groups: Mapping[str, Sequence[Placement]]
) -> Takers | None:
    """The placements of a node that have to be left, cheapest first; a gang's pods with the rest of what it needs."""

    def price(placement: Placement) -> int:
        others = groups.get(placement.atomic_group, ()) if not placement.optional else ()
        return sum(each.unscheduled_price for each in others) or placement.unscheduled_price

    ordered = sorted(placed, key=lambda placement: (price(placement), placement.pod.key))
    gone: list[Placement] = []
    for placement in ordered:
        gone.append(placement)
        if fits(gone):
            break
    else:
        return None
    for placement in reversed(gone[:-1]):  # the dearest first
        rest = [each for each in gone if each is not placement]
        if fits(rest):
            gone = rest
    names = dict.fromkeys(each.atomic_group for each in gone if each.atomic_group and not each.optional)
    total = sum(price(groups[name][0]) for name in names)
    total += sum(each.unscheduled_price for each in gone if not each.atomic_group or each.optional)
    return Takers(node, tuple(gone), total)


def _without(snapshot: Snapshot, placements: Sequence[Placement]) -> Snapshot:
    """A snapshot without some of the pods that the plan placed."""
    used, assumed = snapshot.used.copy(), snapshot.non_zero_requested.copy()
    ports = dict(snapshot.ports)
    for placement in placements:
        row, pod_class = snapshot.table.index[placement.node], placement.pod.pod_class
        used[row] -= snapshot.vector(pod_class.requests)
        assumed[row] -= pod_class.non_zero_requests
        if row in ports:
            ports[row] -= set(pod_class.host_ports)
    index = snapshot.pod_index.with_changes((), ((each.node, each.pod.signature) for each in placements))
    return replace(snapshot, used=used, non_zero_requested=assumed, ports=ports, pod_index=index)


def _share(pod: UnplacedCase, taken: Takers) -> str:
    """Says that a pod waits since its queue has its share and others have theirs; "" where priorities decide."""
    pending, placed = pod.unplaced.pod, pod.plan.result.placements
    name, priority = pending.queue, pending.pod_class.priority
    if not name or any(placement.pod.pod_class.priority > priority for placement in taken.placements):
        return ""
    if all(each.pod.queue in ("", name) or each.pod.pod_class.priority > priority for each in placed):
        return ""
    before, after = Shares(pod.plan.before), Shares(pod.plan.result.after)
    if name not in after.held:
        return ""
    fair, held = before.fair_share[name], after.dominant(after.held[name])
    if after.dominant(after.held[name] + after.added_by(pending)) <= fair:
        return ""
    return (
        f"FlowQueue {name} has {held:.1%} of what queues share, and with this pod more than its fair share, {fair:.1%}."
    )
