"""Which new nodes may take waiting pods, as they are or changed."""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.questions.diagnosis.fixes.proposals.waiting_pods import Wanted
from flowcore.questions.scenario import Scenario, ScenarioPlan
from flowcore.questions.scenario.alternatives.new_nodes.offers import Offer, offers
from flowcore.questions.scenario.alternatives.new_nodes.shapes import WaitingKind, in_its_gangs


def node_offers(wanted: Sequence[Wanted], scenario: Scenario, plan: ScenarioPlan) -> list[Offer]:
    """New nodes for these pods, the best first; see ``offers``.

    Args:
        plan: of the scenario as it is, which leaves these pods.
    """
    pending = {left.pod.key: left.pod for left in plan.result.unplaced}
    kinds = [
        in_its_gangs(WaitingKind(pods.pod.pod_class, pods.signature, count=len(pods.keys)), pending[pods.keys[0]], plan)
        for pods in wanted
    ]
    return offers(kinds, plan.result.after, scenario.permanent())
