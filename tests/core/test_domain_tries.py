"""Gangs that nothing helps share the tries of domains, so that others have theirs and each has its turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import node, pod, snapshot
from support.profiles import examples
from support.safety import check_plan

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.turns import turn_of
from flowcore.planning.methods import domain_search, domain_tries
from flowcore.planning.methods.domain_tries import DomainTries
from flowcore.planning.round import RoundResult, run_round
from flowcore.planning.round.round import DEFAULT_POLICIES

#: Racks of two nodes of four cores: by amounts each holds pods of 3, 3 and 2 cores, and none does.
RACKS, HOPELESS = 10, (3, 3, 2)


def gang(name: str, cores: tuple[int, ...], namespace: str = "default", priority: int = 0) -> list[PendingPod]:
    """The pods of a gang, of so many cores each."""
    pods = [pod(f"{name}-{place}", 1000 * each, priority=priority) for place, each in enumerate(cores)]
    return [msgspec.structs.replace(each, key=each.key.replace("default", namespace), gangs=(name,)) for each in pods]


def cluster(pods: list[PendingPod], **fields: Any) -> Snapshot:
    """Each gang of these pods keeps to a rack; further words are fields of the gangs in place of that."""
    nodes = [
        node(f"r{rack}-{place}", 4000, labels=(("rack", f"r{rack}"),)) for rack in range(RACKS) for place in (0, 1)
    ]
    sizes = Counter(name for each in pods for name in each.gangs)
    asked = fields or {"topology_key": "rack"}
    gangs = {name: Gang(name, size, **asked) for name, size in sizes.items()}
    return replace(snapshot(nodes, pods, now=100.0), gangs=gangs)


def hopeless(count: int, **fields: Any) -> list[PendingPod]:
    """Gangs that come before others."""
    return [each for number in range(count) for each in gang(f"g{number:03}", HOPELESS, priority=1, **fields)]


def planned(made: Snapshot, steps: int = 1) -> RoundResult:
    """The legal plan of a round without an exact search through all gangs."""
    result = run_round(made, steps=steps)
    check_plan(made, result, DEFAULT_POLICIES)
    return result


def racks(result: RoundResult, name: str) -> set[str]:
    """Where the pods of a gang go."""
    return {each.node.partition("-")[0] for each in result.placements if name in each.pod.gangs}


def reasons(result: RoundResult, name: str) -> set[str]:
    return {each.reason for each in result.unplaced if name in each.pod.gangs}


def few_tries(monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    """Few tries, and the group that comes after so much of all others is in turn."""
    monkeypatch.setattr(domain_tries, "_MOST", 32)
    monkeypatch.setattr(domain_tries, "turn_of", lambda _: int(part * 2**32))


def test_a_round_tries_no_more_domains_for_more_gangs_that_nothing_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many of them."""
    few_tries(monkeypatch, 0)
    tried: list[int] = []
    greedy = domain_search.greedy

    def counted(*args: Any, **fields: Any) -> Any:
        tried.append(1)
        return greedy(*args, **fields)

    monkeypatch.setattr(domain_search, "greedy", counted)
    counts = []
    for count in (8, 32):
        tried.clear()
        assert not planned(cluster(hopeless(count))).placements
        counts.append(len(tried))
    assert 8 < counts[1] < 1.5 * counts[0]


def test_they_take_few_tries_of_another_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang of it is placed in the same round; one of theirs is put off, and says so until it is in turn."""
    few_tries(monkeypatch, 0)
    pods = [*hopeless(20), *gang("last", (4, 4)), *gang("other", (4, 4), "other")]
    result = planned(cluster(pods))
    assert len(racks(result, "other")) == 1
    asked = "last needs 2 pods at once in one domain of rack"
    assert reasons(result, "last") == {
        f"{asked}, and this round did not try all domains that may hold them: a later round does."
    }
    few_tries(monkeypatch, 0.49)
    result = planned(cluster(pods))
    assert len(racks(result, "last")) == len(racks(result, "other")) == 1


def test_a_domain_without_room_is_told_without_a_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amounts rule each rack out."""
    few_tries(monkeypatch, 0)
    result = planned(cluster([*hopeless(20), *gang("last", (4, 4, 4))]))
    (reason,) = reasons(result, "last")
    assert reason.endswith("in one domain of rack, and none can hold them even when empty.")


def test_nobody_waits_for_a_level_that_it_prefers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang for which no rack is tried gets any nodes, as one without a topology does."""
    few_tries(monkeypatch, 0)
    made = cluster([*hopeless(20), *gang("last", (4, 4))])
    gangs = dict(made.gangs) | {"last": Gang("last", 2, preferred=(("rack", ""),))}
    result = planned(replace(made, gangs=gangs))
    assert racks(result, "last")


@given(st.lists(st.tuples(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=examples(40))
def test_tries_change_nothing_where_there_are_enough(drawn: list[tuple[list[int], bool]]) -> None:
    """The plan is the one without a limit."""
    made = cluster(
        [
            each
            for number, (cores, is_other) in enumerate(drawn)
            for each in gang(f"g{number}", tuple(cores), "other" if is_other else "default")
        ]
    )
    limited = planned(made, steps=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(domain_tries, "_MOST", 10**9)
        free = planned(made, steps=4)
    assert (limited.placements, limited.unplaced) == (free.placements, free.unplaced)


# --- the shares ---


def test_each_group_is_in_turn_in_some_round() -> None:
    """Namespaces as often as each other, and the groups of each too. The first two have used what there is."""
    keys = {number: f"default/w{number}" for number in range(6)} | {6: "other/w"}
    turns = Counter[int]()
    for number in range(600):
        shared = DomainTries(keys, 1, turn_of(1e9 + 10.0 * number))
        shared.use(0, 10**6)
        shared.use(1, 10**6)
        turns.update(group for group in keys if shared.left(group))
    assert turns.keys() == set(range(2, 7))
    assert 250 < turns[6] < 350
    assert all(30 < turns[number] < 70 for number in range(2, 6))


def test_large_clusters_have_fewer_tries() -> None:
    """Each takes longer there."""
    small, large = (DomainTries({0: "default/w"}, objects, 0).left(0) for objects in (1_000, 100_000))
    assert small > large > 0


def test_each_domain_is_among_those_that_are_tried_in_some_round() -> None:
    """The best are in each."""
    tried = [DomainTries({}, 1, turn_of(1e9 + 10.0 * number)).some_of(range(50), 10) for number in range(60)]
    assert {len(each) for each in tried} == {10}
    assert all(each[:5] == list(range(5)) for each in tried)
    assert {domain for each in tried for domain in each} == set(range(50))
    assert DomainTries({}, 1, 1).some_of(range(10), 10) == list(range(10))
