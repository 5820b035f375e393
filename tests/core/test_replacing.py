"""A new pod takes the place of a running one, which leaves only when the new one can start: figures 4 and 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.model import amounts, node, pod, ports_clash
from support.profiles import examples
from support.safety import check_complete, check_gangs

from flowcore.api import Interner, WirePod, to_pod
from flowcore.cluster.arrays.snapshot import Int64s, NodeTable, PendingPod, Snapshot, Victim
from flowcore.cluster.arrays.storage import Storage
from flowcore.cluster.assembly import build_snapshot
from flowcore.cluster.replaced_pod import find_victim
from flowcore.model.constraints import Conflict, Global, OneDomain
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import PODS
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.volumes import Claim, ClaimRef, ClaimVolume, PersistentVolume
from flowcore.planning.round import RoundResult, run_one_by_one, run_round
from flowcore.rules.filters import run_filters

_HTTP = HostPort("10.0.0.1", "TCP", 80)


def running(
    name: str, on: str, cpu: int = 0, *, ports: tuple[HostPort, ...] = (), kind: PodSignature | None = None
) -> Victim:
    """A pod that runs."""
    return Victim(f"default/{name}", on, amounts(cpu), ports, kind or PodSignature())


def instead(old: Victim, new: PendingPod) -> PendingPod:
    """A new pod that is to take an old one's place."""
    return msgspec.structs.replace(new, victim=old)


def cluster(nodes: Sequence[Node], there: Sequence[Victim], waiting: Sequence[PendingPod]) -> Snapshot:
    """Nodes, the pods that run there, and those that wait."""
    return build_snapshot(
        generation=1,
        now=0.0,
        table=NodeTable.of(nodes),
        running=[(each.node, each.usage, each.host_ports) for each in there],
        pending=tuple(waiting),
        pod_index=PodIndex.of((each.node, each.signature) for each in there),
    )


def outcome(result: RoundResult) -> dict[str, str]:
    """Where each pod goes, or why it does not."""
    placed = {each.pod.key.removeprefix("default/"): each.node for each in result.placements}
    return placed | {each.pod.key.removeprefix("default/"): each.reason for each in result.unplaced}


def _prices(result: RoundResult) -> list[int]:
    return [each.price for each in result.placements] + [each.price for each in result.unplaced]


def test_figures_4_and_5() -> None:
    """T1 replaces T0 on M0: it goes there and nowhere else, although M0 is full and M1 has room."""
    t0 = running("t0", "m0", 4000)
    nodes = [node("m0", 4000), node("m1", 4000)]
    result = run_round(cluster(nodes, [t0], [instead(t0, pod("t1", 4000))]))
    assert outcome(result) == {"t1": "m0"}
    assert result.cost == sum(each.price for each in result.placements) == result.lower_bound


def test_what_does_not_fit_leaves_the_old_one_where_it_is() -> None:
    """The new pod waits, and is told which filter keeps it out there; another node, however free, is not its place."""
    t0 = running("t0", "m0", 2000)
    nodes = [node("m0", 4000), node("m1", 4000)]
    result = run_round(cluster(nodes, [t0, running("x", "m0", 1000)], [instead(t0, pod("t1", 3500))]))
    assert outcome(result) == {"t1": "cannot replace default/t0 on node m0: Insufficient cpu"}
    assert result.cost == result.unplaced[0].price


def test_nothing_that_comes_free_is_given_away() -> None:
    """A small pod replaces a large one: until that has left, nobody else may have the difference."""
    t0 = running("t0", "m0", 4000)
    result = run_round(cluster([node("m0", 4000)], [t0], [instead(t0, pod("t1", 1000)), pod("other", 1000)]))
    assert outcome(result)["t1"] == "m0"
    assert "Insufficient cpu" in outcome(result)["other"]


def test_what_the_new_one_needs_beyond_is_taken_first() -> None:
    """A large pod replaces a small one: what it needs beside that one's room goes to no other pod of the round."""
    t0 = running("t0", "m0", 1000)
    other = pod("other", 1500, priority=1000)
    result = run_round(cluster([node("m0", 4000)], [t0], [other, instead(t0, pod("t1", 3000))]))
    assert outcome(result)["t1"] == "m0"
    assert "Insufficient cpu" in outcome(result)["other"]


