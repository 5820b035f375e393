"""At most three pods in a rack, those that run among them, on its emptiest machines; pairs share a rack, or wait."""

from flowcore.costs.network_model import NetworkCostModel, NetworkView, arc_to, from_pods
from flowcore.model.networks import NODES, Aggregator, CostPart, NetworkSpec, Over
from flowcore.model.selectors import LabelSelector, Requirement

BUDGET = 3
ALONE = LabelSelector((Requirement("pair", "DoesNotExist"),))


class RackBudget(NetworkCostModel):
    """For pods with the label budget=rack, on nodes with the label rack."""

    name = "RackBudget"

    def network(self, view: NetworkView) -> NetworkSpec:
        """Pods, or pairs of them, to the budgets of the racks, to their machines."""
        racks = Over(node_label="rack")
        rack = Aggregator("rack", racks, (arc_to(NODES, part=CostPart.UTILISATION),))
        budget = Aggregator("budget", racks, (arc_to("rack", maximum=BUDGET),))
        pairs = {pods.labels["pair"] for pods in view.pods if "pair" in pods.labels}
        together = arc_to("budget", minimum=2, whole_or_none=True)
        arcs = [
            from_pods(ALONE, arc_to("budget")),
            from_pods({"budget": "rack"}, arc_to("budget"), runs=True),
            *(from_pods({"pair": pair}, together) for pair in sorted(pairs)),
        ]
        return NetworkSpec((rack, budget), tuple(arcs))
