"""Functions, classes and constants that pages name, as `package.module.name`."""

import importlib
import re
from typing import Any

_PACKAGES = ("flowcore", "thalweg", "thalweg_operator", "thalweg_extender", "thalweg_cost_models")


def names_in(text: str) -> list[str]:
    """The dotted names in the code spans of a page."""
    return sorted(set(re.findall(rf"`((?:{'|'.join(_PACKAGES)})(?:\.\w+)+)`", text)))


def resolved(name: str) -> Any:
    """The object of a dotted name."""
    parts = name.split(".")
    for at in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:at]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[at:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(name)
