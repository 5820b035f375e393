"""What nodes and pods use: the last samples of each, and what follows from them for costs."""

from flowcore.usage.store import Arrival, UsageStore

__all__ = ["Arrival", "UsageStore"]