def test_of_two_that_name_one_pod_the_dearest_has_its_place() -> None:
    """The other is told so; where the dearest cannot start there, the other may."""
    t0, nodes = running("t0", "m0", 4000), [node("m0", 4000)]
    cheap, dear = instead(t0, pod("cheap", 1000)), instead(t0, pod("dear", 1000, priority=10))
    found = outcome(run_round(cluster(nodes, [t0], [cheap, dear])))
    assert found == {"dear": "m0", "cheap": "default/dear already replaces default/t0"}
    found = outcome(run_round(cluster(nodes, [t0], [cheap, instead(t0, pod("dear", 5000, priority=10))])))
    assert found["cheap"] == "m0"
    older = instead(t0, pod("older", 1000, created=1.0))
    found = outcome(
        run_round(replace(cluster(nodes, [t0], [instead(t0, pod("newer", 1000, created=9.0)), older]), now=10))
    )
    assert found["older"] == "m0"


def test_host_ports_come_free_for_the_new_one_alone() -> None:
    """Both want port 80: the new one may have it, a third pod may not."""
    t0 = running("t0", "m0", ports=(_HTTP,))
    third = pod("third", host_ports=(_HTTP,))
    result = run_round(cluster([node("m0")], [t0], [third, instead(t0, pod("t1", host_ports=(_HTTP,)))]))
    assert outcome(result)["t1"] == "m0"
    assert "free ports" in outcome(result)["third"]


def _apart(app: str, key: str) -> InterPodConstraints:
    return InterPodConstraints(anti_affinity=(AffinityTerm(key, _of(app), ("default",)),))


