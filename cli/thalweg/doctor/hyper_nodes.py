"""Check of Volcano's HyperNodes, which gangs keep to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from flowcore.api.base import to_labels
from flowcore.api.hyper_nodes import WireHyperNode, to_hyper_node
from flowcore.cluster.hyper_nodes.hyper_node_tree import HyperNodeTree
from flowcore.model.nodes import Node
from thalweg.doctor.facts import Facts, NotRead
from thalweg.doctor.findings import CheckResult, Verdict
from thalweg.wire_objects import Meta

#: Most problems that are told one by one.
_MAX_TOLD: Final = 3


def problems_of(objects: Iterable[WireHyperNode], nodes: Iterable[Meta]) -> tuple[str, ...]:
    """Sentences about what of some HyperNodes does not count.

    Args:
        nodes: metadata of all nodes.
    """
    tree = HyperNodeTree()
    for meta in nodes:
        tree.put_node(Node(meta.name, labels=to_labels(meta.labels)))
    for wire in objects:
        tree.put(wire.metadata.name, to_hyper_node(wire))
    return tuple(tree.problems())


def hyper_nodes(facts: Facts) -> Iterator[CheckResult]:
    """Whether all that HyperNodes say counts."""
    check, problems = "hyper-nodes", facts.hyper_node_problems
    if isinstance(problems, NotRead):
        yield CheckResult(check, Verdict.SKIP, problems.problem)
    elif problems is None:
        yield CheckResult(check, Verdict.OK, "There are no HyperNodes.")
    elif problems:
        told = "; ".join(problems[:_MAX_TOLD])
        more = f"; and {len(problems) - _MAX_TOLD} more" if len(problems) > _MAX_TOLD else ""
        advice = "Correct the HyperNodes. Gangs keep to what counts: docs/reference/gangs.md"
        yield CheckResult(check, Verdict.WARN, f"{told}{more}.", advice)
    else:
        yield CheckResult(check, Verdict.OK, "All that HyperNodes say counts.")
