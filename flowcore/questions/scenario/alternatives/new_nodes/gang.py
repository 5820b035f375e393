"""New nodes for one gang: which pods of it need them, and a plan with new nodes that places them all."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowcore.model.errors import ModelError
from flowcore.planning.round import Unplaced
from flowcore.questions.scenario.alternatives.new_nodes.nodes_needed import nodes_needed
from flowcore.questions.scenario.alternatives.new_nodes.offers import Offer
from flowcore.questions.scenario.alternatives.new_nodes.shapes import new_nodes_may_take
from flowcore.questions.scenario.alternatives.replanning import Replanning
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.near_names import did_you_mean
from flowcore.questions.scenario.plan import ScenarioPlan
from flowcore.questions.scenario.scenario import Scenario

#: Shapes of new nodes, and plans, that are tried at most.
_MOST_SHAPES, _MOST_PLANS = 8, 40


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
        waiting = (pod for pod in scenario.waiting() if pod.gang is not None and context.sees(pod.namespace))
        near = did_you_mean(name, {f"{pod.namespace}/{pod.gang.key.name}" for pod in waiting if pod.gang is not None})
        raise UnknownName(f"gang {name}", f"there is no such gang of which pods wait{near}")
    if skipped := sorted(keys & plan.skipped.keys()):
        raise ModelError(f"gang {name}", f"pod {skipped[0]} is not planned: {plan.skipped[skipped[0]]}")
    left = [each for each in plan.result.unplaced if each.pod.key in keys]
    if not left:
        raise ModelError(f"gang {name}", "the plan has nodes for all its pods: it needs no new ones")
    helped = {each.pod.key for each in new_nodes_may_take(left, scenario.permanent(), plan)}
    for pod_left in left:
        if pod_left.pod.key not in helped:
            problem = f"new nodes would not help pod {pod_left.pod.key}: {pod_left.reason}"
            raise ModelError(f"gang {name}", problem)
    return left


def nodes_for_gang(
    scenario: Scenario,
    plan: ScenarioPlan,
    left: Sequence[Unplaced],
    offered: Sequence[Offer],
    context: AnswerContext,
) -> GangNodes:
    """New nodes of one shape with which a plan places all pods of a gang; the scenario stays the same.

    Args:
        plan: of the scenario as it is.
        left: see ``left_of_gang``.
        offered: new nodes for these pods alone, the best first.

    Raises:
        ModelError: no plan with new nodes places them all, or there is no time to find one.
    """
    first = left[0].pod
    gang = scenario.cluster.pods[first.key].gang
    shown = first.key if gang is None else gang.key.display_name
    keys = [each.pod.key for each in left]
    replanning = Replanning(scenario, plan, context, _MOST_PLANS)
    for offer in offered[:_MOST_SHAPES]:
        needed = nodes_needed(replanning, offer, lambda outcome: int(outcome.places_all(keys)), every=1)
        if needed is not None:
            return GangNodes(shown, keys, offer.like, needed.added.count)
        if not context.patient():
            raise ModelError(shown, "there is no time for another plan; --direct takes as long as it needs")
    raise ModelError(shown, "no plan with new nodes like those that are there places all its pods")