def _of(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


def test_a_claim_for_one_pod_passes_from_one_to_the_other() -> None:
    """ReadWriteOncePod: nobody else may mount it while the old one does, the one that takes its place may."""
    claim = ClaimVolume("default", "data")
    storage = Storage.of(
        [
            Claim("default", "data", "uid", volume_name="v", bound=True, access_modes=("ReadWriteOncePod",)),
            PersistentVolume("v", claim=ClaimRef("default", "data", "uid")),
        ],
        [("m0", (claim,))],
    )
    t0 = Victim("default/t0", "m0", volumes=(claim,))
    waiting = [pod("other", volumes=(claim,)), instead(t0, pod("t1", volumes=(claim,)))]
    found = outcome(run_round(replace(cluster([node("m0")], [t0], waiting), storage=storage)))
    assert found["t1"] == "m0"
    assert "ReadWriteOncePod" in found["other"]


def _kind(app: str, rules: InterPodConstraints | None = None) -> PodSignature:
    return PodSignature("default", (("app", app),), constraints=rules)


_HOSTS = [node(name, labels=(("host", name),)) for name in ("m0", "m1")]


def test_rules_do_not_count_the_one_that_leaves() -> None:
    """A pod that shuns its own kind takes the place of one of them; with another one of them there, it does not."""
    web = _kind("web", _apart("web", "host"))
    t0 = running("t0", "m0", kind=web)
    new = instead(t0, pod("t1", kind=web))
    assert outcome(run_round(cluster(_HOSTS, [t0], [new]))) == {"t1": "m0"}
    found = outcome(run_round(cluster(_HOSTS, [t0, running("x", "m0", kind=web)], [new])))
    assert "didn't match pod anti-affinity rules" in found["t1"]


def test_a_policys_cap_counts_one_of_both() -> None:
    """At most one web pod a node: one takes another's place, and a third finds none there."""
    policy = Policy(BUILT_IN.name, constraints=(Conflict("one", _of("web"), "host"),))
    t0 = running("t0", "m0", kind=_kind("web"))
    waiting = [pod("third", kind=_kind("web")), instead(t0, pod("t1", kind=_kind("web")))]
    result = run_round(cluster([_HOSTS[0]], [t0], waiting), {policy.name: policy})
    assert outcome(result)["t1"] == "m0"
    assert "third" in {each.pod.uid for each in result.unplaced}
    # Beside one that stays there is no place for another.
    result = run_round(
        cluster([_HOSTS[0]], [t0, running("x", "m0", kind=_kind("web"))], waiting), {policy.name: policy}
    )
    assert "cannot replace default/t0 on node m0" in outcome(result)["t1"]


def test_others_shun_both_until_one_has_left() -> None:
    """A pod that shuns the old one, and one that shuns the new one, both keep off the node."""
    t0 = running("t0", "m0", kind=_kind("old"))
    waiting = [
        instead(t0, pod("t1", kind=_kind("new"))),
        pod("a", kind=_kind("a", _apart("old", "host"))),
        pod("b", kind=_kind("b", _apart("new", "host"))),
    ]
    assert outcome(run_round(cluster(_HOSTS, [t0], waiting))) == {"t1": "m0", "a": "m1", "b": "m1"}


def test_spread_counts_the_one_that_stays() -> None:
    """One web pod on each node, one of them replaced by another kind: its domain is the emptiest then."""
    spread = InterPodConstraints(spread=(SpreadConstraint("host", 1, _of("web")),))
    there = [running("t0", "m0", kind=_kind("web")), running("t", "m1", kind=_kind("web"))]
    waiting = [instead(there[0], pod("t1", kind=_kind("db"))), pod("web", kind=_kind("web", spread))]
    assert outcome(run_round(cluster(_HOSTS, there, waiting))) == {"t1": "m0", "web": "m0"}


def test_what_cannot_be_is_said_and_holds_up_nobody() -> None:
    """Each with its reason; a pod beside them is placed."""
    t0 = running("t0", "gone")
    waiting = [
        instead(Victim(unschedulable_reason="no name"), pod("flawed")),
        instead(t0, pod("homeless")),
        pod("other"),
    ]
    assert outcome(run_round(cluster([node("m0")], [], waiting))) == {
        "flawed": "no name",
        "homeless": "the pod it replaces, default/t0, is on node gone, which does not exist",
        "other": "m0",
    }


def test_a_place_that_is_kept_is_judged_once_more() -> None:
    """The old one has left and the room is kept for the new one: rules and room are asked again, itself left aside."""
    web = _kind("web", _apart("web", "host"))
    place = Victim("default/t0", "m0", amounts(4000), (), web, has_left=True)
    new = instead(place, pod("t1", 4000, kind=web))
    assert outcome(run_round(cluster([_HOSTS[0]], [place], [new]))) == {"t1": "m0"}
    cordoned = msgspec.structs.replace(_HOSTS[0], unschedulable=True)
    assert "unschedulable" in outcome(run_round(cluster([cordoned], [place], [new])))["t1"]


# --- gangs ---

_TRAIN = "PodGroup ml/train"


def member(new: PendingPod, old: Victim | None = None) -> PendingPod:
    """A pod of a gang, which may name a pod whose place it is to take."""
    return msgspec.structs.replace(new, gangs=(_TRAIN,), victim=old)


def with_gang(found: Snapshot, needs: int, **fields: Any) -> Snapshot:
    """The snapshot with a gang that needs so many of its pods at once."""
    return replace(found, gangs={_TRAIN: Gang(_TRAIN, needs, **fields)})


def test_a_gang_takes_the_places_of_several() -> None:
    """Each pod goes where the pod ran that it names, and all are carried out as one."""
    there = [running("t0", "m0", 4000), running("t1", "m1", 4000)]
    waiting = [member(pod("a", 4000), there[0]), member(pod("b", 4000), there[1])]
    nodes = [node(name, 4000) for name in ("m0", "m1", "m2")]
    result = run_round(with_gang(cluster(nodes, there, waiting), 2))
    assert outcome(result) == {"a": "m0", "b": "m1"}
    assert {(each.atomic_group, each.optional) for each in result.placements} == {(_TRAIN, False)}
    assert result.cost == sum(each.price for each in result.placements) == result.lower_bound


def test_a_gang_waits_as_a_whole_for_one_place() -> None:
    """The reason names the pod and whose place it cannot take; the room of the others' places is everybody's."""
    there = [running("t0", "m0", 1000), running("t1", "m1", 4000)]
    waiting = [member(pod("a", 4000), there[0]), member(pod("b", 5000), there[1]), member(pod("c", 100))]
    nodes = [node(name, 4000) for name in ("m0", "m1")]
    found = outcome(run_round(with_gang(cluster(nodes, there, [*waiting, pod("other", 3000)]), 3)))
    why = f"{_TRAIN} waits as a whole: default/b: cannot replace default/t1 on node m1: Insufficient cpu."
    assert found == {"a": why, "b": why, "c": why, "other": "m0"}


def test_what_a_gang_names_wrongly() -> None:
    """A pod that may not be replaced, one that does not run yet, one that another pod names: nobody of it comes."""
    t0 = running("t0", "m0", 1000)
    nodes = [node("m0", 4000)]
    dear = instead(t0, pod("dear", 1000, priority=10))
    for waiting, why in (
        ([member(pod("a"), Victim(unschedulable_reason="it runs not yet"))], "default/a: it runs not yet"),
        ([member(pod("a"), running("t", "gone"))], "default/a: the pod it replaces, default/t, is on node gone"),
        ([member(pod("a"), t0), dear], "default/a: default/dear already replaces default/t0"),
        ([member(pod("a"), t0), member(pod("c"), t0)], "another pod of it already replaces default/t0"),
    ):
        found = outcome(run_round(with_gang(cluster(nodes, [t0], [*waiting, member(pod("b"))]), 2)))
        assert f"{_TRAIN} waits as a whole: " in found["b"]
        assert why in found["a"] == found["b"]


def test_a_gang_that_is_not_complete_replaces_nobody() -> None:
    """It needs more pods than wait."""
    t0 = running("t0", "m0", 1000)
    found = outcome(run_round(with_gang(cluster([node("m0", 4000)], [t0], [member(pod("a"), t0)]), 2)))
    assert found == {"a": f"{_TRAIN} needs 2 pods at once, 1 waits."}


def test_pods_that_name_nobody_take_any_node() -> None:
    """Two take places, the third goes where there is room. Where there is none, all wait and hold nothing."""
    there = [running("t0", "m0", 1000), running("t1", "m1", 4000)]
    waiting = [member(pod("a", 4000), there[0]), member(pod("b", 4000), there[1]), member(pod("c", 2000))]
    nodes = [node("m0", 4000), node("m1", 4000), node("m2", 2000)]
    result = run_round(with_gang(cluster(nodes, there, waiting), 3))
    assert outcome(result) == {"a": "m0", "b": "m1", "c": "m2"}
    assert {each.atomic_group for each in result.placements} == {_TRAIN}
    # What is free beside t0 is the place of the first; without it the third would fit there.
    result = run_round(with_gang(cluster(nodes[:2], there, [*waiting, pod("other", 3000)]), 3))
    found = outcome(result)
    assert found["other"] == "m0"
    assert found["a"] == found["b"] == found["c"]
    assert f"2 pods of {_TRAIN} would take the places of running pods" in found["a"]
    assert all(each.more_nodes_help for each in result.unplaced)


def test_a_gang_that_loses_room_to_a_dearer_pod_leaves_its_places() -> None:
    """Its third pod had room as the round began. The plan gives that away: nobody leaves for a gang that waits."""
    there = [running("t0", "m0", 4000)]
    waiting = [member(pod("a", 4000), there[0]), member(pod("c", 2000)), pod("dear", 2000, priority=1000)]
    nodes = [node("m0", 4000), node("m1", 2000)]
    result = run_round(with_gang(cluster(nodes, there, waiting), 2))
    found = outcome(result)
    assert found["dear"] == "m1"
    assert found["a"] == found["c"] != "m0"
    assert result.lower_bound <= result.cost
    assert result.cost == sum(_prices(result))


def test_a_gang_needs_every_pod_that_names_one() -> None:
    """Beyond what it needs, too. Pods that it does without come once the others have their places."""
    there = [running("t0", "m0", 4000), running("t1", "m1", 4000)]
    waiting = [member(pod("a", 4000), there[0]), member(pod("b", 5000), there[1]), member(pod("c", 100))]
    nodes = [node(name, 4000) for name in ("m0", "m1", "m2")]
    found = outcome(run_round(with_gang(cluster(nodes, there, waiting), 1)))
    assert "default/b: cannot replace default/t1" in found["a"] == found["c"]
    waiting[1] = member(pod("b", 4000), there[1])
    found = outcome(run_round(with_gang(cluster(nodes, there, waiting), 1)))
    assert (found["a"], found["b"]) == ("m0", "m1")
    assert found["c"] == f"{_TRAIN}: the pods that it needs take the places of running pods first."
    # Of a gang that runs already each pod is decided by itself.
    found = outcome(run_round(with_gang(cluster(nodes, there, [waiting[0], member(pod("b", 5000), there[1])]), 0)))
    assert (found["a"], found["b"]) == ("m0", "cannot replace default/t1 on node m1: Insufficient cpu")


def test_pods_of_a_gang_are_judged_without_all_that_leave() -> None:
    """Two that shun the old ones come where both leave; one that must be near an old one that leaves does not come."""
    old = _kind("old")
    there = [running(name, "m0", 1000, kind=old) for name in ("t0", "t1")]
    shy = _kind("new", _apart("old", "host"))
    waiting = [member(pod(name, 1000, kind=shy), each) for name, each in zip("ab", there, strict=True)]
    assert outcome(run_round(with_gang(cluster(_HOSTS, there, waiting), 2))) == {"a": "m0", "b": "m0"}
    near = InterPodConstraints(affinity=(AffinityTerm("host", _of("old"), ("default",)),))
    waiting = [member(pod(name, 1000, kind=_kind("new", near)), each) for name, each in zip("ab", there, strict=True)]
    found = outcome(run_round(with_gang(cluster(_HOSTS, there, waiting), 2)))
    assert "didn't match pod affinity rules" in found["a"] == found["b"]
    # By itself the first may come: the other old one stays.
    assert outcome(run_round(cluster(_HOSTS, there, [instead(there[0], pod("a", kind=waiting[0].signature))]))) == {
        "a": "m0"
    }


def test_room_of_a_node_is_that_of_all_that_leave_it() -> None:
    """A large and a small one take the places of a small and a large one: what both hold is enough for both."""
    there = [running("t0", "m0", 3000), running("t1", "m0", 1000)]
    waiting = [member(pod("a", 1000), there[0]), member(pod("b", 3000), there[1])]
    found = outcome(run_round(with_gang(cluster([node("m0", 4000)], there, [*waiting, pod("other", 100)]), 2)))
    assert (found["a"], found["b"]) == ("m0", "m0")
    assert "Insufficient cpu" in found["other"]


def test_a_gang_keeps_to_the_domain_of_its_places() -> None:
    """Its other pods go to the zone of the pod that is replaced; pods of two zones are no places for it."""
    nodes = [node(f"m{at}", 2000, labels=(("zone", f"z{at // 2}"),)) for at in range(4)]
    there = [running("t0", "m2", 2000), running("t1", "m0", 2000)]
    waiting = [member(pod("a", 2000), there[0]), member(pod("b", 2000))]
    found = outcome(run_round(with_gang(cluster(nodes, there, waiting), 2, topology_key="zone")))
    assert found == {"a": "m2", "b": "m3"}
    waiting = [member(pod("a", 2000), there[0]), member(pod("b", 2000), there[1])]
    found = outcome(run_round(with_gang(cluster(nodes, there, waiting), 2, topology_key="zone")))
    assert "keeps to one domain of zone" in found["a"] == found["b"]
    found = outcome(run_round(with_gang(cluster(nodes, there, waiting), 2, topology_key="zone", domain="z1")))
    assert f"default/b: cannot replace default/t1 on node m0: {_TRAIN} keeps to zone z1" in found["a"]


def test_constraints_that_place_pods_together() -> None:
    """OneDomain keeps to the zone of the place. Global counts a node once, whoever takes a place there."""
    nodes = [
        node(f"m{at}", 2000, labels=(("gpu", "yes"), ("kubernetes.io/hostname", f"m{at}"), ("zone", f"z{at}")))
        for at in range(3)
    ]
    web, t0 = _kind("web"), running("t0", "m1", 1500, kind=_kind("old"))
    together = Policy(BUILT_IN.name, constraints=(OneDomain("one", _of("web"), "zone"),))
    waiting = [instead(t0, pod("a", 1500, kind=web)), pod("b", 500, kind=web)]
    assert outcome(run_round(cluster(nodes, [t0], waiting), {together.name: together})) == {"a": "m1", "b": "m1"}
    everywhere = Policy(BUILT_IN.name, constraints=(Global("all", _of("web"), _has("gpu"), all_or_none=True),))
    t1 = running("t1", "m1", 2000, kind=web)
    waiting = [instead(t1, pod("a", 1500, kind=web)), pod("b", 500, kind=web)]
    found = outcome(run_round(cluster(nodes, [t1], waiting), {everywhere.name: everywhere}))
    assert "needs 3 pods at once, 2 wait" in found["a"] == found["b"]
    waiting.append(pod("c", 500, kind=web))
    found = outcome(run_round(cluster(nodes, [t1], waiting), {everywhere.name: everywhere}))
    assert found["a"] == "m1"
    assert {found["b"], found["c"]} == {"m0", "m2"}


def _has(key: str) -> LabelSelector:
    return LabelSelector((Requirement(key, "Exists", ()),))


# --- from pods to whose place they take ---


def _read(name: str, annotation: str | None = None, on: str = "", phase: str = "Pending", **spec: object) -> Pod:
    annotations = {} if annotation is None else {"scheduling.thalweg/replaces": annotation}
    manifest = {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": annotations},
        "spec": {"containers": [{"name": "c", **spec}], "nodeName": on},
        "status": {"phase": phase},
    }
    return to_pod(msgspec.convert(manifest, WirePod), Interner())


def _asked(annotation: str | None, *others: Pod, ports: Mapping[HostPort, int] | None = None) -> Victim | None:
    return find_victim(_read("new", annotation), {each.key: each for each in others}, ports or {}, {})


def test_the_annotation_names_a_pod_that_runs() -> None:
    """Its node, room and ports are what the new one may have; a port that somebody else there holds too is not."""
    old = _read(
        "old",
        on="n",
        phase="Running",
        resources={"requests": {"cpu": "1"}},
        ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}],
    )
    found = _asked("old", old, ports={_HTTP: 1})
    assert found == Victim("ns/old", "n", amounts(1000), (_HTTP,), old.signature)
    found = _asked("old", old, ports={_HTTP: 2})
    assert found is not None
    assert not found.host_ports


