"""Gangs that wait: pods are missing, or there is no room for all at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from flowcore.model.amount_text import counted
from flowcore.model.gang_spec import GangKey
from flowcore.planning.problem.result import Placement
from flowcore.questions.diagnosis.answers import WhyKind
from flowcore.questions.diagnosis.finding import Finding, UnplacedCase
from flowcore.questions.diagnosis.lists import listed, listed_pods
from flowcore.questions.diagnosis.nothing_fits import excluding_filters, keeps_out
from flowcore.questions.diagnosis.policy_terms import gang_of_constraint
from flowcore.questions.scenario import plan_scenario
from flowcore.rules.reasons.kept_domains import domain_without_room, nodes_of_domain
from flowcore.rules.reasons.shortage import lacks_in_words, shortage


def gang_incomplete(pod: UnplacedCase) -> Finding:
    """The finding for a pod of a gang that no plan can place, whatever room there is."""
    key = _key(pod)
    if key is None:
        return gang_of_constraint(pod) or Finding(
            WhyKind.GANG_INCOMPLETE, pod.unplaced.reason, next="Mend what the reason names."
        )
    gangs = pod.scenario.cluster.gangs
    state, (waiting, bound) = gangs.state(key), gangs.members(key)
    needed, present = state.spec.min_member or 0, len(waiting) + len(bound) + state.succeeded_count
    evidence = f"{key.display_name} needs {needed} pods: {len(waiting)} wait, {len(bound)} have a node"
    evidence += f", {state.succeeded_count} succeeded." if state.succeeded_count else "."
    if not needed:  # how many it needs is not known
        evidence = f"{counted(len(waiting), 'pod')} of it {'waits' if len(waiting) == 1 else 'wait'}."
    step = "Mend what the reason names."
    if key.source.has_pod_groups and key not in gangs.groups:
        step = f"Create {key.display_name}, or let the {'pod' if len(waiting) == 1 else 'pods'} name another one."
    if present < needed:
        more = f"{needed - present} more {'pod' if needed - present == 1 else 'pods'}"
        step = f"Create {more} of it, or lower its minMember."
    return Finding(WhyKind.GANG_INCOMPLETE, pod.unplaced.reason, (evidence,), step)


def gang_without_room(pod: UnplacedCase) -> Finding:
    """The finding for a gang that finds no room as a whole: whether it would by itself tells who has the room."""
    others = _members(pod)
    alone = plan_scenario(pod.scenario, pod.context.now, pod.context.models, only=others).result
    placements = [entry for entry in alone.placements if entry.pod.key in others]
    if any(entry.pod.key == pod.key for entry in placements):
        return _room_taken(pod, placements, len(others))
    if finding := gang_of_constraint(pod):
        return finding
    reason = next((entry.reason for entry in alone.unplaced if entry.pod.key == pod.key), pod.unplaced.reason)
    evidence = [] if reason == pod.unplaced.reason else [f"By itself, with no other waiting pod: {reason}"]
    waiting = [entry.pod for entry in alone.unplaced if entry.pod.key in others]
    step = "Ask for less, lower its minMember, or add nodes."
    if full := _full_domain(pod):
        domain, lacking = full
        evidence.append(lacking)
        step = f"Free room in {domain}, or add a node there."
    elif lacks := lacks_in_words(shortage(waiting, alone.after)):
        evidence.append(f"What is short: {lacks}.")
    if not pod.before.fits.any():
        evidence += [*keeps_out(pod), *excluding_filters(pod.before)]
    return Finding(WhyKind.NOTHING_FITS, pod.unplaced.reason, tuple(evidence), step)


def _full_domain(pod: UnplacedCase) -> tuple[str, str] | None:
    """The domain of its gang where no node takes the pod, and a sentence on what they lack; None: one would take it."""
    gangs, verdicts = pod.plan.before.gangs, pod.before
    kept = [gangs[name] for name in pod.unplaced.pod.gangs if name in gangs]
    gang = domain_without_room(kept, verdicts.fits, verdicts.table)
    if gang is None:
        return None
    domain, nodes = f"{gang.topology_key} {gang.domain}", nodes_of_domain(gang, verdicts.table)
    counts = Counter(verdicts.of_node(node)[1] for node in np.flatnonzero(nodes).tolist())
    if not counts:
        return domain, f"No node is in {domain} now."
    return domain, f"Of the nodes of {domain}: {listed(sorted(f'{count} {why}' for why, count in counts.items()))}."


def _room_taken(pod: UnplacedCase, placements: Sequence[Placement], size: int) -> Finding:
    nodes = {placement.node for placement in placements}
    takers = [
        placement for placement in pod.plan.result.placements if placement.node in nodes and placement.unscheduled_price
    ]
    takers.sort(key=lambda placement: (placement.unscheduled_price, placement.pod.key))
    evidence = [f"By itself, with no other waiting pod, it would be placed on {_nodes(nodes)}."]
    if takers:
        price, own = sum(placement.unscheduled_price for placement in takers), pod.unplaced.price * size
        names = listed_pods([placement.pod.key for placement in takers], pod.context)
        evidence.append(f"The plan places {names} there. To leave them costs {price}, to leave the gang {own}.")
    return Finding(
        WhyKind.ROOM_TAKEN, pod.unplaced.reason, tuple(evidence), "Give its pods a higher priority, or add room."
    )


def _nodes(names: set[str]) -> str:
    return listed(sorted(names))


def _members(pod: UnplacedCase) -> set[str]:
    """Keys of the pods of the plan that are in a gang with a pod, or in a gang of the same group."""
    gangs = pod.plan.result.after.gangs
    names = set(pod.unplaced.pod.gangs)
    units = {gangs[name].atomic_group for name in names if name in gangs} - {""}
    names |= {name for name, gang in gangs.items() if gang.atomic_group in units}
    # Those of the result know the gangs that constraints of policies make, too.
    result = pod.plan.result
    pods = [*(each.pod for each in result.placements), *(each.pod for each in result.unplaced)]
    return {each.key for each in pods if not names.isdisjoint(each.gangs)} | {pod.key}


def _key(pod: UnplacedCase) -> GangKey | None:
    gang = pod.scenario.cluster.pods[pod.key].gang
    return None if gang is None else gang.key
