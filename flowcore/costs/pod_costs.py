"""What a node costs one more pod: the one price for pods that wait, that run, and that come alone after a plan.

    price = arc of the cost model and of preferences + what the pod's author wrote + increase of the node's potential

A round prices its pods with it, as it begins and after its plan. A move for gain compares it on two nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.arcs import costs_beside_load, written_costs
from flowcore.costs.claim_scores import ClaimCosts
from flowcore.costs.data_locality import DataPrices
from flowcore.costs.model import CostModel, Float64s, Load
from flowcore.costs.network_prices import network_prices
from flowcore.costs.potential import NodePotential
from flowcore.model.policies import Policy
from flowcore.rules.verdicts.groups import Group


@dataclass(frozen=True, eq=False)
class PodCosts:
    """Prices for the pods of a group.

    Attributes:
        size: float64[3], what one counts for, in the columns of ``Load.taken``.
        allowed: bool[N], nodes that they may use; prices of others have no meaning.
        passing: bool[N], those of them among which preferences are scaled: that pass every filter now; where none does,
            all of them.
        model: that the policy names.
        potential: of nodes, for pods that are priced like these.
        written: int64[N], what their data and their preferred node affinity cost.
    """

    group: Group
    policy: Policy
    size: Float64s
    allowed: Bools
    passing: Bools
    model: CostModel
    potential: NodePotential
    written: Int64s

    @classmethod
    def of(
        cls,
        group: Group,
        policy: Policy,
        size: Float64s,
        allowed: Bools,
        passing: Bools,
        model: CostModel,
        unit: tuple[float, ...],
        data: DataPrices,
    ) -> PodCosts:
        """Prices by a policy.

        Args:
            unit: what a pod of mean size counts for (costs/potential.py).
            data: of the snapshot.
        """
        passing = passing if passing.any() else allowed
        bounded = not policy.unscheduled.wait_for_cheaper_node
        written = written_costs(group, data, allowed, passing, policy.cost, bounded=bounded)
        return cls(group, policy, size, allowed, passing, model, NodePotential.of(model, policy.cost, unit), written)

    def one_more(self, snapshot: Snapshot, load: Load) -> Int64s:
        """int64[N]: what one more pod pays on each node.

        Args:
            load: of the nodes; that of the snapshot, or another one.
        """
        return self.arcs(snapshot, load) + self.written + self.potential.increase(load, self.size)

    def arcs(self, snapshot: Snapshot, load: Load) -> Int64s:
        """int64[N], positive: the part that neither the pod's author writes nor other pods of a plan change."""
        rules, pod_class = self.group.signature.constraints, self.group.pod_class
        drawn = network_prices(rules, pod_class, snapshot, load, self.passing, self.policy.cost)
        return self.model_arcs(load) + self.beside_load(snapshot) + drawn

    def model_arcs(self, load: Load) -> Int64s:
        """int64[N]: the cost model's part of the arcs."""
        return self.model.arc_costs(self.group.pod_class, self.size, load, self.policy.cost.weights)

    def beside_load(self, snapshot: Snapshot) -> Int64s:
        """int64[N], none negative: preferences, what pods that run cost beside these, and machines."""
        return costs_beside_load(self.group, snapshot, self.passing, self.policy.cost)

    def claims(self, snapshot: Snapshot) -> ClaimCosts:
        """The parts of ``beside_load`` that are for what their claims get."""
        return ClaimCosts.of(self.group.pod_class, snapshot, self.passing, self.policy.cost.weights)
