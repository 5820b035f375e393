"""At most three pods in a rack, those that run among them, on its emptiest machines; pairs share a rack, or wait."""

from collections.abc import Iterator

from flowcore.costs.network_model import UNSCHEDULED, Arc, Network, NetworkCostModel, NetworkView

BUDGET = 3


class RackBudget(NetworkCostModel):
    """For pods with the label budget=rack, on nodes with the label rack."""

    name = "RackBudget"
    pod_labels = ("pair",)

    def network(self, view: NetworkView) -> Network:
        """Pods, or pairs of them, to the budgets of the racks, to their machines."""
        racks = view.by_label("rack")
        everybody = (*view.pods, *view.placed({"budget": "rack"}))
        pairs = {pods.labels["pair"] for pods in view.pods if "pair" in pods.labels}
        arcs = [arc for name in sorted(pairs) for arc in pair(name, list(racks))]
        for pods in everybody:
            if "pair" in pods.labels:
                arcs.append(Arc(pods, f"pair {pods.labels['pair']}"))
            else:
                arcs += [Arc(pods, f"budget of {rack}") for rack in racks]
        for rack, machines in racks.items():
            arcs.append(Arc(f"budget of {rack}", f"rack {rack}", maximum=BUDGET))
            arcs += [Arc(f"rack {rack}", machine, cost=int(1000 * view.taken(machine))) for machine in machines]
        return Network.of(arcs)


def pair(name: str, racks: list[str]) -> Iterator[Arc]:
    """Two units reach the pair. One ends at once; if the other goes to a rack, it counts for both there."""
    yield Arc(f"pair {name}", UNSCHEDULED, minimum=1, maximum=1)
    for rack in racks:
        yield Arc(f"pair {name}", f"pair {name} in {rack}", maximum=1, gain=2)
        yield Arc(f"pair {name} in {rack}", f"budget of {rack}")
