"""What a waiting pod, a node or a policy may give up so that a node takes the pod: one rule, one amount, one cordon.

A relaxation first lifts what it is about from the pod, which filters judge at once for all nodes. Where that helps it
settles on the smallest change: the amount that suffices, the node that takes the pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import numpy as np

from flowcore.cluster.arrays.node_matching import tolerates
from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.model.amount_text import written_amount
from flowcore.model.constraint_limits import display_name
from flowcore.model.constraints import Conflict, Exclusive
from flowcore.model.inter_pod_constraints import InterPodConstraints, MaxPerDomain
from flowcore.model.nodes import Taint
from flowcore.model.pods import Pod, Toleration
from flowcore.questions.diagnosis.fixes.proposals.closed_pools import asked_devices, is_closed
from flowcore.questions.diagnosis.fixes.proposals.waiting_pods import Wanted
from flowcore.questions.diagnosis.near_labels import missing_labels
from flowcore.questions.scenario.hypothetical.change_nodes import STATE_TAINTS
from flowcore.questions.scenario.hypothetical.changed_specs import with_changed_spec
from flowcore.questions.scenario.hypothetical.changes import (
    Change,
    DropNodeSelector,
    DropPodRules,
    HonorTaints,
    RaiseCap,
    RemoveTaint,
    ReplaceNodeLabel,
    Request,
    Tolerate,
    Uncordon,
)
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.topology.domain_limits import UNLIMITED, counts_itself, limit_counter
from flowcore.rules.topology.domains import Domains

_CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
#: Most taints that are tried, and most nodes that one fix changes.
_MAX_TAINTS, _MAX_NODES = 16, 8


@dataclass(frozen=True, slots=True)
class Site:
    """Where lifted pods fit.

    Attributes:
        wanted: the pods as they are.
        lifted: the same after all relaxations.
        mask: bool[N], nodes that take a lifted pod.
        node: the node that is best for one pod.
    """

    snapshot: Snapshot
    wanted: Wanted
    lifted: Wanted
    mask: Bools
    node: int


class Relaxation(Protocol):
    """Something that a pod, a node or a policy may give up so that a node takes the pod."""

    def lift(self, wanted: Wanted) -> Wanted:
        """The pods without what this is about."""

    def prefers(self, wanted: Wanted, snapshot: Snapshot) -> Int64s | None:
        """int64[N]: the smaller, the less must be given up for one pod on a node; None: all are alike.

        Nodes that it cannot settle on have the largest value.
        """

    def settle(self, site: Site) -> list[Change]:
        """The changes; (): it cannot be done there."""


NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class WithoutRule:
    """A waiting pod gives up a rule, or has another one.

    Attributes:
        change: for any pod.
    """

    change: Tolerate | DropNodeSelector | ReplaceNodeLabel | DropPodRules | HonorTaints

    def lift(self, wanted: Wanted) -> Wanted:
        """The pods without what is given up."""
        return wanted.with_pod(with_changed_spec(wanted.pod, self.change))

    def prefers(self, wanted: Wanted, snapshot: Snapshot) -> Int64s | None:
        """int64[N]: how much one pod on each node must have given up; None: all nodes are alike."""

    def settle(self, site: Site) -> list[Change]:
        """The smallest changes for this site; none: it cannot be done there."""
        return self.for_all(site.wanted)

    def for_all(self, wanted: Wanted) -> list[Change]:
        """The changes of all these pods."""
        return [msgspec.structs.replace(self.change, pod=key) for key in wanted.keys]


@dataclass(frozen=True, slots=True)
class LessRequested:
    """A waiting pod asks for less of a resource."""

    resource: str

    def lift(self, wanted: Wanted) -> Wanted:
        """The pods without what is given up."""
        return wanted.with_pod(with_changed_spec(wanted.pod, Request(wanted.pod.key, self.resource, 0)))

    def prefers(self, wanted: Wanted, snapshot: Snapshot) -> Int64s | None:
        """int64[N]: how much one pod on each node must have given up; None: all nodes are alike."""
        if self.resource not in snapshot.resources:
            return None
        asked = dict(wanted.pod.pod_class.requests)[self.resource]
        free = snapshot.free[:, snapshot.resources.index(self.resource)]
        # In thousandths of what is asked for, so that resources can be summed.
        short = np.clip(asked - np.maximum(free, 0), 0, None)
        lacking: Int64s = (short.astype(np.float64) * 1000 / asked).astype(np.int64)
        return lacking

    def settle(self, site: Site) -> list[Change]:
        """The smallest changes for this site; none: it cannot be done there."""
        amount = 0
        if self.resource in site.snapshot.resources:
            column = site.snapshot.resources.index(self.resource)
            asked = dict(site.wanted.pod.pod_class.requests)[self.resource]
            if len(site.wanted.keys) == 1:
                amount = max(0, min(asked, int(site.snapshot.free[site.node, column])))
            else:
                amount = self._for_all(site, column, asked)
        amount = written_amount(self.resource, amount)
        # A pod that gives a resource up altogether would not do its work.
        return [Request(key, self.resource, amount) for key in site.wanted.keys] if amount else []

    def _for_all(self, site: Site, column: int, asked: int) -> int:
        """The largest amount with which all pods fit by their requests; 0: there is none."""
        snapshot, least, most = site.snapshot, 0, asked
        free, others = snapshot.free[site.mask], snapshot.vector(site.lifted.pod.pod_class.requests)
        while least < most:
            middle = (least + most + 1) // 2
            others[column] = middle
            if int(count_fitting(others, free).sum()) >= len(site.wanted.keys):
                least = middle
            else:
                most = middle - 1
        return least


@dataclass(frozen=True, slots=True)
class OpenNode:
    """A node gives up its cordon, or a taint.

    Attributes:
        taint: of the nodes.
    """

    taint: Taint

    def lift(self, wanted: Wanted) -> Wanted:
        """The pods without what is given up."""
        added = Toleration(self.taint.key, "Equal", self.taint.value, self.taint.effect)
        tolerations = (*wanted.pod.pod_class.tolerations, added)
        pod_class = msgspec.structs.replace(wanted.pod.pod_class, tolerations=tolerations)
        return wanted.with_pod(msgspec.structs.replace(wanted.pod, pod_class=pod_class))

    def prefers(self, wanted: Wanted, snapshot: Snapshot) -> Int64s | None:  # noqa: ARG002 - open to all alike
        """int64[N]: how much one pod on each node must have given up; None: all nodes are alike."""
        preferred: Int64s = np.where(self._has(snapshot), 0, NEVER)
        return preferred

    def settle(self, site: Site) -> list[Change]:
        """The smallest changes for this site; none: it cannot be done there."""
        nodes = site.snapshot.table.nodes
        if len(site.wanted.keys) == 1:
            chosen = [site.node]
        else:
            chosen = _enough_nodes(site, self._has(site.snapshot) & site.mask)
        if self.taint == _CORDON:
            return [Uncordon(nodes[row].name) for row in chosen]
        return [RemoveTaint(nodes[row].name, self.taint.key, self.taint.effect) for row in chosen]

    def _has(self, snapshot: Snapshot) -> Bools:
        table = snapshot.table
        tainted = np.array([self.taint in taints for taints in table.taint_sets], dtype=np.bool_)[table.taint_codes]
        return tainted | table.unschedulable if self.taint == _CORDON else tainted


def _enough_nodes(site: Site, mask: Bools) -> list[int]:
    """The fewest nodes that take all pods beside the open nodes, at most ``most``."""
    counts = count_fitting(site.snapshot.vector(site.lifted.pod.pod_class.requests), site.snapshot.free)
    order = np.argsort(-np.where(mask, counts, -1), kind="stable")[:_MAX_NODES].tolist()
    chosen, room = [], 0
    for position in order:
        if not mask[position] or room >= len(site.wanted.keys):
            break
        chosen.append(position)
        room += int(counts[position])
    return chosen


@dataclass(frozen=True, slots=True)
class HigherCap:
    """A constraint of a policy lets more pods into a domain.

    Attributes:
        name: of the constraint as limits have it.
    """

    policy: str
    constraint: str
    name: str

    def lift(self, wanted: Wanted) -> Wanted:
        """The pods without what is given up."""
        rules = wanted.signature.constraints or InterPodConstraints()
        limits = tuple(
            msgspec.structs.replace(limit, max_pods=UNLIMITED) if self.concerns(limit) else limit
            for limit in rules.limits
        )
        signature = msgspec.structs.replace(wanted.signature, constraints=msgspec.structs.replace(rules, limits=limits))
        return replace(wanted, signature=signature)

    def concerns(self, limit: MaxPerDomain) -> bool:
        """Whether a limit is the constraint's, and one that can be raised."""
        return limit.constraint == self.name and bool(limit.topology_key) and limit.max_pods > 0

    def prefers(self, wanted: Wanted, snapshot: Snapshot) -> Int64s | None:
        """int64[N]: how much one pod on each node must have given up; None: all nodes are alike."""
        return self._counts(wanted, snapshot)

    def _limit(self, wanted: Wanted) -> MaxPerDomain:
        rules = wanted.signature.constraints or InterPodConstraints()
        return next(limit for limit in rules.limits if self.concerns(limit))

    def _counts(self, wanted: Wanted, snapshot: Snapshot) -> Int64s:
        """int64[N]: how many pods that the limit counts are in each node's domain."""
        limit = self._limit(wanted)
        return limit_counter(limit, snapshot.pod_index, snapshot.table).initial_by_node

    def settle(self, site: Site) -> list[Change]:
        """The smallest changes for this site; none: it cannot be done there."""
        limit, counts = self._limit(site.wanted), self._counts(site.wanted, site.snapshot)
        own = int(counts_itself(limit, site.wanted.signature, site.snapshot.pod_index.namespaces))
        value = int(counts[site.node]) + own
        if own and len(site.wanted.keys) > 1:
            codes = Domains.unordered(limit.topology_key, site.snapshot.table).codes
            _, first = np.unique(codes[site.mask], return_index=True)
            running = counts[site.mask][first]
            while int(np.maximum(value - running, 0).sum()) < len(site.wanted.keys):
                value += 1
        return [RaiseCap(self.policy, self.constraint, value)] if value > limit.max_pods else []


