"""What a filter says."""

from __future__ import annotations

from dataclasses import dataclass

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
