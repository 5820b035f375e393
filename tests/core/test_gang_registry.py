"""What a round is told of gangs, whatever happens to their pods."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from flowcore.cluster.indexes.gang_registry import GangRegistry
from flowcore.cluster.indexes.round_gangs import gangs_for
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Delivery
from flowcore.model.resource_claims import ClaimingPod, PodClaim


def key(name: str = "train", namespace: str = "ml", source: GangSource = GangSource.THALWEG) -> GangKey:
    """Of a gang."""
    return GangKey(source, namespace, name)


def member(name: str, gang: GangKey | None = None, min_member: int | None = 3, **fields: Any) -> Pod:
    """A pod of a gang, which says how many it needs."""
    gang = gang or key()
    terms = GangSpec(**{"min_member": None if gang.source.has_pod_groups else min_member, **fields.pop("terms", {})})
    return Pod(gang.namespace, name, name, PodClass(), gang=GangRef(gang, terms), **fields)


def bound(name: str, gang: GangKey | None = None, node: str = "n1", **fields: Any) -> Pod:
    """One that has a node."""
    return member(name, gang, node_name=node, **fields)


def book(*things: Pod | PodGroup) -> GangRegistry:
    """Filled."""
    made = GangRegistry()
    for thing in things:
        if isinstance(thing, Pod):
            made.put(thing)
        else:
            made.put_group(thing)
    return made


def told(
    of: GangRegistry, *asked: Pod, coming: tuple[str, ...] = (), delivery: Delivery = Delivery.BINDER
) -> list[Gang]:
    """The gangs of a round; every asked pod of them names them."""
    names, gangs = gangs_for(of, [(pod, delivery) for pod in asked], dict.fromkeys(coming, "n2"), _rack)
    by_name = {gang.name for gang in gangs}
    assert {name for each in names for name in each} == by_name
    for pod, each in zip(asked, names, strict=True):
        assert pod.gang is not None
        assert each == ((pod.gang.key.display_name,) if pod.gang.key.display_name in by_name else ())
    return gangs


def _rack(node: str, label: str) -> str:
    assert label == "rack"
    return {"n1": "r1", "n2": "r2", "n3": "r2"}.get(node, "")


def test_a_whole_gang_that_waits() -> None:
    """It needs all that it says, at once; more pods than that wait with it."""
    pods = [member(name) for name in "abcd"]
    assert told(book(*pods), *pods) == [Gang("gang ml/train", 3)]


def test_what_has_a_node_or_is_on_its_way_is_needed_no_more() -> None:
    """And the gang has begun. With what it needs its other pods are like any others."""
    pods = [bound("a"), member("b"), member("c")]
    assert told(book(*pods), *pods[1:]) == [Gang("gang ml/train", 2, partially_placed=True)]
    assert told(book(*pods), pods[2], coming=("ml/b",)) == [Gang("gang ml/train", 1, partially_placed=True)]
    late = member("d")
    assert told(book(*pods, late), late, coming=("ml/b", "ml/c")) == []
    assert told(book(bound("a"), bound("b"), bound("c"), late), late) == []


def test_members_that_fail_or_are_deleted_must_be_replaced() -> None:
    """They count no more from that moment; those that come in their place are needed."""
    running = [bound("a"), bound("b"), bound("c")]
    of, new = book(*running), member("d")
    assert not of.put(msgspec.structs.replace(running[0], terminal=True))
    assert of.put(new)
    assert told(of, new) == [Gang("gang ml/train", 1, partially_placed=True)]
    of.put(msgspec.structs.replace(running[1], deleting=True))
    assert told(of, new) == [
        Gang("gang ml/train", 2, partially_placed=True, unschedulable_reason="gang ml/train: 2 of 3 pods exist")
    ]
    others = [member("e"), member("f")]
    for pod in others:
        of.put(pod)
    of.drop("ml/c")
    assert told(of, new, *others) == [Gang("gang ml/train", 3)]


def test_members_that_succeeded_are_done() -> None:
    """What is left of a Job is not stuck. The next Job of the gang begins anew, unless one of it still runs."""
    done = [bound(name, terminal=True, succeeded=True, owner="job-1") for name in "abc"]
    left, next_job = member("d", owner="job-1"), member("e", owner="job-2")
    assert told(book(*done, left), left) == []
    assert told(book(*done, next_job), next_job)[0].unschedulable_reason == "gang ml/train: 1 of 3 pods exist"
    assert told(book(*done[:2], bound("c", owner="job-3"), next_job), next_job) == []


def test_a_gang_of_which_too_few_pods_exist_waits() -> None:
    """With a reason that counts them; nothing of it may be placed. One that waits elsewhere exists."""
    one, two = member("a"), member("b")
    assert told(book(one, two), one, two)[0].unschedulable_reason == "gang ml/train: 2 of 3 pods exist"
    third = member("c", blocked_reason="its scheduling gates are closed: x")
    of = book(one, two, third)
    reason = "gang ml/train: it needs 3 pods at once, 2 can be planned now; ml/c: its scheduling gates are closed: x"
    assert told(of, one, two)[0].unschedulable_reason == reason
    assert of.put(member("c"))
    assert told(of, one, two, member("c")) == [Gang("gang ml/train", 3)]


def test_a_pod_whose_claim_is_still_to_be_made_cannot_be_planned_now() -> None:
    """The gang says which one it is; one that needs no more pods than the others goes ahead."""
    claims = (PodClaim("gpu", template="t"),)
    waits = msgspec.structs.replace(member("c"), pod_class=PodClass(devices=ClaimingPod("ml", "c", "c", claims)))
    pods = [member("a"), member("b"), waits]
    reason = "gang ml/train: it needs 3 pods at once, 2 can be planned now; ml/c: its ResourceClaim is not created yet"
    assert told(book(*pods), *pods)[0].unschedulable_reason == reason
    more = [*pods, member("d")]
    assert told(book(*more), *more) == [Gang("gang ml/train", 3)]


def test_a_pod_group_that_does_not_exist_yet() -> None:
    """Its pods wait and say so; once it is there they are planned. One of the basic policy asks for nothing."""
    native = key(source=GangSource.NATIVE)
    pods = [member(name, native) for name in "ab"]
    of = book(*pods)
    assert told(of, *pods)[0].unschedulable_reason == "PodGroup ml/train does not exist"
    assert not of.put_group(PodGroup(key("other", source=GangSource.NATIVE), GangSpec(min_member=2)))
    assert not of.put_group(PodGroup(key(source=GangSource.VOLCANO), GangSpec(min_member=2)))
    assert of.put_group(PodGroup(native, GangSpec(min_member=2)))
    assert told(of, *pods) == [Gang("PodGroup ml/train", 2)]
    assert of.put_group(PodGroup(native, GangSpec(min_member=0)))
    assert told(of, *pods) == []
    assert of.drop_group(native)
    assert told(of, *pods)[0].unschedulable_reason == "PodGroup ml/train does not exist"
    of.put_group(PodGroup(native, GangSpec(), "no shape"))
    assert told(of, *pods)[0].unschedulable_reason == "PodGroup ml/train: no shape"


def test_gangs_of_two_sources_with_one_name_are_two() -> None:
    """And have two names."""
    pods = [member(source.name, key(source=source)) for source in GangSource]
    gangs = told(book(*pods), *pods)
    assert len({gang.name for gang in gangs}) == len(GangSource)
    assert "PodGroup ml/train of scheduling.x-k8s.io" in {gang.name for gang in gangs}


def test_pods_that_disagree() -> None:
    """The largest number counts, said by whichever; none at all, or two topologies, is a reason to wait."""
    pods = [member("a", min_member=None), member("b", min_member=2), member("c", min_member=3)]
    assert told(book(*pods), *pods) == [Gang("gang ml/train", 3)]
    silent = [member("a", min_member=None)]
    assert told(book(*silent), *silent)[0].unschedulable_reason == (
        "gang ml/train: none of its pods has the annotation scheduling.thalweg/gang-min-member"
    )
    apart = [member(name, terms={"topology_key": name}) for name in ("rack", "zone", "rack-2")]
    of = book(*apart)
    names, gangs = gangs_for(of, [(pod, Delivery.BINDER) for pod in apart], {}, lambda _node, _label: "")
    assert gangs[0].unschedulable_reason == "gang ml/train: its pods name different topologies: rack, rack-2, zone"
    assert names == [("gang ml/train",)] * 3


def test_one_topology_domain() -> None:
    """Pods that come late go where the others are, or are going; where they are apart, to most of them."""
    terms = {"topology_key": "rack"}
    waiting = [member(name, terms=terms) for name in "abc"]
    assert told(book(*waiting), *waiting) == [Gang("gang ml/train", 3, topology_key="rack")]
    first = bound("x", terms=terms)
    assert told(book(first, *waiting), *waiting) == [
        Gang("gang ml/train", 2, topology_key="rack", domain="r1", partially_placed=True, placed=1)
    ]
    of = book(first, bound("y", node="n3", terms=terms), *waiting)
    late = told(of, waiting[2], coming=("ml/a", "ml/b"))
    assert late == [Gang("gang ml/train", 0, topology_key="rack", domain="r2", placed=4)]


def test_gangs_of_a_group_wait_for_each_other() -> None:
    """One unit. Where one of them is missing, incomplete or does not name the others, all wait and say why."""
    train, evaluate = key("train"), key("eval", "web")
    terms = {"group": (train, evaluate)}
    here = [member(name, train, terms=terms, min_member=1) for name in "ab"]
    there = [member(name, evaluate, terms=terms, min_member=2) for name in "cd"]
    of = book(*here)
    assert told(of, *here)[0].unschedulable_reason == "gang ml/train: gang web/eval of its group has no pods"
    assert of.put(there[0])
    assert (
        told(of, *here, there[0])[0].unschedulable_reason
        == "gang ml/train waits for its group: gang web/eval: 1 of 2 pods exist"
    )
    assert of.put(there[1])
    unit = "gang ml/train, gang web/eval"
    assert told(of, *here, *there) == [Gang("gang ml/train", 1, unit), Gang("gang web/eval", 2, unit)]
    assert "0 can be planned now" in told(of, *here)[0].unschedulable_reason
    names, gangs = gangs_for(
        of, [(pod, Delivery.BINDER) for pod in here] + [(pod, Delivery.OBSERVE) for pod in there], {}, _rack
    )
    assert len(names) == 4
    assert {gang.unschedulable_reason.partition(": ")[2] for gang in gangs} == {
        "its group is not delivered the same way"
    }
    assert told(of, *here, coming=("web/c", "web/d")) == [Gang("gang ml/train", 1, unit)]
    stranger = [member(name, evaluate, min_member=2) for name in "cd"]
    assert (
        told(book(*here, *stranger), *here)[0].unschedulable_reason
        == "gang ml/train: gang web/eval does not name the same group"
    )


def test_all_pods_of_a_gang_are_delivered_the_same_way() -> None:
    """Policies govern pod by pod; half a gang that is only observed would never be there."""
    pods = [member(name) for name in "abc"]
    ways = [Delivery.BINDER, Delivery.BINDER, Delivery.OBSERVE]
    _, gangs = gangs_for(book(*pods), list(zip(pods, ways, strict=True)), {}, _rack)
    assert gangs[0].unschedulable_reason == "gang ml/train: its pods are not delivered the same way: Binder, Observe"


def test_pods_that_changed_since_the_round_was_begun() -> None:
    """Bound, gone or in another gang by now: what is true now counts, and nothing is raised."""
    pods = [member(name, min_member=1) for name in "abc"]
    of = book(*pods)
    of.put(bound("a"))
    of.drop("ml/b")
    of.put(member("c", key("other"), min_member=1))
    names, gangs = gangs_for(of, [(pod, Delivery.BINDER) for pod in pods], {}, _rack)
    assert names == [(), (), ("gang ml/other",)]
    assert gangs == [Gang("gang ml/other", 1)]


def test_gangs_that_are_there_in_part() -> None:
    """Some run, not enough, and the rest is not on its way."""
    of = book(bound("a"), bound("b"), member("c"), member("x", key("whole"), min_member=1))
    (found,) = of.partial_gangs({})
    assert ([pod.name for pod in found.bound], [pod.name for pod in found.waiting]) == (["a", "b"], ["c"])
    assert (found.name, found.needed, found.timeout) == ("gang ml/train", 3, None)
    assert of.partial_gangs({"ml/c": "n1"}) == []
    of.put(bound("c"))
    assert of.partial_gangs({}) == []


def native(name: str) -> GangKey:
    """Of a PodGroup of Kubernetes' own."""
    return key(name, source=GangSource.NATIVE)