def relaxations(wanted: Wanted, snapshot: Snapshot) -> Iterator[Relaxation]:
    """All that may be given up for these pods, the smallest changes first."""
    pod = wanted.pod
    taints = _taints(pod, snapshot)
    yield from (WithoutRule(Tolerate("", taint.key, taint.value, taint.effect)) for taint in taints)
    if snapshot.table.unschedulable.any() and not tolerates(pod.pod_class.tolerations, _CORDON):
        yield OpenNode(_CORDON)
    for missing in missing_labels(pod.pod_class, snapshot.table.nodes):
        if missing.near_label:
            yield WithoutRule(
                ReplaceNodeLabel("", missing.label, missing.value, missing.near_label, missing.near_value)
            )
    yield from (WithoutRule(DropNodeSelector("", label)) for label in _labels(pod))
    yield from (LessRequested(resource) for resource, amount in pod.pod_class.requests if amount > 0)
    yield from (WithoutRule(HonorTaints("", key)) for key in _counts_tainted_nodes(pod))
    yield from (WithoutRule(DropPodRules("", rules, key)) for rules, key in _rules(pod))
    for constraint in wanted.policy.constraints:
        if isinstance(constraint, Conflict | Exclusive) and constraint.max_per_domain:
            cap = HigherCap(wanted.policy.name, constraint.name, display_name(constraint, wanted.policy))
            if any(cap.concerns(limit) for limit in (wanted.signature.constraints or InterPodConstraints()).limits):
                yield cap
    yield from (OpenNode(taint) for taint in taints)


