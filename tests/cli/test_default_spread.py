"""Pods without topologySpreadConstraints are spread as kube-scheduler spreads them by default."""

import json
import random
from collections import Counter
from typing import Any

import pytest
from support.cli import Manifest, node, plan_of, pod, thalweg

ZONES = ("a", "b", "c")
ZONE = "topology.kubernetes.io/zone"


def zoned(name: str, zone: str | None, cpu: str = "32") -> Manifest:
    made = node(name, cpu)
    if zone is not None:
        made["metadata"]["labels"][ZONE] = zone
    return made


def nodes(per_zone: int = 2, cpu: str = "32") -> list[Manifest]:
    return [zoned(f"{zone}{place}", zone, cpu) for zone in ZONES for place in range(per_zone)]


def replica(name: str, cpu: str = "100m", *, owner: str = "web", kind: str = "ReplicaSet", version: str = "apps/v1",
            labels: dict[str, str] | None = None, **spec: Any) -> Manifest:  # fmt: skip
    """A pod of a controller; a running one where ``nodeName`` is among the further fields of its spec."""
    made = pod(name, cpu, schedulerName="thalweg", **spec)
    made["metadata"]["labels"] = {"app": owner} if labels is None else labels
    if owner:
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": version, "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
        ]
    if "nodeName" in spec:
        made["status"] = {"phase": "Running"}
    return made


def load(zone: str, per_zone: int = 2, cpu: str = "4") -> list[Manifest]:
    """A pod on each node of a zone that belongs to nobody."""
    return [
        replica(f"load-{zone}{place}", cpu, owner="", labels={}, nodeName=f"{zone}{place}") for place in range(per_zone)
    ]


def service(name: str, **selector: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": selector}}  # fmt: skip


def policy(spread: Any) -> Manifest:
    return {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy", "metadata": {"name": "p"},
            "spec": {"selects": {"podSelector": {}}, "cost": {"defaultSpread": spread}}}  # fmt: skip


def per_zone(plan: dict[str, Any], *others: str) -> list[int]:
    """Pods in zones a, b and c: those that the plan places, and these nodes' once each."""
    counts = Counter(place[0] for place in (*plan["placements"].values(), *others))
    return [counts[zone] for zone in ZONES]


@pytest.mark.parametrize(
    ("kind", "version"), [("ReplicaSet", "apps/v1"), ("StatefulSet", "apps/v1"), ("ReplicationController", "v1")]
)
def test_replicas_keep_a_zone_that_is_fuller(kind: str, version: str) -> None:
    """kube-scheduler places three, five and four of them."""
    pods = [replica(f"web-{number}", kind=kind, version=version) for number in range(12)]
    assert sorted(per_zone(plan_of(*nodes(), *load("a"), *pods))) in ([4, 4, 4], [3, 4, 5])


def test_a_second_replica_goes_to_another_zone() -> None:
    """Although the other zone is fuller; no matter whether the ReplicaSet is in the dump."""
    first, second = replica("web-0", nodeName="a0"), replica("web-1")
    plan = plan_of(
        zoned("a0", "a"), zoned("b0", "b"), replica("load", "6", owner="", labels={}, nodeName="b0"), first, second
    )
    assert plan["placements"] == {"default/web-1": "b0"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [6, 9, 15])
def test_drawn_loads_take_no_zone_from_an_application(count: int, seed: int) -> None:
    """Whatever runs there: no zone has two pods more than another, with maxSkew 5 softly."""
    draw = random.Random(seed)
    running = [
        replica(f"load-{each}", str(draw.randint(1, 16)), owner="", labels={}, nodeName=each)
        for each in (made["metadata"]["name"] for made in nodes())
        if draw.random() < 0.6
    ]
    counts = per_zone(plan_of(*nodes(), *running, *(replica(f"web-{number}") for number in range(count))))
    assert max(counts) - min(counts) <= 2


@pytest.mark.parametrize("count", [3, 12, 27])
def test_pods_of_a_service_are_even_on_many_nodes(count: int) -> None:
    """Upstream's TestDefaultPodTopologySpreadScoring: 300 nodes in three zones, pods without a controller."""
    pods = [replica(f"web-{number}", owner="", labels={"service": "s"}) for number in range(count)]
    plan = plan_of(*nodes(100), service("s", service="s"), *pods)
    assert per_zone(plan) == [count // 3] * 3
    assert len(set(plan["placements"].values())) == count


def test_a_service_spreads_pods_that_no_controller_spreads() -> None:
    """Without a Service, with one that selects others, or one without a selector, load alone decides."""
    pods = [replica(f"web-{number}", kind="Job", version="batch/v1") for number in range(6)]
    for services in ([], [service("other", app="db")], [service("none")]):
        assert per_zone(plan_of(*nodes(), *load("a"), *services, *pods))[0] == 0
    assert per_zone(plan_of(*nodes(), *load("a"), service("web", app="web"), *pods))[0] > 0


def test_services_of_any_type_count_together() -> None:
    """Pods are spread among those that have the labels of all Services that select them."""
    headless, external = service("headless", app="web"), service("external", tier="front")
    headless["spec"]["clusterIP"] = "None"
    external["spec"].update(type="ExternalName", externalName="example.invalid")
    # The pods in zone a have one of the labels only: they are not counted.
    others = [replica(f"o{place}", owner="", labels={"app": "web"}, nodeName=f"a{place}") for place in range(2)]
    mine = replica("m0", owner="", labels={"app": "web", "tier": "front"}, nodeName="b0")
    new = replica("m1", owner="", labels={"app": "web", "tier": "front"})
    fuller = load("c")
    assert per_zone(plan_of(*nodes(), headless, external, *others, *fuller, mine, new)) == [1, 0, 0]


def test_replicas_of_others_do_not_count() -> None:
    """Two ReplicaSets behind one Service, as in a rolling update: each is spread by itself."""
    old = [
        replica(f"old-{number}", owner="old", labels={"app": "web"}, nodeName=f"a{number % 2}") for number in range(4)
    ]
    new = [replica(f"new-{number}", owner="new", labels={"app": "web"}) for number in range(3)]
    assert per_zone(plan_of(*nodes(), service("web", app="web"), *old, *new)) == [1, 1, 1]


def test_own_constraints_come_before_the_default() -> None:
    """A pod with any constraint of its own, also one that counts nothing, has no other."""
    own = {
        "topologyKey": "rack",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"x": "y"}},
    }
    pods = [replica(f"web-{number}", topologySpreadConstraints=[own]) for number in range(6)]
    assert per_zone(plan_of(*nodes(), *load("a"), *pods))[0] == 0


