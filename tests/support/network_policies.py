"""Policies that draw networks, and networks in which each pod has a choice between two ways to each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowcore.api.policies import parse_policy
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.policies import Policy

EVERYBODY: Mapping[str, Any] = {"podSelector": {}}


def with_choice(arcs: Sequence[Mapping[str, Any]], *aggregators: Mapping[str, Any], **of_pods: Any) -> dict[str, Any]:
    """A network of one point: all pods have two ways to it, one of which has a limit that nobody reaches.

    Args:
        arcs: of the point ``all``.
        of_pods: what the cheaper arc of pods has beside its ends.
    """
    to_point = {"from": EVERYBODY, "to": "all"}
    return {
        "aggregators": [{"name": "all", "arcs": list(arcs)}, *aggregators],
        "arcs": [{"maximum": 10_000, **to_point, **of_pods}, {**to_point, "maximum": 0}],
    }


def drawing(name: str, network: Mapping[str, Any], **spec: Any) -> Policy:
    """The policy that draws a network."""
    return parse_policy(name, {"selects": {"podSelector": {}}, "network": network, **spec}, BUILT_IN_MODELS)