def test_what_the_annotation_may_say_wrongly() -> None:
    """No name, its own name, or the name of a pod without a node: the pod waits, and why is told."""
    for text in ("", "Old", "a/b", "old ", "-", "x" * 254, "ü"):
        found = _asked(text)
        assert found is not None, text
        assert "scheduling.thalweg/replaces names no pod" in found.unschedulable_reason
    found = _asked("new")
    assert found is not None
    assert "names itself" in found.unschedulable_reason
    found = _asked("old", _read("old"))
    assert found is not None
    assert found.unschedulable_reason == "the pod it replaces, ns/old, does not run yet"


def test_nobody_to_replace() -> None:
    """A pod that is not there, or has ended, has no place: the new one is placed like any other."""
    assert _asked(None) is None
    assert _asked("never.was") is None
    assert _asked("old", _read("old", on="n", phase="Succeeded")) is None


# --- whatever the cluster ---

_apps = st.sampled_from(("a", "b"))
_keys = st.sampled_from(("host", "zone"))
_some_rules = st.one_of(
    st.none(),
    st.builds(_apart, _apps, _keys),
    st.builds(lambda app, key: InterPodConstraints(spread=(SpreadConstraint(key, 1, _of(app)),)), _apps, _keys),
)
_kinds = st.builds(_kind, _apps, _some_rules)
_ports = st.sampled_from(((), (), (_HTTP,), (HostPort("10.0.0.2", "TCP", 80),)))


