"""New nodes for one gang: which pods of it need them, and a plan with new nodes that places them all."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowcore.model.errors import ModelError
from flowcore.planning.round import Unplaced
from flowcore.questions.scenario.alternatives.node_shapes import MAX_NODES, Offer
from flowcore.questions.scenario.alternatives.what_if import outcome
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.hypothetical.apply_changes import applied
from flowcore.questions.scenario.hypothetical.changes import AddNodes
from flowcore.questions.scenario.plan import ScenarioPlan
from flowcore.questions.scenario.scenario import Scenario

#: Kinds of new nodes that are planned at most.
_MOST_SHAPES = 3


class GangNodes(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes that a gang needs.

    Attributes:
        gang: as people know it.
        pods: its pods that wait in the plan, as ``namespace/name``.
        like: a node that the new ones are like.
        count: with so many of these a plan places all of the pods; beside them it places what comes first.
    """

    gang: str
    pods: list[str]
    like: str
    count: int


def left_of_gang(scenario: Scenario, name: str, plan: ScenarioPlan, context: AnswerContext) -> list[Unplaced]:
    """The pods of a gang that a plan leaves, all of which another node may take.

    Args:
        name: ``namespace/name``.

    Raises:
        UnknownName: there is no such gang with waiting pods that the asker may see.
        ModelError: it needs no nodes, or new nodes would not help it.
    """
    namespace, _, own = name.partition("/")
    # The scenario's own: rounds may have put pods into the gangs of their controllers.
    keys = {
        pod.key
        for pod in (scenario.waiting() if context.sees(namespace) else ())
        if pod.gang is not None and (pod.gang.key.namespace, pod.gang.key.name) == (namespace, own)
    }
    if not keys:
        raise UnknownName(f"gang {name}", "there is no such gang of which pods wait")
    if skipped := sorted(keys & plan.skipped.keys()):
        raise ModelError(f"gang {name}", f"pod {skipped[0]} is not planned: {plan.skipped[skipped[0]]}")
    left = [each for each in plan.result.unplaced if each.pod.key in keys]
    if not left:
        raise ModelError(f"gang {name}", "the plan has nodes for all its pods: it needs no new ones")
    for pod_left in left:
        if not pod_left.more_nodes_help:
            problem = f"new nodes would not help pod {pod_left.pod.key}: {pod_left.reason}"
            raise ModelError(f"gang {name}", problem)
    return left


def nodes_for_gang(
    scenario: Scenario, left: Sequence[Unplaced], offered: Sequence[Offer], context: AnswerContext
) -> GangNodes:
    """New nodes of one shape with which a plan places all pods of a gang; the scenario stays the same.

    Args:
        left: see ``left_of_gang``.
        offered: new nodes for these pods alone, the best first.

    Raises:
        ModelError: no plan with new nodes places them all, or there is no time to find one.
    """
    first = left[0].pod
    gang = scenario.cluster.pods[first.key].gang
    shown = first.key if gang is None else gang.key.display_name
    keys = [each.pod.key for each in left]
    for offer in [each for each in offered if each.pods == len(keys)][:_MOST_SHAPES]:
        # Pods that come first may take some of the new nodes.
        for count in dict.fromkeys(min(offer.count * factor, MAX_NODES) for factor in (1, 2, 4)):
            if not context.patient():
                raise ModelError(shown, "there is no time for another plan; --direct takes as long as it needs")
            if _place_all(scenario, AddNodes(count, offer.like), keys, context):
                return GangNodes(shown, keys, offer.like, _fewest(scenario, AddNodes(count, offer.like), keys, context))
    raise ModelError(shown, "no plan with new nodes like those that are there places all its pods")


def _fewest(scenario: Scenario, change: AddNodes, keys: Sequence[str], context: AnswerContext) -> int:
    """How few of the new nodes were found to be enough, by halves: a plan spreads pods over more than they need."""
    too_few, enough = 0, change.count
    while too_few + 1 < enough and context.patient():
        middle = (too_few + enough) // 2
        if _place_all(scenario, AddNodes(middle, change.like), keys, context):
            enough = middle
        else:
            too_few = middle
    return enough


def _place_all(scenario: Scenario, change: AddNodes, keys: Sequence[str], context: AnswerContext) -> bool:
    """Whether a plan with new nodes has a node for each of these pods."""
    with applied(scenario, [change], context):
        after = outcome(scenario, context)
    return all(after.node_of(key) for key in keys)
