"""What every answer about a scenario knows of the moment and of the asker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from flowcore.costs import MODELS, CostModel
from flowcore.model.errors import ModelError


class UnknownName(ModelError):
    """The scenario has no object of that name, or the asker may not see it: both in the same words."""


def sees_all(_namespace: str) -> bool:
    """For an asker who may read the pods of every namespace."""
    return True


def always() -> bool:
    """For an asker who waits as long as it takes."""
    return True


@dataclass(frozen=True, slots=True)
class AnswerContext:
    """When a question is asked, with which cost models, and what its asker may see.

    Attributes:
        now: seconds since the epoch.
        models: cost models by name; every model that a policy names must be there.
        sees: from a namespace to whether the asker may read its pods.
        nodes: whether the asker may read nodes.
        patient: whether the asker still has the time for what an answer can do without; it is asked again and again.
    """

    now: float
    models: Mapping[str, CostModel] = field(default_factory=lambda: MODELS)
    sees: Callable[[str], bool] = sees_all
    nodes: bool = True
    patient: Callable[[], bool] = always

    def may_name(self, key: str) -> bool:
        """Whether the asker may read an object ``namespace/name``."""
        return self.sees(key.partition("/")[0])

    def name(self, key: str) -> str:
        """The pod for a text: ``namespace/name``, or words that do not name it."""
        return key if self.may_name(key) else "a pod of another namespace"

    def node(self, name: str) -> str:
        """The node for a text: its name, or words that do not name it."""
        return name if self.nodes else "a node"

    def only(self, namespace: str) -> AnswerContext:
        """The same for one namespace that the asker wants to see; "": for all."""
        return replace(self, sees=lambda name: name == namespace and self.sees(name)) if namespace else self

    def visible(self, keys: Iterable[str]) -> list[str]:
        """The keys that the asker may read, in their order."""
        return [key for key in keys if self.may_name(key)]
