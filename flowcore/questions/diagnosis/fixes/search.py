"""The search for the cheapest changes that place waiting pods.

Filters say at once what may help, for all nodes. Each such change is planned, with all other pods in the plan, before
it is offered; the plans are what costs, so their number is limited.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import filterfalse, islice

from flowcore.model.pods import Pod
from flowcore.model.workloads import workload_of
from flowcore.questions.diagnosis.answers import Fix
from flowcore.questions.diagnosis.fixes.displacement import (
    at_priority,
    displaced_priority,
    eviction_of_victims,
    priority_levels,
)
from flowcore.questions.diagnosis.fixes.proposals.filter_proposals import Proposal, Relaxed
from flowcore.questions.diagnosis.fixes.proposals.more_nodes import node_offers
from flowcore.questions.diagnosis.fixes.proposals.moves import moves
from flowcore.questions.diagnosis.fixes.proposals.queue_limits import queue_limits
from flowcore.questions.diagnosis.fixes.proposals.waiting_pods import Judge, Wanted, wanted_pods
from flowcore.questions.diagnosis.fixes.ranking import Rank, rank, size
from flowcore.questions.diagnosis.fixes.words import sentence
from flowcore.questions.scenario import Scenario, ScenarioPlan
from flowcore.questions.scenario.alternatives.new_nodes.nodes_needed import NodesNeeded, nodes_needed
from flowcore.questions.scenario.alternatives.new_nodes.offers import MAX_NODES, Offer
from flowcore.questions.scenario.alternatives.new_nodes.shapes import new_nodes_may_take
from flowcore.questions.scenario.alternatives.replanning import PlanDifference, Replanning
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import (
    AddNodes,
    Change,
    EvictPods,
    MovePod,
    RemoveTaint,
    ReplaceDeviceSelector,
    ReplaceNodeLabel,
    Uncordon,
)
from flowcore.rules.reasons.codes import GANG_INCOMPLETE, NETWORK_REFUSED, REPLACEMENT
from flowcore.rules.reasons.preemption import evictions_that_help

#: Most fixes.
DEFAULT_LIMIT = 5
#: How many plans are made: they read about this number of pods together, within these bounds.
_PODS_READ, _FEWEST_PLANS, _MOST_PLANS = 600_000, 3, 8
#: Plans more for the least number of new nodes.
_MOST_NODE_PLANS = 8
#: Most plans of one sort of changes, so that the others have their turn.
_MAX_UNCORDONED, _MAX_SINGLES, _MAX_PAIRS, _MAX_MOVES, _MAX_SHAPES = 1, 5, 4, 2, 4
#: How many of one sort are enough.
_ENOUGH = 3
#: Most plans for a lowest priority.
_MAX_BISECTIONS = 2
#: Changes that concern no pod, and of which no larger number is offered: equal pods gain by them alike.
_OF_NODES = (MovePod, RemoveTaint, Uncordon)
#: Codes of pods that wait for other pods, not for room or for a rule of their own.
_BEYOND_CHANGES = frozenset((GANG_INCOMPLETE, REPLACEMENT, NETWORK_REFUSED))


def find_fixes(
    scenario: Scenario,
    plan: ScenarioPlan,
    keys: Sequence[str],
    context: AnswerContext,
    *,
    limit: int = DEFAULT_LIMIT,
    budget_plans: int | None = None,
) -> list[Fix]:
    """The cheapest changes that would place waiting pods, each of them planned.

    They are in the order of ``ranking.rank``. An asker is offered no change of an object that they may not read.

    Args:
        plan: of the scenario as it is.
        keys: of the pods to place: one, or all that wait of a gang or a workload. Pods that the plan places or that may
            not be planned are left out.
        limit: most fixes.
        budget_plans: most plans; None: eight, and fewer where a cluster has more than 75,000 pods.

    Returns:
        the cheapest first; none where no pod was left waiting, or nothing was found.
    """
    asked = set(keys)
    unplaced = [
        unplaced.pod.key
        for unplaced in plan.result.unplaced
        if unplaced.pod.key in asked and unplaced.code not in _BEYOND_CHANGES
    ]
    if not unplaced:
        return []
    unplaced = _with_their_gangs(unplaced, plan, context)
    if budget_plans is None:
        budget_plans = max(_FEWEST_PLANS, min(_MOST_PLANS, _PODS_READ // len(scenario.cluster.pods)))
    return _Search(scenario, plan, unplaced, context, budget_plans).run(limit)


def _with_their_gangs(keys: Sequence[str], plan: ScenarioPlan, context: AnswerContext) -> list[str]:
    """The same pods and those without which they cannot be placed, as far as the asker may see them, in plan order."""
    unplaced = {each.pod.key: set(each.pod.gangs) for each in plan.result.unplaced}
    asking = {name for name, gang in plan.before.gangs.items() if gang.min_placed > 0}
    names = {name for key in keys for name in unplaced[key]} & asking
    wanted = (key for key, gangs in unplaced.items() if key in keys or not names.isdisjoint(gangs))
    return context.visible(wanted)


def _pods_like(scenario: Scenario, plan: ScenarioPlan, pods: Sequence[Pod], context: AnswerContext) -> list[Pod]:
    """A lone pod and those of its workload that wait as it does: nothing but names tells them apart. Else none."""
    if len(pods) != 1 or pods[0].gang is not None:
        return []
    (pod,) = pods
    named = workload_of(pod)
    waiting = (scenario.cluster.waiting[each.pod.key] for each in plan.result.unplaced)
    alike = [each for each in waiting if each.pod_class == pod.pod_class and workload_of(each) == named]
    return alike if len(context.visible([each.key for each in alike])) == len(alike) else []


class _Search:
    def __init__(
        self, scenario: Scenario, plan: ScenarioPlan, keys: Sequence[str], context: AnswerContext, budget_plans: int
    ) -> None:
        self._scenario, self._plan, self._keys, self._context = scenario, plan, tuple(keys), context
        self._pods: list[Pod] = [scenario.cluster.waiting[key] for key in keys]
        self._alike = _pods_like(scenario, plan, self._pods, context)
        self._wanted = wanted_pods(scenario, keys)
        self._judge = Judge(plan.result.after, context.patient)
        self._replanning = Replanning(scenario, plan, context, budget_plans)
        self._node_plans = min(_MOST_NODE_PLANS, budget_plans)
        self._relaxed = Relaxed(self._judge, self._wanted)
        self._found: list[tuple[Rank, Fix]] = []

    def run(self, limit: int) -> list[Fix]:
        """The cheapest fixes, at most ``limit``."""
        self._try(queue_limits(self._scenario, self._plan, self._pods), _MAX_SINGLES)
        singles = self._by_size(self._relaxed.singles())
        self._try(filter(_uncordons, singles), _MAX_UNCORDONED, enough=1)
        self._try(self._moves(), _MAX_MOVES, enough=1)
        # Half of the plans are kept for other sorts of changes.
        self._try(filterfalse(_uncordons, singles), max(1, self._replanning.left // 2))
        asked = set(self._keys)
        left = [each for each in self._plan.result.unplaced if each.pod.key in asked]
        if new_nodes_may_take(left, self._scenario.permanent(), self._plan):
            self._add_nodes(self._wanted, ())
        if self._harmless() < limit:
            self._displace(())
        if not self._harmless():
            # What other waiting pods get in the plan, and what running pods have, may be theirs.
            contested = Relaxed(Judge(self._plan.before, self._context.patient), self._wanted)
            self._try(self._by_size(contested.singles()), _MAX_SINGLES)
            self._try(self._by_size(self._relaxed.singles(others=True)), _MAX_SINGLES)
        if not self._found:
            self._try(self._by_size(self._relaxed.pairs()), _MAX_PAIRS)
        if not self._found:
            self._relax_and_make_room()
        self._found.sort(key=lambda fix_entry: fix_entry[0])
        return [fix for _, fix in self._found[:limit]]

    def _harmless(self) -> int:
        """How many fixes were found by which no pod loses a place."""
        return sum(not known.losers for known, _ in self._found)

    # --- sorts of changes ---

    def _by_size(self, proposals: Iterable[Proposal]) -> list[Proposal]:
        return sorted(proposals, key=lambda proposal: size(proposal, self._pods))

    def _moves(self) -> Iterable[Proposal]:
        running = self._plan.before.running
        if running is None or self._judge.fits(self._wanted[0]).any():
            return
        leaving = {eviction.pod.key for eviction in self._plan.result.evictions}
        for change in moves(self._scenario, self._wanted[0], self._judge, running, leaving):
            yield (change,)

    def _add_nodes(self, wanted: Sequence[Wanted], before: Proposal) -> None:
        """The fewest new nodes of the first shape that helps; and the fewest by which nobody else loses a place."""
        if not self._context.nodes or self._replanning.left <= 0:
            return
        kept = self._replanning.left
        self._replanning.left += self._node_plans
        for offer in islice(node_offers(wanted, self._scenario, self._plan), _MAX_SHAPES):
            fewest = self._fewest(offer, before, self._placed)
            if fewest is None:
                continue
            self._offer((*before, fewest.added), at_most=not fewest.proven)
            if fewest.outcome.loses:
                more = replace(offer, count=min(MAX_NODES, 2 * fewest.added.count))
                sparing = self._fewest(more, before, lambda outcome: 0 if outcome.loses else self._placed(outcome))
                if sparing is not None:
                    self._offer((*before, sparing.added), at_most=not sparing.proven)
            break
        self._replanning.left = min(self._replanning.left, kept)

    def _fewest(self, offer: Offer, before: Proposal, worth: Callable[[PlanDifference], int]) -> NodesNeeded | None:
        return nodes_needed(self._replanning, offer, worth, every=len(self._keys), before=before)

    def _placed(self, outcome: PlanDifference) -> int:
        """How many of the pods get a node."""
        return len(self._keys) - self._left(outcome)

    def _displace(self, before: Proposal) -> None:
        """A higher priority, and the eviction of the pods that would leave for it."""
        levels = priority_levels(self._scenario, self._pods)
        highest = self._outcome((*before, *at_priority(self._pods, levels[-1]))) if levels else None
        if highest is None or self._left(highest) == len(self._keys):
            self._try(self._evictions_beside_partners() if not before else (), 1)
            return
        self._offer((*before, *at_priority(self._pods, self._lowest(before, levels, highest))))
        victims = eviction_of_victims(self._plan, highest)
        if victims:
            self._offer((*before, *victims))

    def _evictions_beside_partners(self) -> Iterable[Proposal]:
        """Evictions that preemption does not come to: it would take a partner of the pod away first."""
        keys, running = set(self._keys), self._plan.before.running
        waiting = next((each.pod for each in self._plan.result.unplaced if each.pod.key in keys), None)
        if waiting is None or running is None:
            return
        evictions = evictions_that_help(waiting, running, self._judge.snapshot)
        if evictions is not None and evictions.partners:
            yield (EvictPods(sorted(each.key for each in evictions.pods)),)

    def _lowest(self, before: Proposal, levels: Sequence[int], highest: PlanDifference) -> int:
        """The lowest priority that leaves no more pods waiting, as far as some plans tell."""
        left, displaced = self._left(highest), displaced_priority(self._scenario, highest)
        least, most = 0, len(levels) - 1
        for step in range(_MAX_BISECTIONS):
            if least >= most:
                break
            # Whom the highest priority displaces is what is most likely needed.
            middle = bisect_left(levels, displaced + 1, least, most - 1) if not step else (least + most) // 2
            outcome = self._outcome((*before, *at_priority(self._pods, levels[middle])))
            if outcome is not None and self._left(outcome) <= left:
                most = middle
            else:
                least = middle + 1
        return levels[most]

    def _relax_and_make_room(self) -> None:
        """A relaxation, and room that others make or new nodes bring."""
        for lifted, changes in islice(self._relaxed.rules(), _MAX_PAIRS):
            self._add_nodes(lifted, changes)
            if all(self._judge.fits(pods.without_requests()).any() for pods in lifted):
                self._displace(changes)
            if self._found:
                return

    # --- plans ---

    def _try(self, proposals: Iterable[Proposal], most: int, *, enough: int = _ENOUGH) -> None:
        """Plans with the first ``most`` proposals at most, until ``enough`` have helped."""
        helped = 0
        for proposal in islice(proposals, most):
            helped += self._offer(proposal)
            if helped == enough:
                return

    def _outcome(self, changes: Sequence[Change]) -> PlanDifference | None:
        return self._replanning.outcome(changes) if self._may_offer(changes) else None

    def _left(self, outcome: PlanDifference) -> int:
        """How many of the pods wait on."""
        return outcome.left(self._keys)

    def _offer(self, changes: Sequence[Change], *, at_most: bool = False) -> bool:
        """Keeps changes that a plan says place any of the pods, and not at the cost of others of their workload."""
        outcome = self._outcome(changes)
        if outcome is None:
            return False
        pods, left = self._pods, self._left(outcome)
        by_chance = left == len(pods) and all(isinstance(change, _OF_NODES) for change in changes)
        if by_chance:
            pods, left = self._alike, outcome.left([pod.key for pod in self._alike])
        if left == len(pods):
            return False
        own = {outcome.workloads[key] for key in self._keys}
        if any(outcome.workloads[key] in own for key in outcome.loses):
            return False
        fix = Fix(
            sentence(
                changes,
                outcome,
                pods,
                left,
                self._context,
                self._scenario.cluster.gangs,
                at_most=at_most,
                alike=by_chance,
            ),
            list(changes),
            self._context.visible(outcome.places),
            self._context.visible(outcome.loses),
            self._context.visible(outcome.moves),
        )
        if all(known.change != fix.change for _, known in self._found):
            ranked = rank(self._scenario, pods, changes, outcome)
            self._found.append((ranked._replace(left=0) if by_chance else ranked, fix))
        return True

    def _may_offer(self, changes: Sequence[Change]) -> bool:
        for change in changes:
            match change:
                case EvictPods():
                    if any(not self._context.may_name(key) for key in change.pods):
                        return False
                case MovePod():
                    if not self._context.nodes or not self._context.may_name(change.pod):
                        return False
                case AddNodes() | RemoveTaint() | Uncordon() | ReplaceNodeLabel():
                    if not self._context.nodes:
                        return False
                case ReplaceDeviceSelector():
                    # Another value is one that devices of nodes have.
                    if change.new_selector and not self._context.nodes:
                        return False
                case _:
                    pass
        return True


def _uncordons(changes: Proposal) -> bool:
    return all(isinstance(change, Uncordon) for change in changes)
