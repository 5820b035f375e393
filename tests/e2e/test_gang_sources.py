"""On a real API server: PodGroups of every kind become gangs of a round, and evictions keep to budgets."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
import yaml
from support.cluster_scenario import ClusterScenario
from support.fake_cluster.driven_ledger import DrivenLedger
from support.operator import until
from support.recording_shell import RecordingShell
from support.watching import watched_cluster
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.api import STRATEGIC_PATCH
from thalweg_controlplane.client.objects import node, object_path, pod
from thalweg_operator.api.client import connect
from thalweg_operator.api.writes.events import EventWriter
from thalweg_operator.delivery.evictor import Evictor
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import Departure, Evict
from thalweg_operator.shell import Shell

from flowcore.model.gangs import Gang
from flowcore.model.policies import Delivery

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: The disruption controller counts what budgets allow; KWOK makes pods ready.
PLANE = {"controller_manager": True, "kwok": True}
#: Kinds of PodGroups are installed.
BREAKS_PLANE = True
NATIVE, COSCHEDULING, VOLCANO = (
    "scheduling.k8s.io/v1alpha2",
    "scheduling.x-k8s.io/v1alpha1",
    "scheduling.volcano.sh/v1beta1",
)
CRDS = list(yaml.safe_load_all((Path(__file__).parent.parent / "support" / "pod_groups.yaml").read_text()))


@pytest_asyncio.fixture(loop_scope="module")
async def api(plane: tuple[ControlPlane, Api], request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """With a namespace named ml, which goes at the end."""
    _, api = plane
    name = f"ml-{abs(hash(request.node.name)) % 10**6}"
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await api.wait_for(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda _: True)
    request.node.namespace = name
    yield api
    await api.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds="0")


@pytest.fixture
def ml(api: Api, request: pytest.FixtureRequest) -> str:
    """The namespace."""
    found: str = request.node.namespace
    return found


def group(version: str, name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """A PodGroup."""
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def gang(count: int, rack: str = "") -> dict[str, Any]:
    """Spec of a native one."""
    constraints = {"schedulingConstraints": {"topology": [{"key": rack}]}} if rack else {}
    return {"schedulingPolicy": {"gang": {"minCount": count}}, **constraints}


def rounds(state: DrivenLedger, *namespaces: str) -> list[Gang]:
    """What a round would be told now."""
    waiting = (each for each in state.plannable() if each.namespace in namespaces and not each.blocked_reason)
    asked = [(each, Delivery.BINDER) for each in waiting]
    return state.gangs_of(asked)[1]


async def told(state: DrivenLedger, namespace: str, *gangs: Gang) -> None:
    """Waits until a round would be told this."""
    await until(lambda: rounds(state, namespace) == list(gangs), 60, lambda: f"{gangs}; {rounds(state, namespace)}")


async def test_native_pod_groups(plane: tuple[ControlPlane, Api], api: Api, ml: str) -> None:
    """The API server keeps spec.schedulingGroup. A PodGroup that comes later than its pods starts a round."""
    group_of = {"schedulingGroup": {"podGroupName": "train"}}
    made = await api.create(pod("a", namespace=ml, **group_of))
    assert made["spec"]["schedulingGroup"] == {"podGroupName": "train"}
    await api.create_many([pod(name, namespace=ml, **group_of) for name in "bc"])
    async with watched_cluster(plane[0]) as state:
        name = f"PodGroup {ml}/train"
        await told(state, ml, Gang(name, 1, unschedulable_reason=f"{name} does not exist"))
        requested = state.rounds_requested
        await api.create(group(NATIVE, "train", ml, **gang(4, "example.com/rack")))
        await told(
            state, ml, Gang(name, 4, topology_key="example.com/rack", unschedulable_reason=f"{name}: 3 of 4 pods exist")
        )
        assert state.rounds_requested > requested
        await api.create(node("n", labels={"example.com/rack": "r7"}))
        await api.create(pod("d", namespace=ml, nodeName="n", **group_of))
        await told(
            state, ml, Gang(name, 3, topology_key="example.com/rack", domain="r7", partially_placed=True, placed=1)
        )
        await api.delete(object_path(node("n")))
        await api.delete(object_path(group(NATIVE, "train", ml)))
        await api.delete(f"/api/v1/namespaces/{ml}/pods", gracePeriodSeconds="0")
        # The API server keeps it as long as a pod names it.
        await until(lambda: not state.gangs.groups, 30, lambda: str(state.gangs.groups))


async def test_pod_groups_whose_kinds_are_installed_later(
    plane: tuple[ControlPlane, Api], api: Api, ml: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coscheduling plugin's and Volcano's: their pods wait until kind and object are there."""
    monkeypatch.setattr("thalweg_operator.api.watches.reflector._ABSENT", 0.2)
    label, annotation = "scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name"
    await api.create_many([pod(name, namespace=ml, labels={label: "a"}) for name in ("a-0", "a-1")])
    await api.create(pod("b-0", namespace=ml, annotations={annotation: "b"}))
    one, two = f"PodGroup {ml}/a of scheduling.x-k8s.io", f"PodGroup {ml}/b of scheduling.volcano.sh"
    async with watched_cluster(plane[0]) as state:
        none = [Gang(name, 1, unschedulable_reason=f"{name} does not exist") for name in (one, two)]
        await told(state, ml, *none)
        for crd in CRDS:
            await api.apply(crd)
        for each in (group(COSCHEDULING, "a", ml, minMember=2), group(VOLCANO, "b", ml, minMember=1, queue="q")):
            await until(
                lambda each=each: _created(api, each), 30, lambda each=each: f"{each['apiVersion']} to be served"
            )
        await told(state, ml, Gang(one, 2), Gang(two, 1))
        await api.delete(object_path(group(VOLCANO, "b", ml)))
        await told(state, ml, Gang(one, 2), none[1])


