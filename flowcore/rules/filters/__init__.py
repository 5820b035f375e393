"""kube-scheduler's filters, each evaluated for one pod class over all nodes at once.

One module per plugin, under the plugin's own name. A filter returns its rejections: reason texts
(kube-scheduler's own) with the nodes they hold for. ``run_filters`` runs them all in kube-scheduler's order.
"""

from flowcore.rules.filters.evaluation import (
    Verdicts,
    closed_by_rules,
    pod_independent_fits,
    rejected_before_nodes,
    round_invariant_fits,
    run_filters,
    static_fits,
)
from flowcore.rules.filters.registry import run_beside_room

__all__ = [
    "Verdicts",
    "closed_by_rules",
    "pod_independent_fits",
    "rejected_before_nodes",
    "round_invariant_fits",
    "run_beside_room",
    "run_filters",
    "static_fits",
]
