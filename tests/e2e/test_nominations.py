"""What becomes of a nomination that cannot be followed, of one by others, and of pods when policies change.

kube-scheduler is away while a scene is set, where it would be faster than the test.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.cluster_scenario import POLICIES, ClusterScenario
from support.operator import until
from support.steering import (
    ONLY_BY_PLANS,
    SHARED_NAME,
    count,
    no_extender_calls,
    no_plans,
    nobody_binds,
    nominate,
    nominated,
)
from thalweg_controlplane import Api, ApiError, ControlPlane

from flowcore.model.advice import HELD_MESSAGE
from flowcore.model.policies import STEERED_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED: dict[str, str] = {}


async def writes(scene: ClusterScenario, kind: str = "nominate") -> float:
    return await count(scene.operator, "thalweg_steering_writes_total", kind)


@pytest.mark.parametrize("change", ["cordoned", "tainted", "deleted"])
async def test_a_node_that_is_refused(scene: ClusterScenario, plane: tuple[ControlPlane, Api], change: str) -> None:
    """Between plan and attempt the node is lost to the pod: it goes elsewhere, after few nominations."""
    await scene.nodes("a", labels={"good": "yes"})
    async with nobody_binds(plane):
        await scene.create("pod")
        await nominated(scene, "pod", "a")
        await scene.nodes("b")
        before = await writes(scene)
        match change:
            case "cordoned":
                await scene.api.patch("/api/v1/nodes/a", {"spec": {"unschedulable": True}})
            case "tainted":
                await scene.api.patch("/api/v1/nodes/a", {"spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]}})
            case _:
                await scene.api.delete("/api/v1/nodes/a")
    assert await scene.node_of("pod") == "b"
    assert await writes(scene) - before <= 3


async def test_no_other_node_than_the_one_refused(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """The pair of pod and node rests, the pod has a reason; when the node is good again it goes there."""
    await scene.nodes("a")
    async with nobody_binds(plane):
        await scene.create("pod")
        await nominated(scene, "pod", "a")
        await scene.api.patch("/api/v1/nodes/a", {"spec": {"unschedulable": True}})
        before = await writes(scene)
    await scene.reason_of("pod", "unschedulable")
    await no_extender_calls(scene)
    assert await writes(scene) - before <= 3
    await scene.api.patch("/api/v1/nodes/a", {"spec": {"unschedulable": None}})
    assert await scene.node_of("pod") == "a"


async def test_room_taken_by_pods_of_a_higher_priority(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """Unmanaged pods before which a nomination does not count take the node: the pod goes elsewhere, or waits."""
    await priorities(scene, {"urgent": 100000})
    await scene.nodes("a", cpu="2")
    async with nobody_binds(plane):
        await scene.create("ours", "2")
        await nominated(scene, "ours", "a")
        await scene.create("theirs", "2", scheduler="default-scheduler", priorityClassName="urgent")
    assert await scene.node_of("theirs") == "a"
    await scene.wait_settled()
    assert "nodeName" not in (await scene.get("ours"))["spec"]
    await scene.nodes("b", cpu="2")
    assert await scene.node_of("ours") == "b"


async def test_a_pod_that_may_not_be_changed(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], refusing: dict[str, str]
) -> None:
    """A webhook or an admission policy denies its nomination: it rests, and is not tried on each node in turn."""
    await scene.nodes(*(f"n{number}" for number in range(10)), cpu="2")
    before = await writes(scene)
    scene.ignored_reasons.add("locked")
    async with nobody_binds(plane):
        await scene.create("locked", "1", labels=refusing)
        await scene.create("free", "1")
        await until(lambda: scene.events_of("locked"), 60, lambda: "the pod to be told")
    (event,) = (await scene.events_of("locked"))[:1]
    assert "the API server refused to nominate node n" in event["message"]
    assert "locked pods stay as they are" in event["message"]
    assert await scene.node_of("free")
    # At once, after a second, after two more, and so on: never one for each node.
    assert await writes(scene) - before <= 5
    await scene.delete("locked")


@pytest_asyncio.fixture(loop_scope="module")
async def refusing(scene: ClusterScenario) -> AsyncIterator[dict[str, str]]:
    """Labels of pods whose status may not be changed."""
    labels, name = {"locked": "yes"}, {"name": "locked"}
    group = {"apiVersion": "admissionregistration.k8s.io/v1"}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"objectSelector": {"matchLabels": labels}, "resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "locked pods stay as they are"}],
    }
    paths = [
        f"/apis/admissionregistration.k8s.io/v1/{kind}"
        for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    ]
    binding = {"policyName": "locked", "validationActions": ["Deny"]}
    await scene.api.request(
        "POST", paths[0], {**group, "kind": "ValidatingAdmissionPolicy", "metadata": name, "spec": spec}
    )
    await scene.api.request(
        "POST", paths[1], {**group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": name, "spec": binding}
    )
    await scene.create("probe", "1", labels=labels, scheduler="nobody")

    async def in_effect() -> bool:
        try:
            await scene.api.patch(scene.path("probe") + "/status", {"status": {"message": "x"}})
        except ApiError:
            return True
        return False

    await until(in_effect, 30, lambda: "changes to be refused")
    yield labels
    for path in paths:
        await scene.api.delete(f"{path}/locked")
    await scene.delete("probe")


async def test_pods_of_the_same_priority_leave_the_room(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api]
) -> None:
    """Unmanaged pods that came first keep off a node that our nomination fills."""
    await scene.nodes("a", cpu="2")
    async with nobody_binds(plane):
        await scene.create("theirs", "2", scheduler="default-scheduler")
        await scene.create("ours", "2")
        await nominated(scene, "ours", "a")
    assert await scene.node_of("ours") == "a"
    await scene.nodes("b", cpu="2")
    assert await scene.node_of("theirs") == "b"


async def test_nominations_of_others_are_left_alone(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """Somebody else's, of a governed pod and of an unmanaged one, are reservations: never overwritten, counted."""
    await scene.nodes("a", "b", cpu="2")
    async with nobody_binds(plane):
        await scene.create("theirs", "2", scheduler="default-scheduler")
        await nominate(scene.api, scene.path("theirs"), "a")
        await scene.create("ours", "1", schedulingGates=[{"name": "example.com/later"}])
        await nominate(scene.api, scene.path("ours"), "b")
        await scene.api.patch(scene.path("ours"), {"spec": {"schedulingGates": None}})
        await scene.create("third", "1")
        await nominated(scene, "third", "b")
        await scene.create("fourth", "1")
        await until(lambda: scene.events_of("fourth"), 30, lambda: "the fourth to be told")
        for name, node in (("theirs", "a"), ("ours", "b")):
            assert (await nominated(scene, name, node))["metadata"].get("annotations") is None
    where = await scene.nodes_of("theirs", "ours", "third")
    assert where == {"theirs": "a", "ours": "b", "third": "b"}


