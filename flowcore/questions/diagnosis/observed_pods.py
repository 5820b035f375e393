"""Pods that another scheduler binds, and whose room the plan has only once others have left: nobody evicts these.

What stands in the way of such a pod, and what would place it, is told by a plan in which no pod leaves for pods that
Thalweg only observes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from flowcore.model.pods import Pod
from flowcore.questions.diagnosis.answers import Fix, WhyQuery
from flowcore.questions.diagnosis.finding import Finding, UnplacedCase
from flowcore.questions.diagnosis.fixes import find_fixes
from flowcore.questions.diagnosis.nothing_fits import nobody_leaves
from flowcore.questions.diagnosis.unplaced import why_unplaced
from flowcore.questions.scenario import GovernedScenario, Scenario, ScenarioPlan, plan_scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import Uncordon
from flowcore.questions.scenario.reading.edits import Edits


def needs_evictions_by_others(scenario: Scenario, plan: ScenarioPlan, pod: Pod) -> bool:
    """Whether a plan places a pod that is only observed, once others have left."""
    placed = next((each for each in plan.result.placements if each.pod.key == pod.key), None)
    return placed is not None and bool(placed.victims) and not GovernedScenario(scenario).policy_of(pod).delivery.acts


def without_evictions_by_others(
    scenario: Scenario, handed_over: Finding, keys: Sequence[str], query: WhyQuery, context: AnswerContext
) -> tuple[Finding, list[Fix]]:
    """A finding for such a pod with what stands in its way, and what would place it.

    Args:
        handed_over: of the plan with evictions.
        keys: of all pods that are asked about.
    """
    governed = GovernedScenario(scenario)
    observed = [pod for pod in scenario.waiting() if not governed.policy_of(pod).delivery.acts]
    with _nobody_leaves_for(observed, scenario):
        plan = plan_scenario(scenario, context.now, context.models)
        fixes = find_fixes(scenario, plan, keys, context) if query.fixes else []
        left = next((each for each in plan.result.unplaced if each.pod.key in keys), None)
        if left is None:
            return handed_over, fixes
        case = UnplacedCase(scenario, GovernedScenario(scenario), plan, left, context)
        why = why_unplaced(case)
        evictions = nobody_leaves(case)
    # That nobody evicts is said already.
    proofs = [each for each in why.evidence if each not in evictions]
    evidence = (f"Without evictions: {why.text}", *proofs, *handed_over.evidence)
    return replace(handed_over, evidence=evidence, next=why.next or handed_over.next), fixes


def spares_evictions(scenario: Scenario, plan: ScenarioPlan, keys: Sequence[str], context: AnswerContext) -> list[Fix]:
    """To uncordon a node, where the plan evicts others for these pods and nobody need leave then; else nothing."""
    evicting = {each.pod.key for each in plan.result.placements if each.victims}.intersection(keys)
    if not evicting or not any(node.unschedulable for node in scenario.cluster.nodes.values()):
        return []
    with _nobody_leaves_for([scenario.cluster.pods[key] for key in evicting], scenario):
        without = plan_scenario(scenario, context.now, context.models)
        fixes = find_fixes(scenario, without, sorted(evicting), context, budget_plans=1)
    return [fix for fix in fixes if not fix.loses and all(isinstance(each, Uncordon) for each in fix.change)]


@contextmanager
def _nobody_leaves_for(pods: Sequence[Pod], scenario: Scenario) -> Iterator[None]:
    edits = Edits(scenario)
    try:
        for pod in pods:
            edits.put_pod(msgspec.structs.replace(pod, preempts=False), as_given=True)
        yield
    finally:
        edits.undo()
