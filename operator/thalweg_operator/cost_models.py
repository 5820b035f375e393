"""Cost models that are installed: those of the core, and others' by entry points of the group ``thalweg.cost_models``.

Looking for them reads files, so the core does not: it takes models as an argument. The worker, ``simulate`` and
``replay`` call ``find_models`` once each. One that cannot be used is left out and said so, the others work. The
operator's own process, which holds the token, loads none: its worker tells it which there are (``KnownModels``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from flowcore.costs import MODELS, CostModel

GROUP = "thalweg.cost_models"


@dataclass(frozen=True, slots=True)
class KnownModels:
    """Which models there are, without their code.

    Attributes:
        names: what a policy's ``cost.model`` may say.
        problems: why an entry point is not used, by its name.
    """

    names: tuple[str, ...]
    problems: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CostModels:
    """What was found.

    Attributes:
        usable: by the name that a policy's ``cost.model`` gives.
        problems: why an entry point is not used, by its name.
    """

    usable: Mapping[str, CostModel]
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> KnownModels:
        """Their names and problems."""
        return KnownModels(tuple(self.usable), self.problems)


#: The core's alone.
BUILT_IN_MODELS = KnownModels(tuple(MODELS))


@cache
def find_models() -> CostModels:
    """All models that are installed, loaded when first asked for."""
    return load_models(entry_points(group=GROUP))


def load_models(found: Iterable[EntryPoint]) -> CostModels:
    """The core's models and those that these entry points name: a CostModel, or a class of one without arguments.

    The core's own are entry points too, as an example to others; of a name that is taken the other one is not used.
    """
    usable, problems = dict(MODELS), {}
    for entry in sorted(found, key=lambda each: (each.name, each.value)):
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
