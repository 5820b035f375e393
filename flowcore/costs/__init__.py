"""What a placement costs: cost models, one module each, and the prices that come of fair shares."""

from flowcore.costs.bin_packing import BinPacking
from flowcore.costs.cpu_memory import CPUMemory
from flowcore.costs.load_spreading import LoadSpreading
from flowcore.costs.model import CostModel, Load
from flowcore.costs.network_aware import NetworkAware
from flowcore.costs.potential import NodePotential
from flowcore.costs.preferences import preferences, without_idle_images
from flowcore.costs.unscheduled import unscheduled_prices
from flowcore.model.cost_policy import KnownModels

#: The models that come with Thalweg, by the name that a policy's ``cost.model`` gives.
MODELS: dict[str, CostModel] = {
    model.name: model for model in (CPUMemory(), LoadSpreading(), BinPacking(), NetworkAware())
}

#: Their names, to parse policies without plug-ins.
BUILT_IN_MODELS = KnownModels(tuple(MODELS))

__all__ = [
    "BUILT_IN_MODELS",
    "MODELS",
    "BinPacking",
    "CPUMemory",
    "CostModel",
    "Load",
    "LoadSpreading",
    "NetworkAware",
    "NodePotential",
    "preferences",
    "unscheduled_prices",
    "without_idle_images",
]