@dataclass
class Drawn:
    """A cluster, and all its running pods."""

    nodes: list[Node]
    there: list[Victim]
    waiting: list[PendingPod]

    def snapshot(self, there: Sequence[Victim]) -> Snapshot:
        """With these pods there."""
        return cluster(self.nodes, there, self.waiting)


@st.composite
def clusters(draw: st.DrawFn) -> Drawn:
    """A few nodes in two zones, pods that run, and pods that wait, some of which are to replace some of those."""
    nodes = [
        node(f"n{at}", draw(st.sampled_from((1000, 2000))), pods=4, labels=(("host", f"n{at}"), ("zone", f"z{at % 2}")))
        for at in range(draw(st.integers(1, 4)))
    ]
    there: list[Victim] = []
    for at in range(draw(st.integers(1, 6))):
        on = draw(st.sampled_from(nodes)).name
        ports = draw(_ports) if not any(each.host_ports for each in there if each.node == on) else ()
        old = running(f"old{at}", on, draw(st.sampled_from((0, 200, 500, 1000))), ports=ports, kind=draw(_kinds))
        there.append(old)
    waiting = []
    for at in range(draw(st.integers(1, 8))):
        cpu, priority = draw(st.sampled_from((0, 200, 500, 1000, 1500))), draw(st.sampled_from((0, 0, 100)))
        new = pod(f"p{at}", cpu, kind=draw(_kinds), host_ports=draw(_ports), priority=priority)
        waiting.append(instead(draw(st.sampled_from(there)), new) if draw(st.booleans()) else new)
    return Drawn(nodes, there, waiting)


