"""The operator with the rights of rights/ and no others: they are enough, and each of them is used."""

from pathlib import Path

import pytest
import yaml
from support.audit import AuditedRequest, audited, refused
from support.cluster_scenario import ClusterScenario
from support.operator import running_operator, until
from support.proxy import proxied
from support.rights import DISCOVERY, Right, files, grant, granted, token
from support.steering import DelayingProxy, count, gates_in_effect
from thalweg_controlplane import Api, ControlPlane

from flowcore.model.policies import GATE

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True, "kwok": True, "audit": True}
STEERED = {"waiting": "Gate"}
POD_GROUPS = Path(__file__).parent.parent / "support" / "pod_groups.yaml"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/thalweg"


def is_used(right: Right, requests: list[AuditedRequest]) -> bool:
    """Whether a request needed the right."""
    return any(
        (each.verb, each.group, each.resource) == (right.verb, right.group, right.resource)
        and right.name in ("", each.name)
        and right.namespace in ("", each.namespace)
        for each in requests
    )


async def test_the_rights_are_enough_and_each_is_used(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], relay: DelayingProxy, tmp_path: Path
) -> None:
    """In scenes of all features the API server refuses no request, and no right is idle.

    The rights that every account has in a new cluster are taken away, so that only those of rights/ count.
    """
    control, api = plane
    await scene.operator.stop()
    await grant(api)
    for each in DISCOVERY:
        await api.delete(each)
    for each in yaml.safe_load_all(POD_GROUPS.read_text()):
        await api.apply(each)
    await scene.nodes("a", "b", cpu="4")
    async with (
        proxied(control, api, tmp_path, {"token": await token(api)}) as proxy,
        running_operator(
            proxy.kubeconfig,
            tmp_path / "operator.log",
            lease="kube-system/thalweg",
            extender=("--extender-listen", relay.to),
        ) as operator,
    ):
        await gates_in_effect(scene, scene.pod("probe"))
        await scene.policy("bound", selects={"podSelector": {}}, delivery="Binder", replaces={"victims": "Governed"})
        made = await api.create_many([scene.pod(f"steered-{n}", "100m") for n in range(10)])
        assert all(each["spec"]["schedulingGates"] == [{"name": GATE}] for each in made)
        await api.create_many([scene.pod(f"bound-{n}", "100m", scheduler="thalweg") for n in range(10)])
        await scene.nodes_of(within=60)
        # A binding whose answer is lost: the operator reads the pod.
        proxy.loses = "/binding"
        await scene.create("asked-again", scheduler="thalweg")
        await scene.node_of("asked-again")
        await until(lambda: not proxy.loses, 10, lambda: "the answer to be lost")
        await api.wait_for(scene.path("bound-0"), lambda each: each["status"].get("phase") == "Running")
        replaces = {"annotations": {"scheduling.thalweg/replaces": "bound-0"}}
        await scene.create("successor", scheduler="thalweg", **replaces)
        await scene.node_of("successor")
        await scene.create("big", "16")
        await scene.reason_of("big", "Insufficient cpu")
        await scene.create("large", "16", scheduler="thalweg")
        await scene.reason_of("large", "Insufficient cpu")
        # Of the kinds that the cluster did not serve at first.
        await api.delete(scene.path("large"), gracePeriodSeconds="0")
        rights = [right for stem in files() for right in granted(stem)]
        idle: list[Right] = []

        async def all_used() -> bool:
            nonlocal idle
            requests = audited(control)
            assert refused(requests) == []
            idle = [right for right in rights if not is_used(right, requests)]
            return not idle

        await until(all_used, 60, lambda: f"these rights to be used: {idle}")
        assert await count(operator, "thalweg_evictions_total", "evicted") == 1
        assert await operator.stop() == 0
        assert (await api.get(LEASE))["spec"]["holderIdentity"] == ""
    assert refused(audited(control)) == []
    assert "Forbidden" not in operator.log
    await scene.operator.start()