async def test_our_nomination_replaced_by_somebody(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """Where another writes over ours, theirs stands."""
    await scene.nodes("a", cpu="2")
    async with nobody_binds(plane):
        await scene.create("pod", "1")
        await nominated(scene, "pod", "a")
        await scene.nodes("b", cpu="2")
        await nominate(scene.api, scene.path("pod"), "b")
        await scene.create("another", "2")
        await nominated(scene, "another", "a")
        assert (await scene.get("pod"))["status"]["nominatedNodeName"] == "b"
    assert await scene.nodes_of("pod", "another") == {"pod": "b", "another": "a"}


async def test_an_erased_nomination(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """Erased while nobody tried the pod: planned and nominated anew, and bound."""
    await scene.nodes("a")
    async with nobody_binds(plane):
        await scene.create("pod")
        await nominated(scene, "pod", "a")
        await nominate(scene.api, scene.path("pod"), None)
        await nominated(scene, "pod", "a")
    assert await scene.node_of("pod") == "a"


async def test_preemption(scene: ClusterScenario) -> None:
    """A pod of high priority whose policy lets it preempt nobody waits; an unmanaged one evicts as ever."""
    await priorities(scene, {"urgent": 100000})
    never = {"mode": "Never"}
    await scene.policy("steered", selects={"podSelector": {}}, delivery="Extender", preemption=never)
    await scene.nodes("a", cpu="2")
    await scene.api.create_many([scene.pod(f"low-{n}", "1", scheduler="default-scheduler") for n in range(2)])
    await scene.nodes_of("low-0", "low-1")
    await scene.create("ours", "1", priorityClassName="urgent")
    await scene.reason_of("ours", "Insufficient cpu")
    await no_extender_calls(scene)
    assert not scene.history.deleted
    assert await count(scene.operator, "thalweg_extender_answers_total", "preempt", "spared") > 0
    await scene.create("theirs", "1", scheduler="default-scheduler", priorityClassName="urgent")
    await nominated(scene, "theirs", "a")
    # Nobody but the kubelet, which is not there, removes a pod that is being evicted.
    victims: list[str] = []

    async def evicted() -> bool:
        victims[:] = [
            each["metadata"]["name"] for each in await scene.pods() if "deletionTimestamp" in each["metadata"]
        ]
        return bool(victims)

    await until(evicted, 30, lambda: "somebody to be evicted")
    assert len(victims) == 1
    await scene.delete(*victims)
    assert await scene.node_of("theirs") == "a"
    assert "nodeName" not in (await scene.get("ours"))["spec"]


async def test_the_plans_victims(scene: ClusterScenario) -> None:
    """kube-scheduler is told the pod that leaves for a pod, nominates the pod there, and binds it in the end."""
    await priorities(scene, {"urgent": 100000})
    await scene.policy(
        "steered", selects={"podSelector": {}}, delivery="Extender", replaces={"victims": "Governed"}, precedence=1
    )
    await scene.nodes("a", cpu="2")
    await scene.create("old", "2")
    await scene.node_of("old")
    await scene.nodes("b", cpu="1")
    told = await count(scene.operator, "thalweg_extender_answers_total", "preempt", "preempted")
    replaces = {"scheduling.thalweg/replaces": "old"}
    await scene.create("new", "1", priorityClassName="urgent", annotations=replaces)

    async def is_told() -> bool:
        return await count(scene.operator, "thalweg_extender_answers_total", "preempt", "preempted") > told

    # No kubelet is there: the evicted pod goes on leaving.
    await until(is_told, 30, lambda: "kube-scheduler to be told the victim")
    await nominated(scene, "new", "a")
    await scene.delete("old")
    assert await scene.node_of("new") == "a"


async def test_prefer(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """The planned node is taken; where it is refused, or the plan has none, kube-scheduler chooses itself."""
    await scene.policy("steered", selects={"podSelector": {}}, delivery="Extender", steering="Prefer")
    await scene.nodes("a", cpu="2")
    await scene.create("planned", "1")
    assert await scene.node_of("planned") == "a"
    async with nobody_binds(plane):
        await scene.create("refused", "1")
        await nominated(scene, "refused", "a")
        await scene.nodes("b", cpu="2")
        await scene.api.patch("/api/v1/nodes/a", {"spec": {"unschedulable": True}})
    assert await scene.node_of("refused") == "b"
    scene.ignored_pods.add("planned")
    await scene.create("full", "2")
    await scene.reason_of("full", "Insufficient cpu")
    await scene.nodes("c", cpu="2")
    assert await scene.node_of("full") == "c"


@pytest.mark.parametrize("to", ["Observe", "gone"])
async def test_a_policy_that_steers_no_more(scene: ClusterScenario, to: str) -> None:
    """Pods that were held are let go and placed by kube-scheduler on its own."""
    await scene.nodes("a", "b")
    selects = {"podSelector": {}, "schedulerNames": [STEERED_NAME]}
    await scene.policy("steered", selects=selects, delivery="Extender", unscheduled=ONLY_BY_PLANS)
    names = [f"held-{number}" for number in range(5)]
    with no_plans(scene):
        await scene.api.create_many([scene.pod(name, "200m") for name in names])
        for name in names:
            await scene.reason_of(name, HELD_MESSAGE)
        await no_extender_calls(scene)
        if to == "gone":
            await scene.api.delete(f"{POLICIES}/steered")
        else:
            await scene.policy("steered", selects=selects, delivery="Observe")
        await scene.nodes_of(*names)


async def test_a_policy_for_our_binder_on_kube_schedulers_pods(scene: ClusterScenario) -> None:
    """Held by the extender, bound by us: each once, and where there is no room it is told so without a fight."""
    await scene.policy(
        "shared", selects={"podSelector": {}, "schedulerNames": [SHARED_NAME]}, delivery="Binder", precedence=1
    )
    scene.watches_history.add(SHARED_NAME)
    await scene.nodes("a", "b", cpu="2")
    bound = await count(scene.operator, "thalweg_bindings_total", "bound")
    await scene.api.create_many([scene.pod(f"p{n}", "200m", scheduler=SHARED_NAME) for n in range(20)], 16)
    await scene.nodes_of()
    assert await count(scene.operator, "thalweg_bindings_total", "bound") == bound + 20
    await scene.create("late", "200m", scheduler=SHARED_NAME)
    await scene.reason_of("late", "Insufficient cpu")
    await no_extender_calls(scene)
    await scene.delete("p0")
    await scene.node_of("late")


async def priorities(scene: ClusterScenario, values: dict[str, int]) -> None:
    for name, value in values.items():
        await scene.priority_class(name, value)
