"""Which version of each policy is in force, whatever the order in which they are heard of."""

from typing import Any

import pytest
from structlog.testing import capture_logs
from thalweg_operator.policies.store import PolicyStore

from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.model.advice import ExtenderPod
from flowcore.model.policies import BUILT_IN, Policy

GOOD: dict[str, Any] = {"selects": {"podSelector": {"matchLabels": {"a": "b"}}}}
OTHER: dict[str, Any] = {**GOOD, "precedence": 5}
BAD: dict[str, Any] = {"selects": {"podSelector": {"matchLabels": {"a": "not good"}}}}


def in_force(store: PolicyStore) -> list[tuple[str, int]]:
    return [(policy.name, policy.precedence) for policy in store.accepted]


def test_a_bad_version_keeps_the_last_good_one() -> None:
    """And a good one after it is in force at once."""
    store = PolicyStore()
    store.offer("p", "u", 1, GOOD)
    standing = store.offer("p", "u", 2, BAD)
    assert standing.problem
    assert (standing.generation, standing.in_force_generation) == (2, 1)
    assert in_force(store) == [("p", 0)]
    store.offer("p", "u", 3, OTHER)
    assert in_force(store) == [("p", 5)]


def test_a_bad_version_is_logged_once() -> None:
    """The watch, its own status and a list every ten seconds show the same version again and again."""
    store = PolicyStore()
    with capture_logs() as logs:
        for generation in (1, 1, 1, 2, 2):
            store.offer("p", "u", generation, BAD)
    assert [(line["event"], line["generation"]) for line in logs] == [
        ("policy not accepted", 1),
        ("policy not accepted", 2),
    ]


def test_an_older_version_that_comes_late_changes_nothing() -> None:
    """The watch and the lists that check on it overtake each other."""
    store = PolicyStore()
    store.offer("p", "u", 2, OTHER)
    store.offer("p", "u", 1, GOOD)
    assert in_force(store) == [("p", 5)]
    assert store.records[0].generation == 2


def test_another_object_of_the_same_name_starts_anew() -> None:
    """What the old object said is gone, even where the new one is wrong from its first version on."""
    store = PolicyStore()
    store.offer("p", "old", 7, OTHER)
    standing = store.offer("p", "new", 1, BAD)
    assert standing.in_force is None
    assert in_force(store) == []


def test_one_policy_disturbs_no_other() -> None:
    """Bad ones come and go beside a good one; nobody is asked to plan again for them."""
    changes: list[int] = []
    index = PolicyIndex()
    store = PolicyStore(put_in_force=lambda accepted: index.replace(accepted) and changes.append(1))
    store.offer("good", "u", 1, GOOD)
    assert len(changes) == 1
    store.offer("bad", "v", 1, BAD)
    store.forget("bad", "v")
    store.forget("never-there", "w")
    store.forget("good", "another of the same name")
    store.offer("good", "u", 1, GOOD)
    assert len(changes) == 1
    assert in_force(store) == [("good", 0)]


def test_changes_reach_those_remembered() -> None:
    """Which policy governs a kind of pod is remembered, and forgotten with every change."""
    index, labels = PolicyIndex(), (("a", "b"),)
    store = PolicyStore(put_in_force=index.replace)
    assert [policy.name for policy in index.governing("thalweg", labels, ())] == [BUILT_IN.name]
    store.offer("p", "u", 1, GOOD)
    assert [policy.name for policy in index.governing("thalweg", labels, ())] == ["p", BUILT_IN.name]
    store.offer("q", "u", 1, OTHER)
    assert [policy.name for policy in index.governing("thalweg", labels, ())] == ["q", "p", BUILT_IN.name]
    store.forget("q", "u")
    store.forget("p", "u")
    assert [policy.name for policy in index.governing("thalweg", labels, ())] == [BUILT_IN.name]


@pytest.mark.parametrize("namespace", ["kube-system", "ours"])
def test_delivery_extender_governs_no_pod_that_the_cluster_or_thalweg_runs_on(namespace: str) -> None:
    """Whatever the policy selects: the next one that matches governs, or none. Thalweg's own scheduler still serves."""
    store = PolicyStore()
    for name, more in (("steers", {"delivery": "Extender", "precedence": 9}), ("looks", {"delivery": "Observe"})):
        selects = {"schedulerNames": ["default-scheduler"], "podSelector": {}, "namespaceSelector": {}}
        store.offer(name, name, 1, {"selects": selects, **more})
    index = PolicyIndex(store.accepted, own_namespace="ours")
    own, other = ((("kubernetes.io/metadata.name", name),) for name in (namespace, "theirs"))

    def names(policies: list[Policy]) -> list[str]:
        return [policy.name for policy in policies]

    assert names(index.governing("default-scheduler", (), other)) == ["steers", "looks"]
    assert names(index.governing("default-scheduler", (), own)) == ["looks"]
    asked = ExtenderPod(namespace, "p", "u", {}, "default-scheduler", "")
    assert index.of_request(asked, own) in store.accepted[1:]
    assert names(index.left_out("default-scheduler", (), own)) == ["steers"]
    assert index.left_out("default-scheduler", (), other) == []
    assert names(index.governing("thalweg", (), own)) == [BUILT_IN.name]
