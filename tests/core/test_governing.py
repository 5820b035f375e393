"""Which policy governs a pod."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from flowcore.model.policies import BUILT_IN, Policy, Selects, by_precedence, governing
from flowcore.model.selectors import LabelSelector, Requirement


def selector(key: str, *values: str) -> LabelSelector:
    return LabelSelector((Requirement(key, "In", values),))


def test_all_that_is_given_must_match() -> None:
    """Scheduler name, pod labels and namespace labels: each can keep a pod out."""
    selects = Selects(("thalweg", "other"), pods=selector("app", "web"), namespaces=selector("team", "one"))
    web, db, one, two = (("app", "web"),), (("app", "db"),), (("team", "one"),), (("team", "two"),)
    assert selects.matches("thalweg", web, one)
    assert selects.matches("other", web, one)
    assert not selects.matches("default-scheduler", web, one)
    assert not selects.matches("thalweg", db, one)
    assert not selects.matches("thalweg", web, two)
    assert not selects.matches("thalweg", (), ())


def test_an_empty_selector_matches_all_and_none_is_no_condition() -> None:
    """As Kubernetes has it."""
    assert Selects(pods=LabelSelector(), namespaces=LabelSelector()).matches("thalweg", (), ())
    assert Selects().matches("thalweg", (("any", "thing"),), ())


def test_a_policy_that_selects_nothing_governs_nothing() -> None:
    """Even pods of its scheduler name."""
    assert not Selects(nothing=True).matches("thalweg", (), ())


def test_the_highest_precedence_governs_and_among_equals_the_first_name() -> None:
    """Whatever order they come in; the built-in default is the last resort."""
    policies = [Policy("b", 5), Policy("a", 5), Policy("low", -(10**9)), Policy("top", 6), BUILT_IN]
    for order in itertools.permutations(policies):
        names = [policy.name for policy in by_precedence(order)]
        assert names == ["top", "a", "b", "low", BUILT_IN.name]
    found = governing(by_precedence(policies), "thalweg", (), ())
    assert [policy.name for policy in found] == ["top", "a", "b", "low", BUILT_IN.name]


def test_who_does_not_match_does_not_govern() -> None:
    """However high its precedence."""
    policies = by_precedence([Policy("picky", 100, Selects(pods=selector("app", "web"))), Policy("plain"), BUILT_IN])
    assert governing(policies, "thalweg", (("app", "db"),), ())[0].name == "plain"
    assert governing(policies, "default-scheduler", (("app", "web"),), ()) == []


@given(
    st.lists(st.tuples(st.text(min_size=1), st.integers(-(10**9), 10**9)), max_size=8, unique_by=lambda each: each[0])
)
def test_order_does_not_depend_on_order(drawn: list[tuple[str, int]]) -> None:
    """Sorting what is sorted, or reversed, changes nothing."""
    policies = [Policy(name, precedence) for name, precedence in drawn]
    assert by_precedence(policies) == by_precedence(reversed(policies)) == by_precedence(by_precedence(policies))