async def _created(api: Api, manifest: dict[str, Any]) -> bool:
    try:
        await api.create(manifest)
    except Exception:  # noqa: BLE001 - the kind is being installed
        return False
    return True


async def test_an_annotation_that_does_not_parse(plane: tuple[ControlPlane, Api], api: Api, ml: str) -> None:
    """One pod waits and says so; those that are enough without it are a gang."""
    ours = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "2"}
    await api.create_many([pod(name, namespace=ml, annotations=ours) for name in "ab"])
    await api.create(pod("c", namespace=ml, annotations={**ours, "scheduling.thalweg/gang-min-member": "two"}))
    async with watched_cluster(plane[0]) as state:
        found = state.waiting[f"{ml}/c"]
        assert (
            found.blocked_reason == 'annotation scheduling.thalweg/gang-min-member: "two" is no whole number above zero'
        )
        assert rounds(state, ml) == [Gang(f"gang {ml}/train", 2)]


async def test_groups_that_kueue_admits(plane: tuple[ControlPlane, Api], api: Api, ml: str) -> None:
    """Pods behind Kueue's gates are not planned. Those that it lets in together are a gang."""
    gate, kueue = "kueue.x-k8s.io/admission", "kueue.x-k8s.io/pod-group-"
    pods = [
        pod(
            name,
            namespace=ml,
            labels={f"{kueue}name": "train"},
            annotations={f"{kueue}total-count": "2"},
            schedulingGates=[{"name": gate}],
        )
        for name in "ab"
    ]
    await api.create_many(pods)
    async with watched_cluster(plane[0]) as state:
        await until(lambda: {f"{ml}/a", f"{ml}/b"} <= state.waiting.keys(), 30, lambda: str(state.waiting.keys()))
        assert all(gate in state.waiting[f"{ml}/{name}"].blocked_reason for name in "ab")
        admitted = {"schedulingGates": [{"name": gate, "$patch": "delete"}]}
        await api.patch(object_path(pods[0]), {"spec": admitted}, content_type=STRATEGIC_PATCH)
        name = f"gang {ml}/train of kueue.x-k8s.io"
        gated = f"{ml}/b: its scheduling gates are closed: {gate}"
        short = f"{name}: it needs 2 pods at once, 1 can be planned now; {gated}"
        await told(state, ml, Gang(name, 2, unschedulable_reason=short))
        await api.patch(object_path(pods[1]), {"spec": admitted}, content_type=STRATEGIC_PATCH)
        await told(state, ml, Gang(name, 2))