def _left_room(snapshot: Snapshot, there: Sequence[Victim], placed: Sequence[tuple[str, PodClass]]) -> None:
    """No node that somebody is placed on gives more than it has of what is asked for, and no port twice."""
    for at, each in enumerate(snapshot.table.nodes):
        here = [pod_class for on, pod_class in placed if on == each.name]
        old = [one for one in there if one.node == each.name]
        for name, offered in each.allocatable:
            wanted = sum(1 if name == PODS else dict(pod_class.requests).get(name, 0) for pod_class in here)
            held = sum(1 if name == PODS else dict(one.usage).get(name, 0) for one in old)
            assert not wanted or held + wanted <= offered, f"{each.name} gives too much {name}"
        ports = [port for pod_class in here for port in pod_class.host_ports]
        for port in ports:
            others = [one for old_one in old for one in old_one.host_ports] + ports
            assert sum(ports_clash(port, one) for one in others) == 1, f"a port of node {at} is given twice"


@settings(max_examples=examples(80), deadline=None)
@given(clusters())
def test_no_plan_counts_on_a_pod_that_has_not_left(drawn: Drawn) -> None:
    """Whether all the old ones leave at once or never, nothing is overcommitted and nobody shuns whom it is with.

    A new pod that is placed passes every filter at its turn in the cluster without the one that it replaces, and the
    others after them. Each pod is placed or left with a reason, and the same pods give the same plan.
    """
    snapshot = drawn.snapshot(drawn.there)
    result = run_round(snapshot)
    again = run_round(snapshot)
    assert (again.placements, again.unplaced, again.cost) == (result.placements, result.unplaced, result.cost)
    assert sorted(each.key for each in drawn.waiting) == sorted(
        each.pod.key for each in (*result.placements, *result.unplaced)
    )
    assert all(each.reason for each in result.unplaced)
    prices = _prices(result)
    assert result.lower_bound <= result.cost == sum(prices)

    replacing = [each for each in result.placements if each.pod.victim is not None]
    others = [each for each in result.placements if each.pod.victim is None]
    gone = [each.pod.victim.key for each in replacing if each.pod.victim is not None]
    assert len(set(gone)) == len(gone), "one pod was replaced by two"
    # They never leave: the new ones never come.
    _left_room(snapshot, drawn.there, [(each.node, each.pod.pod_class) for each in others])
    # They leave: everybody is judged at its turn.
    stays = [each for each in drawn.there if each.key not in gone]
    _left_room(snapshot, stays, [(each.node, each.pod.pod_class) for each in result.placements])
    come: list[tuple[str, PodSignature]] = []
    for count, placement in enumerate(result.placements):
        old = placement.pod.victim
        assert old is None or placement.node == old.node
        left = gone[: count + 1]
        now = replace(
            drawn.snapshot([each for each in drawn.there if each.key not in left]),
            pod_index=PodIndex.of([(one.node, one.signature) for one in drawn.there if one.key not in left] + come),
        )
        verdicts = run_filters(PodClass(), now, placement.pod.signature)  # rules between pods; room was looked at
        at = now.table.index[placement.node]
        spoken = verdicts.of_node(at)
        assert not spoken[0] or spoken[0] == "NodeResourcesFit", f"{placement.pod.key} on {placement.node}: {spoken}"
        come.append((placement.node, placement.pod.signature))
    if not any(each.pod.signature.constraints is not None and each.pod.signature.constraints.spread for each in others):
        both = PodIndex.of((one.node, one.signature) for one in drawn.there)
        for placement in others:
            now = replace(drawn.snapshot(drawn.there), pod_index=both)
            spoken = run_filters(PodClass(), now, placement.pod.signature).of_node(now.table.index[placement.node])
            assert spoken[0] in ("", "NodeResourcesFit"), f"{placement.pod.key} beside one that has not left: {spoken}"


