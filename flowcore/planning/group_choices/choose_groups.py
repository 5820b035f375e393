"""Chooses which gangs of a tree a round places, where some of them are enough.

The gangs that are chosen are one atomic group, so a plan has as many groups as the tree needs, or none. The other gangs
wait for the next round: once enough groups are on their way, each of them is placed by itself. They are chosen, too,
if everything that waits has room. Source of the semantics: kube-scheduler schedule_one_podgroup.go
(compositePodGroupSchedulingDefaultAlgorithm), which tries the groups in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.gangs import Gang
from flowcore.planning.group_choices.choice import Choice
from flowcore.planning.group_choices.trial import Trial
from flowcore.planning.problem.passes import Pass
from flowcore.planning.problem.placements.candidate import Candidate, Decided
from flowcore.planning.problem.problem import Problem

#: Sets of gangs that a round really tries: for all trees together, and at most for one.
_MAX_TRIALS, _MAX_TRIALS_OF_ONE = 32, 16


class ChooseGroups(Pass):
    """Makes an atomic group of the chosen gangs of each tree, and a gang of all pods below each topology."""

    def __init__(self) -> None:
        self._slack = 0

    def apply(self, problem: Problem) -> Problem:
        """A snapshot in which the chosen gangs are known, and the others cannot be placed."""
        snapshot = problem.snapshot
        if not any(gang.above for gang in snapshot.gangs.values()):
            return problem
        choices = _choices(snapshot.gangs)
        unions = {
            gang.name: tuple(tree.name for tree in gang.above if tree.topology_key) for gang in snapshot.gangs.values()
        }
        united = _with_unions(snapshot, unions)
        # A tree that needs all of its gangs has no choice, and costs no trial.
        open_choices = [choice for choice in choices if not _is_forced(choice)]
        chosen = {choice.name: choice.all_gangs for choice in choices}
        if open_choices:
            trial = Trial(problem.with_snapshot(united), unions)
            most = _trials([trial.namespace(choice.all_gangs[0]) for choice in open_choices])
            chosen |= {choice.name: _chosen(choice, trial, n) for choice, n in zip(open_choices, most, strict=True)}
            partly = [choice for choice in open_choices if len(chosen[choice.name]) < len(choice.all_gangs)]
            self._slack = sum(trial.price(gang) for choice in partly for gang in choice.all_gangs)
        return problem.with_snapshot(_resolved(united, choices, chosen, unions))

    def invert(self, candidate: Candidate) -> Candidate:
        """Another choice may cost less: by as much as the pods of these trees cost, if they pay nothing there."""
        return candidate.with_decided(Decided(slack=self._slack)) if self._slack else candidate


def _choices(gangs: Mapping[str, Gang]) -> list[Choice]:
    """The trees that lack some of their groups, with the gangs that may be placed."""
    roots: dict[str, Choice] = {}
    for gang in sorted(gangs.values(), key=lambda gang: gang.name):
        # What is above the first that lacks something has what it needs without it.
        lacking = next((level for level, tree in enumerate(gang.above) if tree.missing), None)
        if lacking is None or gang.min_placed <= 0 or gang.unschedulable_reason:
            continue
        root, *below = gang.above[lacking:]
        choice = roots.setdefault(root.name, Choice(root.name, root.missing))
        for tree in below:
            choice = choice.below.setdefault(tree.name, Choice(tree.name, tree.missing))
        choice.gangs.append(gang.name)
    return list(roots.values())


def _is_forced(choice: Choice) -> bool:
    """Whether no group of it can be left out."""
    return choice.missing == len(choice.gangs) + len(choice.below) and all(map(_is_forced, choice.below.values()))


def _trials(namespaces: Sequence[str]) -> list[int]:
    """How many sets may be tried of each tree, by the namespaces of these: a namespace with many takes none of others.

    Namespaces take turns, and so do the trees of each.
    """
    trees: dict[str, list[int]] = {}
    for number, namespace in enumerate(namespaces):
        trees.setdefault(namespace, []).append(number)
    most, turns = [0] * len(namespaces), cycle([cycle(numbers) for numbers in trees.values()])
    for numbers in islice(turns, min(_MAX_TRIALS, _MAX_TRIALS_OF_ONE * len(most))):
        most[next(numbers)] += 1
    return most


def _chosen(choice: Choice, trial: Trial, most: int) -> tuple[str, ...]:
    """The gangs of a tree that the round places together; where none fit, those that need least.

    Args:
        most: sets that may be tried.
    """
    sizes = {gang: trial.size(gang) for gang in choice.all_gangs}
    too_large = {gang for gang in sizes if not trial.may_fit(gang)}
    left = most

    def fits(gangs: tuple[str, ...]) -> bool:
        nonlocal left
        if not left or not too_large.isdisjoint(gangs):
            return False
        left -= 1
        return trial.fits(gangs)

    smallest = next(choice.sets(sizes), ())
    if smallest and trial.is_calm and fits(choice.all_gangs):
        return choice.all_gangs
    if not smallest or fits(smallest):
        return smallest
    placeable = _without(choice, too_large)
    grown = placeable.grown(sizes, fits)
    if grown is not None:
        return grown
    return next((gangs for gangs in islice(placeable.sets(sizes), left) if fits(gangs)), smallest)


def _without(choice: Choice, gangs: set[str]) -> Choice:
    """The same without some gangs."""
    below = {name: _without(each, gangs) for name, each in choice.below.items()}
    return Choice(choice.name, choice.missing, [gang for gang in choice.gangs if gang not in gangs], below)


def _with_unions(snapshot: Snapshot, unions: Mapping[str, tuple[str, ...]]) -> Snapshot:
    """The pods below a topology are in one more gang, for each of these topologies."""
    gangs = {
        tree.name: Gang(tree.name, 0, topology_key=tree.topology_key, domain=tree.domain)
        for gang in snapshot.gangs.values()
        for tree in gang.above
        if tree.topology_key
    }

    def united(pod: PendingPod) -> PendingPod:
        names = tuple(union for name in pod.gangs for union in unions.get(name, ()))
        return msgspec.structs.replace(pod, gangs=(*pod.gangs, *names)) if names else pod

    return replace(snapshot, pending=tuple(map(united, snapshot.pending)), gangs={**snapshot.gangs, **gangs})


def _resolved(
    snapshot: Snapshot,
    choices: list[Choice],
    chosen: Mapping[str, tuple[str, ...]],
    unions: Mapping[str, tuple[str, ...]],
) -> Snapshot:
    """The chosen gangs are one atomic group for each tree. The others wait, and are in no gang with the chosen ones."""
    gangs, left = dict(snapshot.gangs), set[str]()
    for choice in choices:
        for name in choice.all_gangs:
            if name in chosen[choice.name]:
                gangs[name] = msgspec.structs.replace(
                    gangs[name], atomic_group=choice.name, is_choice=len(chosen[choice.name]) < len(choice.all_gangs)
                )
            else:
                reason = f"{name}: other groups of {choice.name} go first"
                gangs[name] = msgspec.structs.replace(gangs[name], unschedulable_reason=reason, is_choice=True)
                left.add(name)

    def resolved(pod: PendingPod) -> PendingPod:
        shared = {union for name in pod.gangs if name in left for union in unions[name]}
        if not shared:
            return pod
        return msgspec.structs.replace(pod, gangs=tuple(name for name in pod.gangs if name not in shared))

    pending = tuple(map(resolved, snapshot.pending)) if left else snapshot.pending
    return replace(snapshot, pending=pending, gangs=gangs)
