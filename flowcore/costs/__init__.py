"""Cost models: what placing a pod on a node costs. One module per model."""

from flowcore.costs.cpu_memory import CPUMemory
from flowcore.costs.model import CostModel, Load
from flowcore.costs.unscheduled import unscheduled_prices

#: Cost models by the name that a policy's ``cost.model`` gives.
MODELS: dict[str, CostModel] = {CPUMemory.name: CPUMemory()}

__all__ = ["MODELS", "CPUMemory", "CostModel", "Load", "unscheduled_prices"]
