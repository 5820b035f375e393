"""Preemption beside kube-scheduler's DefaultPreemption, run as a function over the same objects."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, seed, settings
from support.draw import Case, Drawn
from support.draw_preemption import NEVER, OFTEN, batches, crowded_nodes, ruled_pods
from support.minor_versions import EACH_VERSION, share
from support.preemption import Batch, compare_batch, compare_one, decisions, plannable
from support.profiles import at_least, batch_seed, examples
from thalweg_controlplane import Oracle

from flowcore.cluster.indexes.budget_index import BudgetIndex
from flowcore.planning.evictions.eligibility import Eligibility, PossibleEviction
from flowcore.planning.evictions.fit_checks import FitCheck
from flowcore.planning.evictions.search import victims
from flowcore.planning.plan_key import Loss

AMONG_PODS = ("PodTopologySpread", "InterPodAffinity")
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)
DRAWN = {
    "crowded nodes": crowded_nodes(),
    "crowded nodes with rules": crowded_nodes(OFTEN),
    # Few pods of these are worth an eviction.
    "odd rules": ruled_pods((*AMONG_PODS, "NodePorts", "NodeResourcesFit")),
}
#: Pods compared, at least (ten times as many while exploring), and before a spoiled choice is found out.
ENOUGH, SPOILED = 1_000, 200


def compare(oracle: Oracle, cases: Drawn[Case], enough: int, phases: Collection[Phase] = PHASES) -> Counter[str]:
    """Draws and compares until there are enough pods; the first difference is shrunk and raised."""
    counts: Counter[str] = Counter()
    for batch in range(1_000):

        @seed(batch_seed(batch))
        @settings(max_examples=examples(50), phases=phases, report_multiple_bugs=False, deadline=None)
        @given(case=cases)
        def agree(case: Case) -> None:
            theirs = decisions(oracle, case)
            counts.update(compare_one(oracle, case, pod, theirs[pod.key]) for pod in plannable(case))

        agree()
        if counts.total() >= enough:
            break
    return counts


def _shown(counts: Counter[str]) -> Counter[str]:
    evicting = sum(count for kind, count in counts.items() if "evict" in kind)
    return Counter(fits=evicting, rejected=counts.total() - evicting)


@EACH_VERSION
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", DRAWN)
def test_no_choice_is_worse_than_kube_schedulers(oracle: Oracle, compared: dict[str, Counter[str]], kind: str) -> None:
    """One urgent pod: we evict where kube-scheduler would without violating a budget, and never worse by its order.

    Every victim has a lower priority and may be evicted, the filters pass without the victims, and with any one of them
    back they do not.
    """
    enough = at_least(share(oracle, ENOUGH))
    counts = compare(oracle, DRAWN[kind], enough)
    compared[f"{oracle.minor_version}, preemption, {kind}"] = _shown(counts)
    assert counts.total() >= enough


def _as_low(self: Eligibility, at: int, priority: int) -> bool:
    return bool(self._residents.priorities[at] <= priority) and at not in self._state.leaving


def _all_as_low(self: Eligibility, priority: int) -> Any:
    found = self._residents.priorities <= priority
    found[list(self._state.leaving)] = False
    return found


def _everybody(_check: FitCheck, _node: int, evictions: Sequence[PossibleEviction], _count: int) -> list[Any]:
    return list(evictions)


#: What is spoiled, and what is put in its place.
SABOTAGE: dict[str, list[tuple[Any, str, Any]]] = {
    "a victim's priority": [(Eligibility, "may_leave", _as_low), (Eligibility, "mask", _all_as_low)],
    "budgets": [(BudgetIndex, "of", lambda _self, _pod: ())],
    "the order of victims": [(victims, "loss_of", lambda *_args: Loss(2.0**31))],
    "whether it fits": [(victims, "_take_back", _everybody)],
}


@pytest.mark.parametrize("what", SABOTAGE)
def test_a_wrong_choice_is_found_out(oracle: Oracle, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The comparison can fail: each part of a choice, spoiled a little, is found out within the same draws."""
    for owner, name, spoiled in SABOTAGE[what]:
        monkeypatch.setattr(owner, name, spoiled)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        compare(oracle, DRAWN["crowded nodes"], SPOILED, [Phase.generate])


def compare_batches(oracle: Oracle, cases: Drawn[Case], count: int) -> list[tuple[Batch, Batch]]:
    """So many batches: what one round does with each, and kube-scheduler one pod after the other."""
    found: list[tuple[Batch, Batch]] = []

    @seed(batch_seed(0))
    @settings(max_examples=examples(count), phases=[Phase.generate], deadline=None)
    @given(case=cases)
    def collect(case: Case) -> None:
        found.append(compare_batch(oracle, replace(case, budgets=[])))

    collect()
    assert sum(theirs.victims for _, theirs in found) > count / 4
    return found


@EACH_VERSION
def test_a_batch_of_equal_pods_is_placed_as_far_as_one_by_one(oracle: Oracle) -> None:
    """5 to 30 equal urgent pods without rules: every round places as many, and all rounds together evict no more."""
    found = compare_batches(oracle, crowded_nodes(NEVER, batches(NEVER, most_kinds=1)), share(oracle, 40))
    assert all(ours.placed >= theirs.placed for ours, theirs in found)
    assert sum(ours.victims for ours, _ in found) <= sum(theirs.victims for _, theirs in found)


@EACH_VERSION
def test_batches_of_several_kinds_need_no_more_victims(oracle: Oracle) -> None:
    """5 to 30 urgent pods of up to three kinds with rules: over all batches nearly as many, with no more victims.

    Which of several kinds is placed first is heuristic, and rules make it matter: a batch may have a pod or two fewer.
    """
    found = compare_batches(oracle, crowded_nodes(pending=batches()), 60)  # of any version: a fifth of them says little
    assert sum(ours.placed for ours, _ in found) >= 0.95 * sum(theirs.placed for _, theirs in found)
    assert sum(ours.victims for ours, _ in found) <= sum(theirs.victims for _, theirs in found)
