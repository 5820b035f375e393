"""What nodes and pods use: the last samples of each, and what follows from them for costs."""

from flowcore.cluster.usage_samples.store import STALE_AFTER, PodOnNode, UsageStore

__all__ = ["STALE_AFTER", "PodOnNode", "UsageStore"]
