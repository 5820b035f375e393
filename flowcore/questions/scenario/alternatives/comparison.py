"""A scenario's plan beside the same pods placed one by one, as kube-scheduler places them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs import MODELS, CostModel
from flowcore.model.cost_policy import CostPolicy, CostWeights, UnscheduledPrice
from flowcore.model.gangs import Gang
from flowcore.model.policies import Policy
from flowcore.model.resources import PODS
from flowcore.planning.round import Placement, RoundResult, run_one_by_one
from flowcore.questions.scenario.plan import ScenarioPlan
from flowcore.questions.scenario.scenario import GovernedScenario, Scenario


class PlacementFigures(msgspec.Struct, frozen=True, rename="camel"):
    """What one way of scheduling does with the waiting pods.

    Attributes:
        placed: pods with a node that has room for them now.
        placed_after_evictions: pods with a node, once running pods have left it.
        moved, evicted: running pods that leave their node with room reserved on another, and without.
        waiting: pods without a node, those that neither way may place among them.
        whole_gangs: gangs that have all the pods that they need.
        pods_of_incomplete_gangs: placed pods whose gang lacks others: they hold room and are of no use.
        used: resource -> amount that pods hold afterwards, in the unit of ``Comparison.allocatable``.
        held_by_incomplete_gangs: resource -> the part of ``used`` that these pods request, if they do.
    """

    placed: int
    placed_after_evictions: int
    moved: int
    evicted: int
    waiting: int
    whole_gangs: int
    pods_of_incomplete_gangs: int
    used: dict[str, int]
    held_by_incomplete_gangs: dict[str, int]

    @property
    def useful(self) -> int:
        """Placed pods that can do their work: those of incomplete gangs wait for others."""
        return self.placed + self.placed_after_evictions - self.pods_of_incomplete_gangs


class Comparison(msgspec.Struct, frozen=True, rename="camel"):
    """Both ways for the same waiting pods.

    Attributes:
        gangs: gangs of the waiting pods that still need some of them.
        allocatable: resource -> amount of all nodes: milli-cores, bytes, else pieces. What no node offers is left out.
        used_before: resource -> amount that running pods hold.
        thalweg: what Thalweg's plan does.
        one_by_one: what placing the pods one by one does.
        only_thalweg, only_one_by_one: keys of the pods that only one of the ways places.
    """

    gangs: int
    allocatable: dict[str, int]
    used_before: dict[str, int]
    thalweg: PlacementFigures
    one_by_one: PlacementFigures
    only_thalweg: tuple[str, ...]
    only_one_by_one: tuple[str, ...]


def compare_one_by_one(scenario: Scenario, plan: ScenarioPlan, models: Mapping[str, CostModel] = MODELS) -> Comparison:
    """Places the pods of a plan one by one, and sets that beside the plan.

    One by one, each pod in its turn (priority, then age) takes the best node by kube-scheduler's filters and a model of
    its scores. Constraints of policies hold in both ways. One by one knows no gangs and no queues, and evicts no pods.

    Args:
        scenario: what was planned.
        models: as for the plan.
    """
    snapshot, result = plan.before, plan.result
    governed = GovernedScenario(scenario)
    policies = {name: scored_as_kube_scheduler(policy) for name, policy in governed.policies.items()}
    sequential = run_one_by_one(snapshot, policies, models)
    placed, placed_one_by_one = (
        {placement.pod.key for placement in outcome.placements} for outcome in (result, sequential)
    )
    return Comparison(
        gangs=sum(gang.min_placed > 0 and not gang.slice_of for gang in snapshot.gangs.values()),
        allocatable={name: amount for name, amount in _amounts(snapshot, snapshot.allocatable).items() if amount},
        used_before=_amounts(snapshot, snapshot.used),
        thalweg=_outcome(snapshot, result, len(plan.skipped)),
        one_by_one=_outcome(snapshot, sequential, len(plan.skipped)),
        only_thalweg=tuple(pod.key for pod in snapshot.pending if pod.key in placed - placed_one_by_one),
        only_one_by_one=tuple(pod.key for pod in snapshot.pending if pod.key in placed_one_by_one - placed),
    )


def scored_as_kube_scheduler(policy: Policy) -> Policy:
    """The policy with the scores that kube-scheduler has: it does not keep pods off idle devices, and never waits."""
    cost = CostPolicy(weights=CostWeights(idle_resources=0))
    return msgspec.structs.replace(policy, cost=cost, unscheduled=UnscheduledPrice())


def _outcome(snapshot: Snapshot, result: RoundResult, not_planned: int) -> PlacementFigures:
    whole, members, held = _whole_gangs(snapshot, result.placements), 0, Counter[str]()
    for placement in result.placements:
        # What a round itself made gangs of is not among those of the snapshot.
        asking = (name for name in placement.pod.gangs if name in snapshot.gangs)
        if any(snapshot.gangs[name].min_placed > 0 and name not in whole for name in asking):
            members += 1
            held.update({name: amount for name, amount in placement.pod.pod_class.requests if amount})
    later = sum(bool(placement.victims) for placement in result.placements)
    return PlacementFigures(
        placed=len(result.placements) - later,
        placed_after_evictions=later,
        moved=sum(bool(each.to) for each in result.evictions),
        evicted=sum(not each.to for each in result.evictions),
        waiting=len(result.unplaced) + not_planned,
        whole_gangs=sum(not snapshot.gangs[name].slice_of for name in whole),
        pods_of_incomplete_gangs=members,
        used=_amounts(snapshot, result.after.used),
        held_by_incomplete_gangs=dict(held),
    )


def _whole_gangs(snapshot: Snapshot, placements: Iterable[Placement]) -> set[str]:
    """Names of the gangs that needed pods and have them; of gangs that need each other, and of slices, all or none."""
    nodes = defaultdict[str, list[int]](list)
    for placement in placements:
        for name in placement.pod.gangs:
            nodes[name].append(snapshot.table.index[placement.node])
    asking = [gang for gang in snapshot.gangs.values() if gang.min_placed > 0]
    incomplete = {_whole_name(gang) for gang in asking if not _is_whole(gang, nodes[gang.name], snapshot)}
    return {gang.name for gang in asking if _whole_name(gang) not in incomplete}


def _whole_name(gang: Gang) -> str:
    """What is placed as a whole with a gang."""
    return gang.atomic_group or gang.slice_of or gang.name


def _is_whole(gang: Gang, nodes: list[int], snapshot: Snapshot) -> bool:
    """Whether the placed pods are enough, and in one domain.

    Args:
        nodes: row of the node of each placed pod.
    """
    if gang.unschedulable_reason or len(nodes) < gang.min_placed:
        return False
    if not gang.topology_key:
        return True
    column = snapshot.table.column(gang.topology_key)
    domains = {column.values[code] if code >= 0 else "" for code in column.codes[nodes].tolist()}
    return len(domains) == 1 and "" not in domains and (not gang.domain or domains == {gang.domain})


def _amounts(snapshot: Snapshot, table: Int64s) -> dict[str, int]:
    """Sums over all nodes of an array of shape (nodes, resources); without the count of pods."""
    sums = table.sum(axis=0).tolist()
    return {name: amount for name, amount in zip(snapshot.resources, sums, strict=True) if name != PODS}