@settings(max_examples=examples(50), deadline=None)
@given(clusters())
def test_whoever_could_start_there_does(drawn: Drawn) -> None:
    """A new pod that is left to wait really has no place: another has it, or it passes not all filters there."""
    snapshot = drawn.snapshot(drawn.there)
    for result in (run_round(snapshot), run_one_by_one(snapshot)):
        taken = {each.pod.victim.key for each in result.placements if each.pod.victim is not None}
        for left in result.unplaced:
            old = left.pod.victim
            if old is None or old.key in taken or taken:
                continue  # what others made of the cluster has its own test
            without = drawn.snapshot([each for each in drawn.there if each.key != old.key])
            at = without.table.index[old.node]
            assert not run_filters(left.pod.pod_class, without, left.pod.signature).fits[at], left.reason


@st.composite
def gang_clusters(draw: st.DrawFn) -> Snapshot:
    """The same with one or two gangs, of which any pods name running ones: some depend on each other."""
    drawn = draw(clusters())
    names = [f"PodGroup ns/g{at}" for at in range(draw(st.integers(1, 2)))]
    choices = st.sampled_from(((), *((name,) for name in names for _ in range(2)), tuple(names)))
    pending = tuple(msgspec.structs.replace(each, gangs=draw(choices)) for each in drawn.waiting)
    gangs = {}
    for name in names:
        waiting = sum(name in each.gangs for each in pending)
        zone, unit = draw(st.sampled_from(("", "", "zone"))), draw(st.sampled_from(("", "u")))
        gangs[name] = Gang(name, max(0, waiting - draw(st.integers(-1, 2))), unit, zone)
    return replace(drawn.snapshot(drawn.there), pending=pending, gangs=gangs)


