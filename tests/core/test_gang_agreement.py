"""The pods of one controller say what a gang needs; a stranger's pod changes nothing, and is told so."""

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.model import node, snapshot

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.cluster.indexes.gang_registry import GangRegistry
from flowcore.cluster.indexes.round_gangs import gangs_for
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN, Delivery
from flowcore.planning.round import run_round

TRAIN, OTHER = GangKey(GangSource.THALWEG, "ml", "train"), GangKey(GangSource.THALWEG, "ml", "other")


def member(name: str, owner: str = "job-1", created: float = 10.0, node: str = "", **terms: Any) -> Pod:
    """A pod that names the gang; it needs two unless said otherwise."""
    gang = GangRef(TRAIN, GangSpec(**{"min_member": 2, **terms}))
    return Pod("ml", name, name, PodClass(), gang=gang, owner=owner, created=created, node_name=node)


def told(*pods: Pod) -> dict[str, Gang]:
    """The gang that a round is told of, by waiting pod."""
    book = GangRegistry()
    for pod in pods:
        book.put(pod)
    waiting = [pod for pod in pods if not pod.node_name]
    names, gangs = gangs_for(book, [(pod, Delivery.BINDER) for pod in waiting], {}, lambda _node, _label: "")
    by_name = {gang.name: gang for gang in gangs}
    return {pod.name: by_name[name] for pod, of_it in zip(waiting, names, strict=True) for name in of_it}


def test_a_stranger_changes_nothing() -> None:
    """Another number, topology or group: the gang needs what it needed, the stranger waits and says why."""
    mine = [member("a"), member("b")]
    for terms, why in (
        ({"min_member": 100}, "scheduling.thalweg/gang-min-member is 100, not 2"),
        ({"topology_key": "rack"}, "topology is rack, not given"),
        ({"group": (OTHER, TRAIN)}, "group of gangs is another one"),
    ):
        stranger = member("x", owner="job-2", created=20.0, **terms)
        found = told(*mine, stranger)
        assert found["a"] == found["b"] == Gang("gang ml/train", 2)
        assert found["x"].unschedulable_reason == f"gang ml/train belongs to another controller, and this pod's {why}"
        assert found["x"].name != "gang ml/train"


def test_a_stranger_is_no_member() -> None:
    """It does not count toward what the gang needs, waiting or bound, and the gang may be whole without it."""
    assert told(member("a"), member("x", owner="job-2", created=20.0, min_member=3))["a"].unschedulable_reason == (
        "gang ml/train: 1 of 2 pods exist"
    )
    with_node = member("x", owner="job-2", created=20.0, min_member=3, node="n")
    assert told(member("a"), member("b"), with_node)["a"] == Gang("gang ml/train", 2)


def test_the_oldest_controller_decides() -> None:
    """Whichever pod is seen first; when its pods are gone, the next one does."""
    old, new = member("a", created=1.0, min_member=1), member("b", owner="job-2", created=2.0, min_member=3)
    for pods in ((old, new), (new, old)):
        assert told(*pods)["a"] == Gang("gang ml/train", 1)
        assert "not 1" in told(*pods)["b"].unschedulable_reason
    book = GangRegistry()
    book.put(old)
    book.put(new)
    book.drop(old.key)
    _, gangs = gangs_for(book, [(new, Delivery.BINDER)], {}, lambda _node, _label: "")
    assert gangs[0].unschedulable_reason == "gang ml/train: 1 of 3 pods exist"


def test_pods_without_a_controller() -> None:
    """They decide together, the largest number counts; beside pods of a controller they are strangers, however old."""
    assert told(member("a", owner="", min_member=1), member("b", owner=""))["a"] == Gang("gang ml/train", 2)
    found = told(member("a"), member("b"), member("x", owner="", created=1.0, min_member=9))
    assert found["a"] == Gang("gang ml/train", 2)
    assert "not 2" in found["x"].unschedulable_reason


def test_controllers_that_agree_share_a_gang() -> None:
    """A launcher and its workers: they say the same, or some of them say nothing."""
    pods = [member("launcher", min_member=3), *(member(name, owner="set", min_member=3) for name in "bc")]
    assert set(told(*pods).values()) == {Gang("gang ml/train", 3)}
    silent = msgspec.structs.replace(pods[0], gang=GangRef(TRAIN), created=0.0)
    assert set(told(silent, *pods[1:]).values()) == {Gang("gang ml/train", 3)}


def test_a_guest_is_needed_last() -> None:
    """A pod of another controller that says the same: where the gang has pods enough, it cannot be in its way."""
    mine = [member(name, min_member=4) for name in "abcd"]
    guest = member("x", owner="job-2", created=20.0, min_member=4)
    gang = told(*mine, guest)["a"]
    assert gang == Gang("gang ml/train", 4, foreign_pods=("ml/x",))
    assert told(*mine[:3], guest)["a"] == Gang("gang ml/train", 4)
    # The guest has waited longer: it would be needed before one of the gang's own.
    pending = [
        PendingPod(pod.key, pod.uid, PodClass((("cpu", 1000),)), BUILT_IN.name, 90.0, gangs=(gang.name,))
        for pod in mine
    ]
    older = PendingPod("ml/x", "x", PodClass((("cpu", 1000),)), BUILT_IN.name, 1.0, gangs=(gang.name,))
    crowd = snapshot([node("n", 4000)], [*pending, older], now=100.0)
    result = run_round(replace(crowd, gangs={gang.name: gang}))
    assert sorted(each.pod.uid for each in result.placements) == ["a", "b", "c", "d"]
    result = run_round(replace(crowd, gangs={gang.name: Gang(gang.name, 4)}))
    assert sorted(each.pod.uid for each in result.placements) == ["a", "b", "c", "x"]


_TERMS = st.fixed_dictionaries(
    {"min_member": st.sampled_from((None, 1, 2, 50)), "topology_key": st.sampled_from(("", "rack", "zone"))}
)


@given(st.lists(st.tuples(st.sampled_from(("", "job-2", "job-3")), _TERMS, st.booleans()), max_size=5))
def test_no_stranger_changes_what_a_gang_is(strangers: list[tuple[str, dict[str, Any], bool]]) -> None:
    """Whatever later controllers and bare pods say: the gang's own pods are told the same as without them."""
    mine = [member("a"), member("b")]
    others = [
        member(f"x{at}", owner=owner, created=20.0 + at, node="n" if bound else "", **terms)
        for at, (owner, terms, bound) in enumerate(strangers)
        if (terms["min_member"], terms["topology_key"]) not in ((2, ""), (None, ""))
    ]
    assert msgspec.structs.replace(told(*mine, *others)["a"], foreign_pods=()) == told(*mine)["a"]
