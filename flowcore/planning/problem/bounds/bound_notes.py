"""What a lower bound does not count in full: parts of a problem that make it weak."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from flowcore.rules.topology.round_constraints.constraints import TopologyConstraints


class BoundNote(StrEnum):
    """A part that a bound does not count in full."""

    ALONE = "Alone"
    FRACTIONS = "Fractions"
    RULES = "Rules"
    PREFERENCES = "Preferences"
    GANGS = "Gangs"
    RUNNING_PODS = "RunningPods"
    GAINS = "Gains"
    PRIORITIES = "Priorities"
    NO_RULES = "NoRules"
    MAY_LEAVE = "MayLeave"
    ANY_COST = "AnyCost"
    DECIDED = "Decided"
    WAYS = "Ways"

    @property
    def clause(self) -> str:
        """How the bound counts it, to follow "the bound counts"."""
        return _CLAUSES[self]


_CLAUSES = {
    BoundNote.ALONE: "each pod as if it were alone in the round",
    BoundNote.FRACTIONS: "pods as if they could be split among nodes",
    BoundNote.RULES: "rules between pods as capacities of domains only",
    BoundNote.PREFERENCES: "what pods of the plan cost beside each other as nothing",
    BoundNote.GANGS: "gangs pod by pod, not by the room that they need at once",
    BoundNote.RUNNING_PODS: (
        "running pods that may leave as gone, within budgets and shares, and rules between pods as far as others stay"
    ),
    BoundNote.GAINS: "moves for gain as if pods could be split, or one by one, from the fullest node to the emptiest",
    BoundNote.PRIORITIES: "a priority by its part in the cost, though a higher one comes first whatever that costs",
    BoundNote.NO_RULES: "rules between pods not at all",
    BoundNote.MAY_LEAVE: "running pods that may leave as gone, however many may leave at once",
    BoundNote.ANY_COST: "plans of any cost and in any order of priorities",
    BoundNote.DECIDED: "replacements as placed without room",
    BoundNote.WAYS: "pods whose ways or units in a network are decided before the plan as if they cost nothing",
}


def notes_of(
    rules: Sequence[TopologyConstraints], *, alone: bool, gangs: bool, decided: Sequence[BoundNote] = ()
) -> tuple[BoundNote, ...]:
    """The parts of a round without evictions that its bound does not count in full.

    Args:
        rules: of each demand.
        alone: whether the bound knows no prices of room.
        gangs: whether pods are placed together or not at all.
        decided: parts of what passes decided before the rest.
    """
    parts = {
        BoundNote.ALONE: alone,
        BoundNote.FRACTIONS: not alone,
        BoundNote.RULES: any(each.constrained for each in rules),
        BoundNote.PREFERENCES: any(each.soft_constraints is not None for each in rules),
        BoundNote.GANGS: gangs,
    }
    return (*(note for note, is_there in parts.items() if is_there), *decided)


def sentence(codes: Iterable[str]) -> str:
    """What makes a bound weak, as one clause; "": nothing is known.

    Args:
        codes: of notes; those that this version does not know are left out.
    """
    known = {note.value: note for note in BoundNote}
    clauses = [known[code].clause for code in codes if code in known]
    return f"the bound counts {'; '.join(clauses)}" if clauses else ""