@settings(max_examples=examples(120), deadline=None)
@given(gang_clusters())
def test_gangs_replace_whole_or_not_at_all(snapshot: Snapshot) -> None:
    """No gang is half-placed, each that is placed has the places of all pods that it names, and nobody gets too much.

    Each of its pods passes every filter once all pods have left that are replaced, beside the whole plan.
    """
    result = run_round(snapshot)
    again = run_round(snapshot)
    assert (again.placements, again.unplaced, again.cost) == (result.placements, result.unplaced, result.cost)
    check_complete(snapshot, result)
    check_gangs(snapshot, result)
    assert all(each.reason for each in result.unplaced)
    prices = _prices(result)
    assert result.lower_bound <= result.cost == sum(prices)
    on = {each.pod.key: each.node for each in result.placements}
    for name, gang in snapshot.gangs.items():
        members = [each for each in snapshot.pending if name in each.gangs]
        if gang.min_placed and any(each.key in on for each in members):
            named = {each.key: each.victim.node for each in members if each.victim is not None}
            assert {key: on.get(key) for key in named} == named
    gone = [each.pod.victim for each in result.placements if each.pod.victim is not None]
    assert len({each.key for each in gone}) == len(gone), "one pod was replaced by two"
    assert (_lacking(snapshot, result, gone) >= 0).all(), "more is given than there is"


def _lacking(snapshot: Snapshot, result: RoundResult, gone: Sequence[Victim]) -> Int64s:
    """int64[P, R]: what lacks of what each placed pod asks for, below 0, once those have left who are replaced."""
    free, index = snapshot.free.copy(), snapshot.table.index
    rows = [index[each.node] for each in result.placements]
    asked = [snapshot.vector(each.pod.pod_class.requests) for each in result.placements]
    for old in gone:
        free[index[old.node]] += snapshot.vector(old.usage)
    for row, amounts_asked in zip(rows, asked, strict=True):
        free[row] -= amounts_asked
    # What others overcommitted before is no concern of a pod that asks for none of it.
    lacking = [np.minimum(free[row], 0) * (each > 0) for row, each in zip(rows, asked, strict=True)]
    return np.array(lacking, dtype=np.int64).reshape(len(rows), len(snapshot.resources))


@settings(max_examples=examples(150), deadline=None)
@given(constrained_snapshots(), st.data())
def test_less_some_pods_is_as_if_they_had_never_been(snapshot: Snapshot, data: st.DataObject) -> None:
    """Rules between pods find the same whether pods are counted out or were not counted at all."""
    there = [(on, kind) for kind, on, count in snapshot.pod_index.counts() for _ in range(count)]
    gone = data.draw(st.lists(st.sampled_from(range(len(there))), unique=True)) if there else []
    stay = [each for at, each in enumerate(there) if at not in gone]
    more = data.draw(st.lists(st.sampled_from(there), max_size=2)) if there else []
    less = snapshot.pod_index.with_changes(more, [there[at] for at in gone])
    fresh = PodIndex.of([*stay, *more], snapshot.pod_index.namespaces)
    for waiting in snapshot.pending:
        verdicts = [
            run_filters(waiting.pod_class, replace(snapshot, pod_index=found), waiting.signature)
            for found in (less, fresh)
        ]
        nodes = range(len(snapshot.table.nodes))
        assert [verdicts[0].of_node(at) for at in nodes] == [verdicts[1].of_node(at) for at in nodes]
