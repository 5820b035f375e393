"""`--ask-for Governed` on a real control plane: kube-scheduler asks about pods with our mark, and about no others."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.operator import Operator, until
from support.steering import DelayingProxy
from thalweg_controlplane.client.objects import collection_path
from thalweg_operator.policies.gate_admission import NEW_POD_RULES_PATH

from flowcore.model.policies import GATE, MARK

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
BREAKS_PLANE = True
STEERED: dict[str, str] = {}
GOVERNED_ONLY = True
TWO = [{"name": "first", "image": "example.invalid/a"}, {"name": "second", "image": "example.invalid/b"}]


@pytest.fixture
def asked(relay: DelayingProxy) -> Iterator[list[bytes]]:
    """What kube-scheduler sends."""
    parts: list[bytes] = []
    relay.asked = parts.append
    yield parts
    relay.asked = lambda _part: None


async def made(scene: ClusterScenario, manifest: dict[str, Any]) -> dict[str, Any]:
    """The spec that the API server would create a pod with."""
    path = collection_path(manifest)
    found: dict[str, Any] = (await scene.api.request("POST", path, manifest, params={"dryRun": "All"}))["spec"]
    return found


def marks(spec: dict[str, Any]) -> list[bool]:
    """Whether each container has our mark; as a limit and a request, of zero."""
    for each in spec["containers"]:
        resources = each.get("resources", {})
        requests, limits = ({**resources.get(what, {})}.get(MARK) for what in ("requests", "limits"))
        assert (requests, limits) in (("0", "0"), (None, None))
    return [MARK in each.get("resources", {}).get("limits", {}) for each in spec["containers"]]


async def marked(scene: ClusterScenario, manifest: dict[str, Any], *, wanted: bool = True) -> None:
    """Returns once the API server marks a pod like this one."""

    async def seen() -> bool:
        return marks(await made(scene, manifest))[0] is wanted

    await until(seen, 30, lambda: f"{manifest['metadata']} to be {'marked' if wanted else 'left alone'}")


async def test_governed_pods_are_asked_about_and_others_are_not(scene: ClusterScenario, asked: list[bytes]) -> None:
    """The nodes offer no such resource; quotas and limits of the namespace refuse no marked pod."""
    await scene.nodes("a", "b")
    limits = {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "2"}, "type": "Container"}
    where = {"namespace": scene.namespace, "name": "all"}
    hard = {"pods": "10", "requests.cpu": "4", "limits.cpu": "20", f"requests.{MARK}": "0"}
    await scene.api.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": where, "spec": {"limits": [limits]}})
    await scene.api.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": where, "spec": {"hard": hard}})
    await marked(scene, scene.pod("probe"))
    for name in ("ours-1", "ours-2"):
        await scene.create(name)
    for name in ("theirs-1", "theirs-2"):
        await scene.create(name, scheduler="default-scheduler")
    placed = await scene.nodes_of("ours-1", "ours-2", "theirs-1", "theirs-2")
    assert set(placed.values()) <= {"a", "b"}
    said = b"".join(asked)
    assert b"ours-1" in said
    assert b"ours-2" in said
    assert b"theirs" not in said
    assert marks((await scene.get("ours-1"))["spec"]) == [True]
    assert marks((await scene.get("theirs-1"))["spec"]) == [False]


async def test_gates_and_marks_by_the_first_policy(scene: ClusterScenario, operator: Operator) -> None:
    """A gated pod is marked too, one that another policy only watches is neither; without a heartbeat marks go on."""
    await scene.policy("gated", precedence=1, selects={"podSelector": {"matchLabels": {"tier": "batch"}}},
                       delivery="Extender", waiting="Gate")  # fmt: skip
    seen = {"schedulerNames": [scene.scheduler], "podSelector": {"matchLabels": {"seen": ""}}}
    await scene.policy("watched", precedence=2, delivery="Observe", selects=seen)
    batch = scene.pod("batch", labels={"tier": "batch"}, containers=TWO)

    async def gated(wanted: bool) -> bool:  # noqa: FBT001
        spec = await made(scene, batch)
        assert marks(spec) == [True, False]
        assert [each["name"] for each in spec["containers"]] == ["first", "second"]
        return ([each["name"] for each in spec.get("schedulingGates", [])] == [GATE]) is wanted

    await marked(scene, scene.pod("watched", labels={"tier": "batch", "seen": ""}), wanted=False)
    await until(lambda: gated(True), 30, lambda: "the gate")
    plain = await made(scene, scene.pod("plain"))
    assert (marks(plain), "schedulingGates" in plain) == ([True], False)
    own = scene.pod("own", containers=[{**TWO[0], "resources": {"limits": {"cpu": "1"}}}])
    resources = (await made(scene, own))["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": "1", MARK: "0"}, "requests": {"cpu": "1", MARK: "0"}}
    system = {**scene.pod("system"), "metadata": {"name": "system", "namespace": "kube-system"}}
    assert marks(await made(scene, system)) == [False]
    assert await operator.stop() == 0
    try:
        await until(lambda: gated(False), 30, lambda: "no gate")
    finally:
        await operator.start()
    await until(lambda: gated(True), 30, lambda: "the gate")


async def test_the_object_comes_back(scene: ClusterScenario) -> None:
    """Somebody deletes it: without it nobody is asked about."""
    await marked(scene, scene.pod("probe"))
    await scene.api.delete(NEW_POD_RULES_PATH)
    await scene.api.wait_for(NEW_POD_RULES_PATH, lambda each: [rule["policy"] for rule in each["order"]] == ["steered"])
    await marked(scene, scene.pod("probe"))


async def test_a_gang_keeps_its_room_by_nominations(scene: ClusterScenario) -> None:
    """Others are not kept off by answers: so each pod of a gang is nominated, though it was not tried yet."""
    await scene.nodes("a", "b", cpu="4")
    gang = {"annotations": {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "2"}}
    await marked(scene, scene.pod("probe"))
    for name in ("g-1", "g-2"):
        await scene.create(name, "3", **gang)
    await scene.nodes_of("g-1", "g-2")
    for name in ("g-1", "g-2"):
        assert "scheduling.thalweg/nominated" in (await scene.get(name))["metadata"]["annotations"]
