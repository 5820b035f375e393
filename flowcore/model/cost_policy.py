"""What a policy says of costs: of placing a pod on a node, and of leaving it pending."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from flowcore.model.default_spread import SYSTEM_SPREAD, DefaultSpread
from flowcore.model.workload_kinds import Interference, Machines, WorkloadKind


@dataclass(frozen=True, slots=True)
class KnownModels:
    """Which cost models there are, without their code.

    Attributes:
        names: what a policy's ``cost.model`` may say.
        problems: why a plug-in is not used, by its name.
        networks: the names of those that draw a network.
    """

    names: tuple[str, ...]
    problems: Mapping[str, str] = field(default_factory=dict)
    networks: frozenset[str] = frozenset()


class Utilisation(StrEnum):
    """Which use of nodes and pods costs are made of. Requests stay the hard limit whatever it says."""

    #: What pods request.
    REQUESTED = "Requested"
    #: What was measured, and what is foreseen of pods without a measurement; requests where neither is known.
    MEASURED = "Measured"
    #: Of cpu and of memory the larger of both.
    LARGER = "Larger"


class Preferences(StrEnum):
    """How much what pods prefer counts: node affinity, pod affinity and anti-affinity, PreferNoSchedule taints."""

    #: For each pod the same, whatever numbers it has: its best node against its worst, as kube-scheduler scales them.
    SCALED = "Scaled"
    #: Each point of weight and each taint as much as those of any other pod.
    POINTS = "Points"


class CostWeights(msgspec.Struct, frozen=True):
    """Weights of the parts of a cost, 0..100: the first two of the cost model's, the others of preferences.

    The defaults are kube-scheduler's weights of the scores of the same meaning (apis/config/v1/default_plugins.go);
    it has none of the last.
    """

    least_requested: int = 1
    balance: int = 1
    node_preference: int = 2
    taint_preference: int = 3
    pod_affinity: int = 2
    spread: int = 2
    image_locality: int = 1
    device_alternatives: int = 2
    free_storage: int = 1
    idle_resources: int = 1


class DataLocality(msgspec.Struct, frozen=True):
    """``spec.cost.dataLocality``: what moving data to a pod costs.

    Attributes:
        node, rack, zone: per GiB that crosses the border of a node, of a rack, of a zone.
        image: per GiB of the pod's images that the node does not hold.
        rack_label: label of nodes whose values are racks. Zones have a label that Kubernetes knows.
    """

    node: int = 10
    rack: int = 20
    zone: int = 100
    image: int = 0
    rack_label: str = "topology.kubernetes.io/rack"


class CostPolicy(msgspec.Struct, frozen=True):
    """``spec.cost``: what placing a governed pod on a node costs.

    Attributes:
        model: name of the cost model.
        weights: of the parts of a cost.
        preferences: how much what pods prefer counts.
        utilisation: what a node's and a pod's use is, for the model.
        data_locality: None: data costs nothing, wherever it is.
        kinds: of workload; a pod is of the first that selects it.
        interference: what pods of the kinds cost beside each other; None: nothing.
        machines: what pods of the kinds cost on kinds of machines; None: nothing.
        default_spread: the topology spread constraints of pods that have none.
    """

    model: str = "CPUMemory"
    weights: CostWeights = CostWeights()
    preferences: Preferences = Preferences.SCALED
    utilisation: Utilisation = Utilisation.REQUESTED
    data_locality: DataLocality | None = None
    kinds: tuple[WorkloadKind, ...] = ()
    interference: Interference | None = None
    machines: Machines | None = None
    default_spread: DefaultSpread = SYSTEM_SPREAD


class PricedBy(StrEnum):
    """What the price of waiting counts."""

    #: How much room a pod asks for: two pods count as much as one that is as large as both.
    SIZE = "Size"
    #: Pods, whatever their size.
    POD = "Pod"


class UnscheduledPrice(msgspec.Struct, frozen=True):
    """What leaving a pod pending costs; costs/unscheduled.py has the formulas.

    Attributes:
        per: what it counts; None: size, but pods where ``wait_for_cheaper_node``.
        aging_crosses_priorities: whether waiting may lift a pod over pods of a higher priority.
        wait_for_cheaper_node: a pod waits for as long as that costs less than every node that has room.
    """

    base: int = 100_000
    per_priority: int = 10
    per_waiting_second: int = 5
    aging_crosses_priorities: bool = False
    wait_for_cheaper_node: bool = False
    per: PricedBy | None = None

    @property
    def counts_pods(self) -> bool:
        """Whether pods count whatever their size. What a pod saves by waiting is a cost of that pod."""
        return self.per is PricedBy.POD or (self.per is None and self.wait_for_cheaper_node)
