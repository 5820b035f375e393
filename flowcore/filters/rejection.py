"""What a filter says, and what it reads to say it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from flowcore.model.neighbours import Crowd
from flowcore.model.snapshot import Bools


@dataclass(frozen=True, slots=True)
class Rejection:
    """Nodes that a filter turns away, and why.

    Attributes:
        reason: kube-scheduler's text.
        nodes: bool[N], True where it holds.
    """

    reason: str
    nodes: Bools


@dataclass(frozen=True, slots=True)
class Reads:
    """What a filter reads of a class, and of the cluster for that class.

    Attributes:
        of_class: classes for which this is equal get equal verdicts.
        crowds: running pods that its verdict depends on.
        labels: keys of node labels by which it holds nodes together; () for a filter that looks at each node alone.
        taints: whether a taint of one node may change its verdict on others.
    """

    of_class: Hashable
    crowds: tuple[Crowd, ...] = ()
    labels: tuple[str, ...] = ()
    taints: bool = False
