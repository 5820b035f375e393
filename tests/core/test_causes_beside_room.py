"""Reasons of pods that wait say why nobody leaves for them, and that the pods which they need beside them wait, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest
from support.model import amounts, node, pod, snapshot

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm, InterPodConstraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Delivery, Policy, PreemptionMode, PreemptionPolicy
from flowcore.model.running_pods import HeldRoom, RunningPod, RunningPods
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.round import run_round

_ZONE = "topology.kubernetes.io/zone"
_LEAVE = "Running pods leave for pods of a lower priority, and none for this one"
_NEVER = PreemptionPolicy(mode=PreemptionMode.NEVER)


def reasons(cluster: Snapshot, policies: Mapping[str, Policy] | None = None) -> dict[str, str]:
    """Why pods wait after a round, by name."""
    result = run_round(cluster, policies or {BUILT_IN.name: BUILT_IN})
    return {each.pod.key.removeprefix("default/"): each.reason for each in result.unplaced}


# -- nobody leaves for it ----------------------------------------------------------------------------------------------


def crowded(pending: Sequence[PendingPod], *held: tuple[int, bool]) -> Snapshot:
    """A node with one core free beside a pod of priority 0.

    Args:
        held: cores that pods hold on a second node, in thousandths, and whether they end.
    """
    low = RunningPod(
        "default/low", "low", "n", PodClass(requests=amounts(3000)), usage=amounts(3000), started=1.0,
        policy=BUILT_IN.name, owner="web",
    )  # fmt: skip
    nodes = ["n", "m"] if held else ["n"]
    usage = [("n", low.usage, ()), *(("m", amounts(cpu), ()) for cpu, _ in held)]
    cluster = snapshot([node(name) for name in nodes], pending, usage, now=1000.0)
    terminating = tuple(HeldRoom("m", amounts(cpu)) for cpu, ends in held if ends)
    return replace(cluster, running=RunningPods((low,), terminating=terminating))


def never(waiting: PendingPod) -> PendingPod:
    """The pod with preemptionPolicy Never."""
    return msgspec.structs.replace(waiting, preempts=False)


def test_a_pod_that_never_preempts_says_so_while_others_leave_for_a_lower_one() -> None:
    """It needs the whole node; a less important one evicts the pod that runs there."""
    urgent = pod("urgent", 4000, priority=20)
    found = reasons(crowded([never(urgent), pod("batch", 3000, priority=10)]))
    assert found == {"urgent": f"0/1 nodes are available: 1 Insufficient cpu. {_LEAVE}: its preemptionPolicy is Never."}
    assert reasons(crowded([never(urgent)])) == {"urgent": "0/1 nodes are available: 1 Insufficient cpu."}


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy("quiet", preemption=_NEVER), "spec.preemption.mode of policy quiet is Never"),
        (
            Policy("quiet", preemption=PreemptionPolicy(after=5000.0)),
            "it has waited for less than spec.preemption.after of policy quiet",
        ),
        (Policy("quiet", delivery=Delivery.OBSERVE, preemption=_NEVER), ""),
    ],
)
def test_its_policy_may_be_why(policy: Policy, said: str) -> None:
    """Whatever the pod says itself. Of a pod that is only observed nothing is said: nobody leaves for it anyway."""
    urgent = pod("urgent", 4000, priority=20, policy=policy.name, created=1.0)
    cluster = crowded([urgent, pod("batch", 3000, priority=10)])
    reason = reasons(cluster, {BUILT_IN.name: BUILT_IN, policy.name: policy})["urgent"]
    assert (f"{_LEAVE}: {said}." if said else "") in reason
    assert (_LEAVE in reason) is bool(said)


def test_nothing_is_said_of_pods_for_which_priority_is_why() -> None:
    """The pod that others leave for is as important, or more."""
    for priority in (10, 5):
        found = reasons(crowded([never(pod("other", 4000, priority=priority)), pod("batch", 3000, priority=10)]))
        assert found == {"other": "0/1 nodes are available: 1 Insufficient cpu."}


@pytest.mark.parametrize(
    ("held", "is_said"), [([(4000, True)], False), ([(3000, True), (1000, False)], True)], ids=["all end", "some stay"]
)
def test_a_pod_waits_for_room_that_comes(*, held: list[tuple[int, bool]], is_said: bool) -> None:
    """Of a pod for which pods are leaving already nothing is said: they are what it waits for."""
    urgent, batch = never(pod("urgent", 4000, priority=20)), pod("batch", 3000, priority=10)
    assert (_LEAVE in reasons(crowded([urgent, batch], *held))["urgent"]) is is_said


# -- what it needs beside it waits, too --------------------------------------------------------------------------------


def needs(*terms: AffinityTerm, app: str = "web") -> PodSignature:
    """A pod with required affinity."""
    return PodSignature("default", (("app", app),), constraints=InterPodConstraints(affinity=terms))


def beside(selector: LabelSelector | None, key: str = HOSTNAME) -> AffinityTerm:
    """A term about pods of the namespace ``default``."""
    return AffinityTerm(key, selector, ("default",))


def labelled(app: str, namespace: str = "default") -> PodSignature:
    """A pod with a label."""
    return PodSignature(namespace, (("app", app),))


_DB = LabelSelector((Requirement("app", "In", ("db",)),))
_NODE = node("n", 1000, labels=((HOSTNAME, "n"), (_ZONE, "a")))


def test_a_pod_says_that_what_it_needs_beside_it_waits() -> None:
    """The database is too large for the node, so the pod that must run beside it waits, too."""
    web, db = pod("web", 100, kind=needs(beside(_DB))), pod("db", 2000, kind=labelled("db"))
    found = reasons(snapshot([_NODE], [web, db]))
    assert found["web"] == (
        "0/1 nodes are available: 1 node(s) didn't match pod affinity rules. "
        "It needs pods that match app=db on its node, and these wait, too."
    )
    assert "needs" not in found["db"]


def test_pods_that_need_each_other_say_so() -> None:
    """Two pods, each of which must be in the zone of the other one."""
    web = LabelSelector((Requirement("app", "In", ("web", "shop")), Requirement("old", "DoesNotExist")))
    pending = [
        pod("web", 100, kind=needs(beside(_DB), beside(_DB, _ZONE))),
        pod("db", 100, kind=needs(beside(web, _ZONE), app="db")),
    ]
    found = reasons(snapshot([_NODE], pending))
    assert found["web"].endswith(
        f" It needs pods that match app=db on its node and pods that match app=db in its {_ZONE}, and these wait, too."
    )
    selector = "app in (web,shop),!old"
    assert found["db"].endswith(f" It needs pods that match {selector} in its {_ZONE}, and these wait, too.")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(pod("other", 2000, kind=labelled("cache")), id="another label"),
        pytest.param(pod("db", 2000, kind=labelled("db", "shop")), id="another namespace"),
        pytest.param(pod("db", 500, kind=labelled("db")), id="it is placed"),
    ],
)
def test_nothing_is_said_where_no_such_pod_waits(other: PendingPod) -> None:
    """A pod of another label or namespace waits; or the pod is placed, and leaves too little room beside it."""
    found = reasons(snapshot([_NODE], [pod("web", 900, kind=needs(beside(_DB))), other]))
    assert "web" in found
    assert "It needs" not in found["web"]


def test_others_of_another_namespace_are_not_told() -> None:
    """A term may speak of them, and the author of the pod may not know them."""
    everywhere = AffinityTerm(HOSTNAME, _DB, ("default", "shop"))
    pending = [pod("web", 100, kind=needs(everywhere)), pod("db", 2000, kind=labelled("db", "shop"))]
    assert "It needs" not in reasons(snapshot([_NODE], pending))["web"]


def test_many_terms_are_counted() -> None:
    """The first three are told."""
    terms = [beside(_DB, key) for key in (HOSTNAME, _ZONE, "rack", "row", "room")]
    web, db = pod("web", 100, kind=needs(*terms)), pod("db", 2000, kind=labelled("db"))
    assert reasons(snapshot([_NODE], [web, db]))["web"].endswith(
        f" It needs pods that match app=db on its node and pods that match app=db in its {_ZONE} and pods that match "
        "app=db in its rack and 2 more, and these wait, too."
    )


def test_a_long_selector_is_cut() -> None:
    """A selector may have thousands of values."""
    many = LabelSelector((Requirement("app", "In", ("db", *(f"other-{number:05}" for number in range(1000)))),))
    web, db = pod("web", 100, kind=needs(beside(many))), pod("db", 2000, kind=labelled("db"))
    reason = reasons(snapshot([_NODE], [web, db]))["web"]
    assert "It needs pods that match app in (db,other-00000," in reason
    assert "... on its node" in reason
    assert len(reason) < 500


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        (Requirement("app", "In", ("web",)), "app=web"),
        (Requirement("app", "NotIn", ("web",)), "app!=web"),
        (Requirement("app", "In", ("a", "b")), "app in (a,b)"),
        (Requirement("app", "NotIn", ("a", "b")), "app notin (a,b)"),
        (Requirement("app", "Exists"), "app"),
        (Requirement("app", "DoesNotExist"), "!app"),
        (Requirement("cores", "Gt", ("4",)), "cores>4"),
        (Requirement("cores", "Lt", ("4",)), "cores<4"),
    ],
)
def test_requirements_are_written_as_kubectl_takes_them(requirement: Requirement, text: str) -> None:
    """Each operator."""
    assert LabelSelector((requirement,)).text == text
