"""Running pods leave for waiting ones: who is evicted, who is moved and where to, decided in one plan.

Source: figure 1 of the seed firmament-poseidon-overview.md: a running pod has an arc to its node, which is its
cheapest, and one to the unscheduled aggregator. Only pods that may be evicted are looked at one by one, and only
where a waiting pod fits nowhere.
"""

from flowcore.planning.evictions.eviction_plan import plan_evictions

__all__ = ["plan_evictions"]
