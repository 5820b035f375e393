"""Installed cost models: the core's, and plug-ins by entry points of the group ``thalweg.cost_models``.

Reading entry points is I/O, so the core does not do it: it takes models as an argument. The worker, ``plan`` and
``replay`` call ``find_models`` once each. A plug-in that cannot be used is left out, with the reason; the others work.
The operator's own process holds the token and loads no plug-in: its worker tells it their names (``KnownModels``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from flowcore.costs import MODELS, CostModel
from flowcore.costs.network_model import network_models
from flowcore.model.cost_policy import KnownModels

ENTRY_POINT_GROUP = "thalweg.cost_models"


@dataclass(frozen=True, slots=True)
class CostModels:
    """The models that were found.

    Attributes:
        usable: models by the name that a policy's ``cost.model`` gives.
        problems: why an entry point is not used, by its name.
    """

    usable: Mapping[str, CostModel]
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> KnownModels:
        """Names and problems, without the code."""
        return KnownModels(tuple(self.usable), self.problems, network_models(self.usable))


@cache
def find_models() -> CostModels:
    """All models that are installed, loaded when first asked for."""
    return load_models(entry_points(group=ENTRY_POINT_GROUP))


def load_models(entries: Iterable[EntryPoint]) -> CostModels:
    """The core's models and those of these entry points: each names a CostModel, or its class without arguments.

    The core's own models are entry points too, as an example. A second model of the same name is not used.
    """
    usable, problems = dict(MODELS), {}
    for entry in sorted(entries, key=lambda each: (each.name, each.value)):
        try:
            with redirect_stdout(sys.stderr):  # standard output is for plans
                target = entry.load()
                model = target() if isinstance(target, type) else target
        except Exception as error:  # noqa: BLE001 - whatever a stranger's module does, the others are served
            problems[entry.name] = f"{entry.value} cannot be loaded: {error!r}"
            continue
        taken = usable.get(entry.name)
        if not isinstance(model, CostModel):
            problems[entry.name] = f"{entry.value} is not a cost model"
        elif model.name != entry.name:
            problems[entry.name] = f"{entry.value} calls itself {model.name!r}"
        elif taken is None:
            usable[entry.name] = model
        elif type(taken) is not type(model):
            problems[entry.name] = f"{entry.value} is not used: {type(taken).__module__} has the name"
    return CostModels(usable, problems)
