"""PodDisruptionBudgets protect the pods of their namespace that they select, and no change of others costs anything."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.indexes.budget_index import MAX_TESTED, BudgetIndex
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.selectors import LabelSelector, Requirement

APP = LabelSelector((Requirement("app", "In", ("x",)),))
_selectors = st.sampled_from(
    (None, LabelSelector(), APP, *(LabelSelector((Requirement("app", each, ("x",)),)) for each in ("NotIn", "Exists")))
)
_budgets = st.builds(
    DisruptionBudget, st.sampled_from(("red", "blue")), st.sampled_from("abc"), _selectors, st.integers(0, 1)
)


def pod(namespace: str, *, app: str = "", node: str = "n", name: str = "p", terminal: bool = False) -> Pod:
    labels = (("app", app),) if app else ()
    return Pod(namespace, name, name, PodClass(), labels=labels, node_name=node, terminal=terminal)


@settings(max_examples=examples(60))
@given(st.lists(_budgets | st.tuples(st.sampled_from(("red", "blue")), st.sampled_from("abc")), max_size=12))
def test_a_pod_has_the_budgets_of_its_namespace_that_select_it(
    events: list[DisruptionBudget | tuple[str, str]],
) -> None:
    """After any changes, as a test of each budget says."""
    index, budgets = BudgetIndex(), {}
    index.count_pod(pod("red"), 1)
    index.count_pod(pod("blue"), 1)
    for event in events:
        changed = isinstance(event, DisruptionBudget)
        key = event.key if isinstance(event, DisruptionBudget) else "/".join(event)
        before = budgets.pop(key, None)
        if isinstance(event, DisruptionBudget):
            budgets[key] = event
        index.set(key, event if isinstance(event, DisruptionBudget) else None)
        assert index.objects == budgets
        for one in (pod("red"), pod("blue", app="x"), pod("blue", app="y")):
            assert index.of(one) == tuple(
                sorted(key for key, each in budgets.items() if each.selects(one.namespace, one.labels))
            )
        other = (before and before.selector) != (budgets[key].selector if changed else None)
        assert set(index.take_changed_namespaces()) == ({key.partition("/")[0]} if other else set())


def test_a_budget_that_lets_no_running_pod_go_asks_for_no_round() -> None:
    """More is allowed, or the budget is gone: that matters where it selects a pod that has a node."""
    cluster = Cluster()
    cluster.put_node(Node("n"))
    none, some = (DisruptionBudget("red", "b", APP, allowed) for allowed in (0, 1))

    def more_may_leave() -> list[bool]:
        return [cluster.set_disruption_budget("red/b", budget) for budget in (none, some, None)]

    assert more_may_leave() == [False, False, False]
    for other in (
        pod("blue", app="x"),
        pod("red", app="y"),
        pod("red", app="x", node="", name="waits"),
        pod("red", app="x", name="ended", terminal=True),
    ):
        cluster.put_pod(other)
    assert more_may_leave() == [False, False, False]
    cluster.put_pod(pod("red", app="x", name="runs"))
    assert more_may_leave() == [False, True, True]
    elsewhere = DisruptionBudget("red", "b", LabelSelector((Requirement("app", "In", ("z",)),)), 0)
    changes = [cluster.set_disruption_budget("red/b", budget) for budget in (none, elsewhere, elsewhere, none)]
    assert changes == [False, True, False, False], "it protects the pod no more, then it does again"
    cluster.set_disruption_budget("red/b", None)
    cluster.remove_pod("red/runs")
    assert more_may_leave() == [False, False, False]


def test_of_very_many_budgets_a_pod_has_some() -> None:
    """Two are enough that it stays, so its message and its work do not grow with their number."""
    index = BudgetIndex()
    for number in range(1_000):
        index.set(f"red/b{number}", DisruptionBudget("red", f"b{number}", LabelSelector()))
    assert 2 <= len(index.of(pod("red"))) <= 8


def test_budgets_that_no_label_tells_apart_cost_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that more of them may select counts as protected, and none is tested. Others are tested as before."""
    index, tested = BudgetIndex(), []
    selects = LabelSelector.selects

    def counted(self: LabelSelector, values: Mapping[str, str]) -> bool:
        tested.append(self)
        return selects(self, values)

    monkeypatch.setattr(LabelSelector, "selects", counted)
    for number in range(MAX_TESTED):
        away = LabelSelector((Requirement(f"k{number}", "Exists"), Requirement("app", "In", ("x",))))
        elsewhere = LabelSelector((Requirement(f"k{number}", "NotIn", ("v",)), Requirement("app", "NotIn", ("x",))))
        index.set(f"red/away{number}", DisruptionBudget("red", f"away{number}", away))
        index.set(f"red/b{number}", DisruptionBudget("red", f"b{number}", elsewhere))
    assert index.of(pod("red", app="x")) == ()
    assert len(tested) == MAX_TESTED
    tested.clear()
    index.set("red/more", DisruptionBudget("red", "more", LabelSelector((Requirement("other", "DoesNotExist"),))))
    assert len(index.of(pod("red", app="x"))) >= 2
    assert not tested
    assert index.of(pod("blue", app="x")) == ()
