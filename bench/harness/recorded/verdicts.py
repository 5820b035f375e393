"""Plans of two planners for the same rounds: which is better, and whether the rules hold by which one passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.recorded.keys import Keys
from harness.recorded.objects import Cluster
from harness.recorded.planners import Plan
from harness.recorded.rounds import RecordedRound
from harness.recorded.safety import problems

#: Costs that differ by less than this part are equal; a plan that costs more by over the other part is dearer.
EQUAL, DEARER = 1e-4, 2e-3
#: The share of rounds that may be dearer.
MOST_DEARER = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """A round.

    Attributes:
        by_new_key, by_old_key: the new planner's plan is better (1), equal (0) or worse (-1).
        why: the first part of the new key that differs.
        more_wait: whether gangs that have begun lack more pods, or else more pods have no node at the first level that
            differs.
        dearer: by which part it costs more, where nothing before the cost differs.
        stated: the same of the costs that planners state.
        unsafe_old, unsafe_new: what is wrong with the plans.
        told: both plans in figures.
    """

    name: str
    family: str
    by_new_key: int
    by_old_key: int
    why: str
    more_wait: bool
    dearer: float
    stated: float
    unsafe_old: Sequence[str] = ()
    unsafe_new: Sequence[str] = ()
    told: str = ""


@dataclass(slots=True)
class Count:
    """Rounds of a family, or of all."""

    family: str
    rounds: int = 0
    better: int = 0
    equal: int = 0
    worse: int = 0
    better_by_old_key: int = 0
    worse_by_old_key: int = 0
    more_wait: int = 0
    dearer: int = 0
    unsafe_old: int = 0
    unsafe_new: int = 0

    def add(self, verdict: Verdict) -> None:
        """Counts a round."""
        self.rounds += 1
        self.better += verdict.by_new_key > 0
        self.equal += not verdict.by_new_key
        self.worse += verdict.by_new_key < 0
        self.better_by_old_key += verdict.by_old_key > 0
        self.worse_by_old_key += verdict.by_old_key < 0
        self.more_wait += verdict.more_wait
        self.dearer += verdict.dearer > DEARER
        self.unsafe_old += bool(verdict.unsafe_old)
        self.unsafe_new += bool(verdict.unsafe_new)


@dataclass(slots=True)
class Comparison:
    """All rounds."""

    total: Count = field(default_factory=lambda: Count("all"))
    families: dict[str, Count] = field(default_factory=dict)
    worse: list[Verdict] = field(default_factory=list)

    def add(self, this: RecordedRound, old: Plan, new: Plan) -> None:
        """Judges a round."""
        verdict = judge(this, old, new)
        for count in (self.total, self.families.setdefault(this.family, Count(this.family))):
            count.add(verdict)
        if verdict.by_new_key < 0 or verdict.by_old_key < 0 or verdict.unsafe_new or verdict.unsafe_old:
            self.worse.append(verdict)

    def broken_rules(self) -> list[str]:
        """Sentences about the rules by which the new planner does not pass."""
        total, broken = self.total, []
        if total.unsafe_new:
            broken.append(f"{total.unsafe_new} plans are not safe; none may be")
        if total.more_wait:
            broken.append(f"in {total.more_wait} rounds more pods have no node; there may be none")
        if total.dearer > MOST_DEARER * total.rounds:
            share = f"{total.dearer} of {total.rounds} rounds"
            broken.append(f"{share} are dearer by over {DEARER:.1%}; {MOST_DEARER:.0%} may be")
        return broken


def judge(this: RecordedRound, old: Plan, new: Plan) -> Verdict:
    """One round.

    Raises:
        NotJudged: it has what no judge knows.
    """
    cluster = Cluster.of(this)
    before, after = Keys(cluster, old), Keys(cluster, new)
    names = ("gangs begun", "pods without a node", "victims", "moves")
    differing = [name for name, was, now in zip(names, before.new, after.new, strict=True) if was != now]
    cost, stated = _share(before.cost, after.cost), _share(old.cost, new.cost)
    why = differing[0] if differing else ("cost" if abs(cost) > EQUAL else "")
    by_new = _sign(before.new, after.new) if differing else -_beyond(cost)
    by_old = _sign(before.old, after.old) if before.old != after.old else -_beyond(cost)
    more_wait = before.duties == after.duties and after.without_node > before.without_node
    return Verdict(
        this.name,
        this.family,
        by_new,
        by_old,
        why,
        more_wait or after.duties > before.duties,
        0.0 if differing else cost,
        stated,
        problems(cluster, old),
        problems(cluster, new),
        f"{_told(before)} -> {_told(after)}",
    )


def _told(keys: Keys) -> str:
    left = "+".join(map(str, keys.left_by_level))
    cost = f"cost {keys.cost:,.0f} (stated {keys.plan.cost:,})"
    return f"left {left}, {len(keys.lost)} victims, {keys.moves} moves, {cost}"


def _sign(old: tuple[object, ...], new: tuple[object, ...]) -> int:
    return 1 if new < old else -1


def _share(old: float, new: float) -> float:
    return (new - old) / max(abs(old), 1.0)


def _beyond(share: float) -> int:
    return 0 if abs(share) <= EQUAL else (1 if share > 0 else -1)


def counts(comparison: Comparison) -> Iterable[Count]:
    """A row for each family, and one for all."""
    return [*comparison.families.values(), comparison.total]
