"""kube-scheduler's filters, each evaluated for one pod class over all nodes at once.

One module per plugin, under the plugin's own name. A filter returns its rejections: reason texts
(kube-scheduler's own) with the nodes they hold for. ``judge`` runs them all in kube-scheduler's order.
"""

from flowcore.filters.judge import Verdicts, judge, lasting_fits
from flowcore.filters.registry import FILTERS, STATIC_FILTERS

__all__ = ["FILTERS", "STATIC_FILTERS", "Verdicts", "judge", "lasting_fits"]