@pytest.mark.parametrize("seed", range(3))
@settings(max_examples=examples(60))
@given(data=st.data())
def test_the_book_is_what_a_recount_finds(seed: int, data: st.DataObject) -> None:
    """Whatever pods and PodGroupSink come, change and go: told once more from scratch, it is the same."""
    keys = [key("a"), key("b"), key("a", source=GangSource.NATIVE)]
    groups: dict[GangKey, PodGroup] = {}
    pods: dict[str, Pod] = {}
    of = GangRegistry()
    for _ in range(data.draw(st.integers(1, 25))):
        name = data.draw(st.sampled_from("pqrst"))
        what = data.draw(st.sampled_from(("pod", "pod", "pod", "gone", "group", "no group")))
        if what == "pod":
            pod = member(
                name,
                data.draw(st.sampled_from(keys)),
                min_member=data.draw(st.sampled_from((1, 2, 3))),
                terms={"group": tuple(keys[:2])} if seed == 1 else {},
                node_name=data.draw(st.sampled_from(("", "", "n1"))),
                deleting=data.draw(st.sampled_from((False, False, True))),
                terminal=(terminal := data.draw(st.sampled_from((False, False, True)))),
                succeeded=terminal and data.draw(st.booleans()),
                owner=data.draw(st.sampled_from("ij")),
            )
            if data.draw(st.booleans()):
                pod = msgspec.structs.replace(pod, gang=None) if seed == 2 else pod
            pods[pod.key] = pod
            of.put(pod)
        elif what == "gone":
            pods.pop(f"ml/{name}", None)
            of.drop(f"ml/{name}")
        elif what == "group":
            groups[keys[2]] = PodGroup(keys[2], GangSpec(min_member=data.draw(st.sampled_from((0, 2)))))
            of.put_group(groups[keys[2]])
        else:
            groups.pop(keys[2], None)
            of.drop_group(keys[2])
    anew = book(*groups.values(), *pods.values())
    asked = [(p, Delivery.BINDER) for p in pods.values() if not (p.node_name or p.terminal or p.deleting)]
    assert gangs_for(of, asked, {}, _rack) == gangs_for(anew, asked, {}, _rack)
    assert _parts(of) == _parts(anew)


def _parts(of: GangRegistry) -> list[tuple[str, list[str], int]]:
    return sorted((each.name, sorted(pod.name for pod in each.bound), each.needed) for each in of.partial_gangs({}))