def test_nodes_without_a_zone_are_no_last_choice() -> None:
    """They are in kube-scheduler's constraints of a pod's own, and not in its default."""
    running = [replica(f"web-{number}", nodeName=f"a{number}") for number in range(2)]
    made = plan_of(*nodes(2)[:2], zoned("bare", None), *running, replica("web-2"))
    assert made["placements"] == {"default/web-2": "bare"}


def test_a_policy_says_how() -> None:
    """None: load decides. A list: its constraints, here a rule that holds among the pods of the plan too."""
    pods = [replica(f"web-{number}") for number in range(6)]
    assert per_zone(plan_of(*nodes(), *load("a"), policy("None"), *pods))[0] == 0
    assert per_zone(plan_of(*nodes(), *load("a"), policy("System"), *pods))[0] > 0
    strict = [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    assert per_zone(plan_of(*nodes(), *load("a", cpu="30"), policy(strict), *pods)) == [2, 2, 2]
    full = [replica(f"full{place}", "32", owner="", labels={}, nodeName=f"a{place}") for place in range(2)]
    plan = plan_of(*nodes(), *full, policy(strict), *pods)
    assert per_zone(plan) == [0, 1, 1]
    assert "didn't match pod topology spread constraints" in plan["pending"]["default/web-5"]["reason"]


@pytest.mark.parametrize(
    ("spread", "problem"),
    [
        ("Zones", "spec.cost.defaultSpread"),
        (3, "spec.cost.defaultSpread"),
        ([{"topologyKey": ZONE, "maxSkew": 0, "whenUnsatisfiable": "ScheduleAnyway"}], "maxSkew"),
        ([{"topologyKey": "", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}], "is no key of a label"),
        ([{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "Never"}], "whenUnsatisfiable"),
        ([{"topologyKey": ZONE, "maxSkew": 1}], "whenUnsatisfiable"),
        (
            [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}],
            "labelSelector: is not allowed",
        ),
        (
            [{"topologyKey": ZONE, "maxSkew": skew, "whenUnsatisfiable": "ScheduleAnyway"} for skew in (1, 2)],
            "another constraint",
        ),
    ],
)  # fmt: skip
def test_a_list_is_checked_as_kube_schedulers_arguments(spread: Any, problem: str) -> None:
    """The message names the field."""
    dump = {"apiVersion": "v1", "kind": "List", "items": [*nodes(), replica("web-0"), policy(spread)]}
    done = thalweg("plan", "-f", "-", stdin=json.dumps(dump))
    assert problem in done.stderr