async def test_evictions_keep_to_budgets(plane: tuple[ControlPlane, Api], api: Api, ml: str) -> None:
    """A pod stays as long as its budget says so, and goes once it may."""
    await api.create(node("kept"))
    labels = {"app": "x"}
    await api.create_many([pod(name, namespace=ml, labels=labels, nodeName="kept") for name in "ab"])
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "pdb", "namespace": ml},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": labels}},
    }
    path = f"/apis/policy/v1/namespaces/{ml}/poddisruptionbudgets"
    await api.request("POST", path, budget)
    await api.wait_for(f"{path}/pdb", lambda each: each.get("status", {}).get("currentHealthy") == 2)
    async with watched_cluster(plane[0]) as state, connect(plane[0].kubeconfig, 8) as connection:
        events = EventWriter(connection, Metrics())
        answers = RecordingShell()
        evictor = Evictor(connection, cast("Shell", answers), Metrics(), events)
        tasks = [asyncio.create_task(each.run()) for each in (evictor, events)]
        pods = [state.pods[f"{ml}/{name}"] for name in "ab"]
        evictor.put(Evict(pods[0], "Its gang is there in part.", Departure.PARTIAL_GANG))
        said = f"/api/v1/namespaces/{ml}/events"
        await until(lambda: _said(api, said, "disruption budget"), 30, lambda: "the budget to be named")
        assert f"{ml}/a" in state.pods
        await api.patch(f"{path}/pdb", {"spec": {"minAvailable": 1}})
        await until(lambda: f"{ml}/a" not in state.pods, 60, lambda: "a to be evicted")
        answers.answers.clear()
        evictor.put(Evict(pods[0], "It is gone already.", Departure.PARTIAL_GANG))
        await until(lambda: answers.ended, 60, lambda: "that to be noticed")
        assert f"{ml}/b" in state.pods
        for task in tasks:
            task.cancel()
    await api.delete(object_path(node("kept")))


async def _said(api: Api, path: str, text: str) -> bool:
    return any(text in each.get("message", "") and each.get("reason") == "Evicting" for each in await api.list(path))


async def test_pods_wait_for_their_pod_group(scene: ClusterScenario) -> None:
    """They say that it does not exist; when it does, they are placed, all at once."""
    await scene.nodes("n")
    group_of = {"schedulingGroup": {"podGroupName": "train"}}
    for name in "abc":
        await scene.create(name, **group_of)
    await scene.reason_of("a", f"PodGroup {scene.namespace}/train does not exist.")
    await scene.api.create(group(NATIVE, "train", scene.namespace, **gang(3)))
    await scene.nodes_of("a", "b", "c")


async def test_what_is_there_in_part_is_evicted(scene: ClusterScenario) -> None:
    """After the policy's time; pods that others bound, and that we govern, too."""
    await scene.policy(
        "all", selects={"podSelector": {}}, delivery="Binder", gangs={"timeout": "2s", "onPartialBind": "Evict"}
    )
    await scene.nodes("n")
    ours = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "3"}
    for name in "ab":
        await scene.create(name, annotations=ours, nodeName="n")
    await scene.create("c", "100", annotations=ours)
    await until(lambda: _only(scene, "c"), 60, lambda: "a and b to be evicted")


async def _only(scene: ClusterScenario, *names: str) -> bool:
    return {each["metadata"]["name"] for each in await scene.pods()} == {*names}
