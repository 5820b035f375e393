"""Preferences of pods as costs, the same for every cost model.

1000 is the cost of one whole node, here as in all models (scale). Each part is kube-scheduler's score of that name, raw
and scaled as there, and priced so that the best node costs nothing::

      1000 * nodePreference  * (weights that the best node matches - weights that the node matches) / that of the best
    + 1000 * taintPreference * PreferNoSchedule taints that it does not tolerate / most of them on a node
    + 1000 * podAffinity     * (attraction of the best node - of the node) / (of the best - of the worst)
    + 1000 * spread          * (crowding of the node - of the least crowded) / of the most crowded
    +   10 * imageLocality   * (score of the best node - score of the node)
    + what the pod's claims get there (costs/claim_scores.py)
    + 1000 * idleResources   * 1 where the node offers an extended resource that the pod does not ask for

So a pod's best node against its worst is the whole weight, whatever numbers its author wrote and however many pods run.
With ``preferences: Points`` they count as they are written: of two pods that want one node, the pod that says more gets
it. Then the first three are::

      10 * nodePreference  * (weights of its preferred node affinity - weights of those terms that the node matches)
    + 1000 * taintPreference * PreferNoSchedule taints that it does not tolerate
    + 1000 * podAffinity     * (attraction of the best node - of the node) / max(100, of the best - of the worst)

Crowding is scaled as kube-scheduler does in both; a node without a label of a constraint costs the whole 1000.

The last part is no score of kube-scheduler. GPUs need the cpu and memory of their node: a pod without GPUs that takes
these leaves GPUs stranded, so it goes elsewhere while it can. (Bandwidth is no such resource.)

All are scaled over the nodes that pass every filter as the round begins, as kube-scheduler scales over those. Others,
which pods may still come to use in the round, cost no less than the best and no more than the worst. Running pods are
counted as the round begins; preferences between pods of the round are added as they are placed
(costs/soft_constraints.py).

Sources: kube-scheduler plugins/helper/normalize_score.go, nodeaffinity, tainttoleration, interpodaffinity/scoring.go,
podtopologyspread/scoring.go, imagelocality.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable, Snapshot
from flowcore.costs.claim_scores import ClaimCosts
from flowcore.costs.image_locality import locality
from flowcore.costs.scale import OMEGA
from flowcore.model.cost_policy import CostPolicy, Preferences
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.resources import BANDWIDTH, is_extended
from flowcore.rules.filters import node_affinity, taint_toleration
from flowcore.rules.topology.soft_affinity import affinity_weights
from flowcore.rules.topology.soft_spread import SpreadScore, spread_score

#: Cost of one point of a score or of a preferred weight, both of which go to 100.
_POINT = OMEGA // 100
#: No sum of preferred weights counts as more: costs stay far from overflow whatever a pod says.
_MOST_POINTS = 10_000


def preferences(
    pod_class: PodClass, signature: PodSignature, snapshot: Snapshot, passing: Bools, policy: CostPolicy
) -> Int64s:
    """int64[N], none negative: cost of each node for a class by its preferences, without ``node_preference``.

    Args:
        passing: bool[N], nodes among which preferences are scaled: that pass every filter now.
    """
    table, weights = snapshot.table, policy.weights
    cost = np.zeros(len(table.nodes), dtype=np.int64)
    if not passing.any():
        return cost
    cost += taint_preference(pod_class, table, passing, policy)
    if weights.pod_affinity:
        affinity = affinity_weights(signature, snapshot.pod_index, table)
        if affinity is not None:
            cost += weights.pod_affinity * affinity_cost(affinity, passing, policy.preferences)
    if weights.spread:
        spread = spread_score(pod_class, signature, snapshot.pod_index, table, passing)
        if spread is not None:
            cost += weights.spread * spread_cost(spread, passing)
    if weights.image_locality and pod_class.images:
        score = locality(pod_class, snapshot.reports, table)
        cost += _POINT * weights.image_locality * _below_best(score, passing)
    for part in ClaimCosts.of(pod_class, snapshot, passing, weights).parts:
        cost += part.begun
    if weights.idle_resources:
        cost[offers_more(pod_class, snapshot)] += OMEGA * weights.idle_resources
    return cost


def taint_preference(pod_class: PodClass, table: NodeTable, passing: Bools, policy: CostPolicy) -> Int64s:
    """int64[N], none negative: cost of the PreferNoSchedule taints of each node that are not tolerated.

    Args:
        passing: bool[N], nodes among which they are scaled.
    """
    weight = policy.weights.taint_preference
    taints = taint_toleration.untolerated_preferences(pod_class, table) if weight and passing.any() else None
    if taints is None or not taints.any():
        return np.zeros(len(table.nodes), dtype=np.int64)
    return weight * _taint_cost(taints, passing, policy.preferences)


def node_preference(pod_class: PodClass, table: NodeTable, passing: Bools, policy: CostPolicy) -> Int64s:
    """int64[N], none negative: cost of the preferred node affinity that each node does not match.

    Args:
        passing: bool[N], nodes among which they are scaled.
    """
    weight = policy.weights.node_preference
    if not weight or not pod_class.preferred_affinity or not passing.any():
        return np.zeros(len(table.nodes), dtype=np.int64)
    matched = node_affinity.preference(pod_class, table)
    if policy.preferences is Preferences.POINTS:
        written = sum(max(term.weight, 0) for term in pod_class.preferred_affinity)
        points: Int64s = _POINT * weight * np.minimum(written - matched, _MOST_POINTS)
        return points
    best = int(matched[passing].max())
    cost: Int64s = OMEGA * np.maximum(best - matched, 0) // max(1, best)
    return weight * cost


def without_idle_images(classes: Iterable[PodClass], snapshot: Snapshot) -> Mapping[PodClass, PodClass]:
    """Classes whose images score nothing on any node -> the same without: such pods are alike whatever they run.

    That is most of them: an image counts with the share of nodes that hold it.
    """
    replaced: dict[PodClass, PodClass] = {}
    idle: dict[tuple[tuple[str, ...], int, int], bool] = {}
    for pod_class in classes:
        key = (pod_class.images, pod_class.containers, pod_class.image_volumes)
        if pod_class not in replaced and key != ((), 0, 0):
            if key not in idle:
                idle[key] = not locality(pod_class, snapshot.reports, snapshot.table).any()
            if idle[key]:
                replaced[pod_class] = msgspec.structs.replace(pod_class, images=(), containers=0, image_volumes=0)
    return replaced


def offers_more(pod_class: PodClass, snapshot: Snapshot) -> Bools:
    """bool[N]: nodes that offer an extended resource that the pod does not request."""
    asked = {name for name, _ in pod_class.requests}
    offers = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    devices = {} if snapshot.columns is None else snapshot.columns.extended
    for column, name in enumerate(snapshot.plain_resources):
        if is_extended(name) and name not in asked and name != BANDWIDTH:
            offered = snapshot.allocatable[:, column] > 0
            offers |= offered & ~devices[name] if name in devices else offered
    return offers


def affinity_cost(weights: Int64s, passing: Bools, preferences: Preferences) -> Int64s:
    """int64[N], 0..OMEGA: cost of lower attraction than at the best of some nodes (at least one)."""
    short = _below_best(weights, passing)
    most = max(100 if preferences is Preferences.POINTS else 1, int(short[passing].max()))
    cost: Int64s = OMEGA * np.minimum(short, most) // most
    return cost


def _taint_cost(taints: Int64s, passing: Bools, preferences: Preferences) -> Int64s:
    """int64[N], none negative: cost of taints that a class would rather not have, so many on each node."""
    if preferences is Preferences.POINTS:
        return OMEGA * np.minimum(taints, _MOST_POINTS)
    most = max(1, int(taints[passing].max()))
    cost: Int64s = OMEGA * np.minimum(taints, most) // most
    return cost


def spread_cost(spread: SpreadScore, passing: Bools) -> Int64s:
    """int64[N], 0..OMEGA: cost of crowded domains, scaled over some nodes."""
    score, judged = spread.score, passing & ~spread.unlabelled
    of_judged = score[judged]
    if not len(of_judged):
        return np.zeros(len(score), dtype=np.int64)
    least, most = int(of_judged.min()), int(of_judged.max())
    if most <= 0:
        return np.where(spread.unlabelled, OMEGA, 0)
    share: Int64s = OMEGA * (score - least) // most
    if len(of_judged) < len(score):
        share = np.minimum(np.maximum(share, 0), OMEGA)
        share[spread.unlabelled] = OMEGA
    return share


def _below_best(score: Int64s, nodes: Bools) -> Int64s:
    """int64[N]: how far each score is below the best of some nodes; 0 where it is above."""
    short: Int64s = np.maximum(score[nodes].max() - score, 0)
    return short
