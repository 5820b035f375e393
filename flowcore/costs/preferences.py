"""What a pod would rather have: soft preferences as costs, the same beside every cost model.

1000 is the cost of one whole node, here as in all models (scale). Each part is kube-scheduler's raw score of that name,
held against the real one by a differential test, and priced so that the best node costs nothing::

      10 * nodePreference  * (weights of its preferred node affinity - weights of those terms that the node matches)
    + 1000 * taintPreference * PreferNoSchedule taints that it does not tolerate
    +   10 * imageLocality   * (score of the best node - score of the node)

Where the documents subtract matched weights and add an offset, this charges the unmatched ones: the same up to a
constant per class, and positive whatever the weights. Preferred node affinity counts absolutely: of two pods that want
the same node, the one that wants it more gets it. (kube-scheduler scales the best node of each pod to 100 points.)

The best is sought among the nodes that the pod may use. What runs is read as the round begins: pods of one round do not
attract, repel or spread each other by preference.
"""

from __future__ import annotations

import numpy as np

from flowcore.costs.image_locality import locality
from flowcore.costs.scale import OMEGA
from flowcore.filters import node_affinity, taint_toleration
from flowcore.model.pods import PodClass
from flowcore.model.policies import CostWeights
from flowcore.model.snapshot import Bools, Int64s, Snapshot

#: Cost of one point of a score or of a preferred weight, both of which go to 100.
_POINT = OMEGA // 100
#: No sum of preferred weights counts as more: costs stay far from overflow whatever somebody writes.
_MOST_POINTS = 10_000


def preferences(pod_class: PodClass, snapshot: Snapshot, allowed: Bools, weights: CostWeights) -> Int64s:
    """int64[N], none negative: what each node costs a class for falling short of what it prefers.

    Args:
        allowed: bool[N], nodes that the class may use; what the others cost means nothing.
    """
    table = snapshot.table
    cost = np.zeros(len(table.nodes), dtype=np.int64)
    if not allowed.any():
        return cost
    if weights.taint_preference:
        taints = np.minimum(taint_toleration.untolerated_preferences(pod_class, table), _MOST_POINTS)
        cost += OMEGA * weights.taint_preference * taints
    if weights.node_preference and pod_class.preferred_affinity:
        wished = sum(max(term.weight, 0) for term in pod_class.preferred_affinity)
        matched = node_affinity.preference(pod_class, table)
        cost += _POINT * weights.node_preference * np.minimum(wished - matched, _MOST_POINTS)
    if weights.image_locality and pod_class.images:
        score = locality(pod_class, snapshot.reports, table)
        cost += _POINT * weights.image_locality * _short_of_best(score, allowed)
    return cost


def _short_of_best(score: Int64s, allowed: Bools) -> Int64s:
    """int64[N]: how much less than the best of the allowed nodes."""
    short: Int64s = np.maximum(score[allowed].max() - score, 0)
    return short
