"""The fewest new nodes of a shape with which a plan places as many pods as with any number of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flowcore.questions.scenario.alternatives.new_nodes.offers import MAX_NODES, Offer
from flowcore.questions.scenario.alternatives.replanning import PlanDifference, Replanning
from flowcore.questions.scenario.hypothetical.changes import AddNodes, Change


@dataclass(frozen=True, slots=True)
class NodesNeeded:
    """New nodes that were planned.

    Attributes:
        outcome: what they bring.
        proven: a plan with one node less was made, and places fewer.
    """

    added: AddNodes
    outcome: PlanDifference
    proven: bool


def nodes_needed(
    replanning: Replanning,
    offer: Offer,
    worth: Callable[[PlanDifference], int],
    *,
    every: int,
    before: Sequence[Change] = (),
) -> NodesNeeded | None:
    """Searches by plans: the estimate, one node less, then halves of what is between.

    More nodes are taken to place no fewer pods.

    Args:
        offer: the shape, and how many nodes to plan first.
        worth: what a plan is worth; 0 or less: nothing. More nodes are wanted only where they are worth more.
        every: no plan is worth more.
        before: changes that are made, too.

    Returns:
        None: no number of them is worth anything, or there is no plan left to find one.
    """

    def planned(count: int) -> PlanDifference | None:
        return replanning.outcome((*before, AddNodes(count, offer.like)))

    most = max(offer.count, min(MAX_NODES, replanning.may_use_nodes))
    too_few, enough, outcome = 0, offer.count, planned(offer.count)
    if outcome is None:
        return None
    if worth(outcome) < every and enough < most:
        larger = planned(most)
        if larger is not None and worth(larger) > worth(outcome):
            too_few, enough, outcome = enough, most, larger
    if (wanted := worth(outcome)) <= 0:
        return None
    # Nodes that stay empty are not needed. Else one less is the likeliest proof.
    guesses = [min(enough - 1, max(1, outcome.new_nodes_used)), enough - 1]
    while too_few + 1 < enough:
        guess = guesses.pop(0) if guesses else 0
        count = guess if too_few < guess < enough else (too_few + enough) // 2
        fewer = planned(count)
        if fewer is None:
            return NodesNeeded(AddNodes(enough, offer.like), outcome, proven=False)
        if worth(fewer) >= wanted:
            enough, outcome, wanted = count, fewer, worth(fewer)
            guesses = guesses and [enough - 1]
        else:
            too_few, guesses = count, []
    return NodesNeeded(AddNodes(enough, offer.like), outcome, proven=True)
