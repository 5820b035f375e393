"""Where the pods of a scene went: the figures of its table, from which its claim is made.

The table is printed from an outcome and read back into one by tests, so a claim can say nothing that its table does
not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import click

from flowcore.planning.round import RoundResult

#: Stands for the node where a table counts pods and names no nodes.
PLACED = "placed"


class ClaimError(click.ClickException):
    """A scene's claim is not true of its figures."""


@dataclass(frozen=True, slots=True)
class SceneResult:
    """What one way of scheduling did with the pods of a scene.

    Attributes:
        cells: set of pods -> node -> how many of them went there, in order of nodes; "" instead of a node: they wait.
    """

    cells: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, result: RoundResult, row: Callable[[str], str], *, counted: bool) -> SceneResult:
        """A plan's.

        Args:
            row: key of a pod -> its set.
            counted: nodes are not named.
        """
        cells: dict[str, dict[str, int]] = {}
        went = [(placement.pod.key, PLACED if counted else placement.node) for placement in result.placements]
        for key, node in (*sorted(went, key=lambda pair: pair[1]), *((left.pod.key, "") for left in result.unplaced)):
            cell = cells.setdefault(row(key), {})
            cell[node] = cell.get(node, 0) + 1
        return cls(cells)

    def cell(self, row: str) -> str:
        """As a table shows it: "2 node-1, 1 waits"; without a number where the set is a single pod."""
        cell = self.cells[row]
        if sum(cell.values()) == 1:
            return next(iter(cell)) or "waits"
        return ", ".join(f"{count:,} {node or ('waits' if count == 1 else 'wait')}" for node, count in cell.items())

    def nodes(self, row: str) -> set[str]:
        """Nodes to which pods of the set went."""
        return {node for node in self.cells[row] if node}

    def domains(self, row: str) -> set[str]:
        """Domains to which pods of the set went: nodes are named "domain-number"."""
        return {node.partition("-")[0] for node in self.nodes(row)}

    def in_domain(self, row: str, domain: str) -> int:
        """How many pods of the set went to a domain."""
        return sum(n for node, n in self.cells[row].items() if node.partition("-")[0] == domain)

    def placed(self, *rows: str) -> int:
        """How many pods of these sets have a node; without sets: of all."""
        return sum(n for row in rows or self.cells for node, n in self.cells[row].items() if node)

    def waiting(self, *rows: str) -> int:
        """How many pods of these sets wait; without sets: of all."""
        return sum(self.cells[row].get("", 0) for row in rows or self.cells)

    def complete(self, rows: Iterable[str]) -> list[str]:
        """Sets without a waiting pod."""
        return [row for row in rows if not self.waiting(row)]


def checked(claim: str, *facts: bool) -> str:
    """The claim.

    Raises:
        ClaimError: one of the facts that it states is false.
    """
    if not all(facts):
        raise ClaimError(f"The figures do not support this claim: {claim}")
    return claim
