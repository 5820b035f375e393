"""A running pod that another node takes: where it left, a waiting pod has a slot, room, a port, a disk or a domain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.cluster.running import immovable_reason
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.pod_index import AffinityMatch, PodMatch, PodSignature, SpreadMatch
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.model.volumes import ZONE
from flowcore.questions.diagnosis.fixes.proposals.waiting_pods import Judge, Wanted
from flowcore.questions.scenario import GovernedScenario, Scenario
from flowcore.questions.scenario.hypothetical.changes import MovePod
from flowcore.rules.filters import node_ports, node_resources_fit, run_filters, volume_filters
from flowcore.rules.filters.registry import EASED_BY_LEAVING
from flowcore.rules.other_pods import Leaver, with_pod, without_pods
from flowcore.rules.topology.domain_limits import limit_match

#: Nodes on which pods are looked at, pods that are thought away one by one, and nodes that each might go to.
_MAX_NODES, _MAX_PODS, _MAX_TARGETS = 64, 24, 4
#: Filters that may take a node again once a pod has left. Of these: what amounts decide, and what volumes decide; the
#: others are rules between pods.
_EASED = EASED_BY_LEAVING | {node_resources_fit.NAME}
_BY_AMOUNTS = frozenset((node_ports.NAME, node_resources_fit.NAME))
_BY_VOLUMES = _EASED.intersection(volume_filters.NAMES)


def moves(
    scenario: Scenario, wanted: Wanted, judge: Judge, running: RunningPods, leaving: Collection[str]
) -> Iterator[MovePod]:
    """Moves of one pod each, the least important and smallest pods first.

    Each lets filters take a waiting pod, and the moved pod on its new node. Only pods whose controller creates them
    anew are moved, and none that a PodDisruptionBudget protects now.

    Args:
        running: pods that run now.
        leaving: keys of the pods that leave in the plan.
    """
    snapshot, governed = judge.snapshot, GovernedScenario(scenario)
    in_the_way = _InTheWay(wanted, judge)
    candidates = [
        each
        for each in running.pods
        if each.key not in leaving and in_the_way(each) and _may_move(scenario, each, running)
    ]
    candidates.sort(key=lambda each: (each.priority, in_the_way.part_of_requests(each), each.key))
    for runs in candidates[:_MAX_PODS]:
        moved = msgspec.structs.replace(scenario.cluster.pods[runs.key], pod_class=runs.pod_class)
        room = without_pods(snapshot, [Leaver.of(runs)])
        if not run_filters(wanted.pod.pod_class, room, wanted.signature).fits.any():
            continue
        signature = with_policy_constraints(moved.signature, governed.policy_of(moved), snapshot.pod_index.services)
        elsewhere = run_filters(moved.pod_class, room, signature).fits
        elsewhere[snapshot.table.index[runs.node]] = False
        for row in _targets(elsewhere, room):
            beside = with_pod(room, moved.pod_class, moved.signature, row)
            if run_filters(wanted.pod.pod_class, beside, wanted.signature).fits.any():
                yield MovePod(runs.key, snapshot.table.nodes[row].name)
                break


class _InTheWay:
    """Says at once of a running pod whether its leaving may be enough: what it does not rule out is to be asked."""

    def __init__(self, wanted: Wanted, judge: Judge) -> None:
        verdicts, snapshot = judge.verdicts(wanted), judge.snapshot
        self._snapshot, self._requests = snapshot, snapshot.vector(wanted.pod.pod_class.requests)
        self._asked = self._requests > 0
        names = {name for name, _ in verdicts.by_filter}
        eased = ~verdicts.rejected_by(names - _EASED) & ~verdicts.fits
        self._by_amounts = verdicts.rejected_by(_BY_AMOUNTS)
        self._by_volumes = verdicts.rejected_by(_BY_VOLUMES)
        self._by_rules = verdicts.rejected_by(_EASED - _BY_AMOUNTS - _BY_VOLUMES)
        self._concerns = _concerned_by(wanted.signature, snapshot)
        #: Whether a rule alone closes a node, so that pods of other nodes may be in the way.
        self._far = bool((eased & self._by_rules & ~self._by_amounts & ~self._by_volumes).any())
        rows = np.flatnonzero(eased)
        asked = self._asked
        short = np.maximum(self._requests - snapshot.free[rows], 0)[:, asked] / self._requests[asked]
        nearest = rows[np.argsort(short.max(axis=1), kind="stable")[:_MAX_NODES]]
        self._rows = {snapshot.table.nodes[row].name: row for row in nearest.tolist()}

    def __call__(self, pod: RunningPod) -> bool:
        if self._far and self._concerns(pod.signature):
            return True
        row = self._rows.get(pod.node)
        if row is None:
            return False
        asked, usage = self._asked, self._snapshot.vector(pod.usage)
        enough = not self._by_amounts[row] or bool(
            (self._snapshot.free[row][asked] + usage[asked] >= self._requests[asked]).all()
        )
        volumes = not self._by_volumes[row] or bool(pod.pod_class.volumes)
        rules = not self._by_rules[row] or self._concerns(pod.signature)
        return enough and volumes and rules

    def part_of_requests(self, pod: RunningPod) -> float:
        """How much of what the waiting pod asks for a pod uses, of the resource of which it is most."""
        asked = self._asked
        return float((self._snapshot.vector(pod.usage)[asked] / self._requests[asked]).max())


def _concerned_by(own: PodSignature, snapshot: Snapshot) -> Callable[[PodSignature], bool]:
    """Whether rules of a waiting pod may count a running one, or a rule of that one the waiting pod."""
    rules, namespaces = own.constraints, snapshot.pod_index.namespaces
    matches: list[PodMatch] = []
    if rules is not None:
        matches += [AffinityMatch((term,)) for term in rules.anti_affinity]
        matches += [SpreadMatch(own.namespace, constraint.selector) for constraint in rules.spread]
        matches += [limit_match(limit) for limit in rules.limits]
    known: dict[PodSignature, bool] = {}

    def concerns(signature: PodSignature) -> bool:
        if signature not in known:
            keeps_away = signature.constraints is not None and bool(signature.constraints.anti_affinity)
            known[signature] = keeps_away or any(match.includes(signature, namespaces) for match in matches)
        return known[signature]

    return concerns


def _targets(elsewhere: Bools, snapshot: Snapshot) -> list[int]:
    """Rows of nodes that take a pod: the roomiest one of each zone, then others; the first few."""
    free = (snapshot.free / np.maximum(snapshot.allocatable, 1)).min(axis=1)
    rows = np.flatnonzero(elsewhere)
    rows = rows[np.argsort(-free[rows], kind="stable")]
    zones = snapshot.table.column(ZONE).codes[rows]
    _, first = np.unique(zones, return_index=True)
    roomiest = sorted(first.tolist())
    rest = (place for place in range(len(rows)) if place not in roomiest)
    chosen: list[int] = rows[[*roomiest, *rest][:_MAX_TARGETS]].tolist()
    return chosen


def _may_move(scenario: Scenario, pod: RunningPod, running: RunningPods) -> bool:
    known = scenario.cluster.pods[pod.key]
    # People may do what plans do not: a volume that both nodes reach goes with its pod.
    by_hand = msgspec.structs.replace(known, immovable_reason="") if known.kept_by_claims else known
    return (
        bool(pod.owner)
        and not known.permanent
        and not pod.gang
        and not pod.unevictable_reason
        and not immovable_reason(scenario.cluster, by_hand)
        and all(running.budgets.get(budget, 0) > 0 for budget in pod.budgets)
    )