def test_a_required_list_is_not_for_kube_scheduler_to_choose() -> None:
    """Like constraints of a policy: it does not know them."""
    strict = policy([{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}])
    strict["spec"] |= {"delivery": "Extender", "steering": "Prefer"}
    done = thalweg(
        "plan", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes(), strict]})
    )
    assert "spec.steering: constraints need Require" in done.stderr


def test_ten_thousand_services_of_a_namespace_are_as_one() -> None:
    """Half of them select every pod, the others none of these: pods are spread as with one, and nobody waits."""
    pods = [replica(f"web-{number}", owner="", labels={"team": "t"}) for number in range(6)]
    others = [replica(f"job-{number}", kind="Job", version="batch/v1", labels={}) for number in range(3)]
    cluster = [*nodes(), *load("a"), *pods, *others]
    many = [service(f"all-{number}", team="t") for number in range(5_000)]
    many += [service(f"other-{number}", app=f"app-{number}", team="t") for number in range(5_000)]
    planned = plan_of(*cluster, *many)["placements"]
    assert len(planned) == len(pods) + len(others)
    assert planned == plan_of(*cluster, service("one", team="t"))["placements"]


def test_services_that_cannot_be_read_select_nobody() -> None:
    """A selector of another shape, and a Service without a spec, cost nobody a plan."""
    odd, bare = service("odd"), service("bare")
    odd["spec"]["selector"] = ["app"]
    del bare["spec"]
    pods = [replica(f"web-{number}", owner="", labels={"app": "web"}) for number in range(6)]
    counts = per_zone(plan_of(*nodes(), *load("a"), odd, bare, service("web", app="web"), *pods))
    assert sum(counts) == 6
    assert counts[0] > 0


def test_a_full_zone_makes_the_others_no_more_alike() -> None:
    """kube-scheduler scales over nodes that have room: c counts as emptier than b by half of the weight of spread.

    Scaled by the full zone it would be a twelfth, and the load of c would decide.
    """
    running = [
        *(replica(f"a-{number}", "200m", nodeName="a0") for number in range(20)),
        *(replica(f"b-{number}", nodeName="b0") for number in range(2)),
        replica("c-0", nodeName="c0"),
        *load("c", 1, "1500m"),
    ]
    assert per_zone(plan_of(*nodes(1, "4"), *running, replica("new"))) == [0, 0, 1]


def test_spread_keeps_no_pod_out() -> None:
    """Room for all is in one zone: they all go there."""
    full = [replica(f"full-{each}", "31", owner="", labels={}, nodeName=each) for each in ("b0", "b1", "c0", "c1")]
    assert per_zone(plan_of(*nodes(), *full, *(replica(f"web-{number}", "8") for number in range(8)))) == [8, 0, 0]


@pytest.mark.parametrize(("spread", "to"), [("System", "b0"), ("None", "a0")])
def test_what_if_spreads_pods_of_a_drained_node(spread: str, to: str) -> None:
    """As a round would: to the other zone though it is fuller, unless the policy says None."""
    items = [zoned("a0", "a"), zoned("a1", "a"), zoned("b0", "b"), policy(spread)]
    items += [*(replica(f"web-{number}", nodeName=f"a{number}") for number in range(2)), *load("b", 1, "6")]
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    done = thalweg("what-if", "-f", "-", "--drain", "a1", "-o", "json", stdin=dump)
    assert json.loads(done.stdout)["moved"] == {"default/web-1": {"from": "a1", "to": to}}
