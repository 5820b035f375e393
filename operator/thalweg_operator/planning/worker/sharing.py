"""One copy of the names in requests: a decoded request has a new string for each time that a name is in it."""

from __future__ import annotations

import msgspec

from flowcore.api import Interner
from flowcore.model.node_usage import NodeUsage
from flowcore.model.nodes import Node
from flowcore.model.resources import Amounts
from thalweg_operator.planning.worker.messages import RoundRequest


class Sharing:
    """Makes equal names and labels of nodes the same object, in all requests of a worker."""

    def __init__(self) -> None:
        self._intern = Interner()

    def share(self, part: RoundRequest) -> RoundRequest:
        """The same request, or part of one, with shared names."""
        intern = self._intern
        return msgspec.structs.replace(
            part,
            nodes=[self._node(node) for node in part.nodes],
            usage=[self._usage(usage) for usage in part.usage],
            pod_deltas=[(place, {intern(node): by for node, by in on.items()}) for place, on in part.pod_deltas],
            reports=[msgspec.structs.replace(each, node=intern(each.node)) for each in part.reports],
        )

    def _node(self, node: Node) -> Node:
        intern = self._intern
        return msgspec.structs.replace(
            node,
            name=intern(node.name),
            labels=tuple(intern(pair) for pair in node.labels),
            taints=intern(node.taints),
            allocatable=intern(node.allocatable),
            features=intern(node.features),
        )

    def _usage(self, usage: NodeUsage) -> NodeUsage:
        amounts: Amounts = tuple((self._intern(name), amount) for name, amount in usage.amounts)
        return msgspec.structs.replace(usage, node=self._intern(usage.node), amounts=amounts)