def _taints(pod: Pod, snapshot: Snapshot) -> Sequence[Taint]:
    """Hard taints of nodes that the pod does not tolerate and might, those that most nodes have first."""
    table = snapshot.table
    counts = np.bincount(table.taint_codes, minlength=len(table.taint_sets)).tolist()
    nodes: dict[Taint, int] = {}
    for taints, count in zip(table.taint_sets, counts, strict=True):
        for taint in taints:
            wanted = taint.keeps_out and not taint.key.startswith(STATE_TAINTS)
            if wanted and count and not tolerates(pod.pod_class.tolerations, taint):
                nodes[taint] = nodes.get(taint, 0) + count
    commonest = sorted(nodes, key=lambda taint: (-nodes[taint], taint.key, taint.value, taint.effect))[:_MAX_TAINTS]
    asked = asked_devices([pod])
    return [taint for taint in commonest if not is_closed(taint, asked, snapshot)]


def _labels(pod: Pod) -> list[str]:
    """Labels of nodes that the pod requires something of."""
    keys = [key for key, _ in pod.pod_class.node_selector]
    for term in pod.pod_class.required_affinity or ():
        keys += [requirement.key for requirement in term.expressions]
    return list(dict.fromkeys(keys))


def _counts_tainted_nodes(pod: Pod) -> list[str]:
    """Topology keys of the pod's spread constraints that count nodes whose taints it does not tolerate."""
    rules = pod.constraints.spread if pod.constraints is not None else ()
    return list(dict.fromkeys(rule.topology_key for rule in rules if not rule.honors_taints))


def _rules(pod: Pod) -> list[tuple[str, str]]:
    """The kinds and the topology keys of the pod's required rules about other pods."""
    if pod.constraints is None:
        return []
    keys = [("spread", rule.topology_key) for rule in pod.constraints.spread]
    keys += [("antiAffinity", rule.topology_key) for rule in pod.constraints.anti_affinity]
    keys += [("affinity", rule.topology_key) for rule in pod.constraints.affinity]
    return list(dict.fromkeys(keys))
