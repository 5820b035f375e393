"""NodeResourceTopology objects and pods as manifests say them, and plans of dumps with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.cli import Manifest, node, plan_of
from support.verdicts import read_pods
from thalweg.dumps.reader import read_dump

from flowcore.api import Interner, WireNodeTopology, to_numa_node
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.saved_state import BesideCluster, put_lines, to_lines
from flowcore.model.numa import NUMA, NumaNeeds, NumaNode
from flowcore.rules.filters import node_resource_topology

GPU = "nvidia.com/gpu"


def container(*, limits: dict[str, str] | None = None, **more: Any) -> Manifest:
    requests = {name.replace("gpu", GPU): value for name, value in more.pop("requests", {}).items()}
    return {"name": "c", "resources": {"requests": requests, "limits": requests if limits is None else limits}, **more}


def needs_of(*containers: Manifest, annotation: str | None = None, **spec: Any) -> NumaNeeds | None:
    annotations = {} if annotation is None else {NUMA: annotation}
    meta = {"name": "p", "namespace": "default", "annotations": annotations}
    (pod,) = read_pods([{"metadata": meta, "spec": {"containers": list(containers), **spec}}])
    return pod.pod_class.numa


FOUR = {"cpu": "4", "memory": "1Gi"}
FOUR_NEED = (("cpu", 4000), ("memory", 2**30))


def test_which_pods_need_a_zone() -> None:
    """Guaranteed pods: whole cpus, memory and huge pages. All pods: devices. Others: nothing."""
    assert needs_of(container(requests=FOUR)) == NumaNeeds((FOUR_NEED,), FOUR_NEED)
    assert needs_of(container(requests=FOUR, limits={"cpu": "4000m", "memory": "1024Mi"})) is not None
    assert needs_of(container(requests=FOUR, limits={"cpu": "5", "memory": "1Gi"})) is None
    assert needs_of(container(requests={"cpu": "3500m", "memory": "1Gi"})) == NumaNeeds(
        ((("memory", 2**30),),), (("memory", 2**30),)
    )
    gpu = container(requests={"cpu": "1", "gpu": "2"}, limits={})
    assert needs_of(gpu) == NumaNeeds((((GPU, 2),),), ((GPU, 2),))
    huge = {**FOUR, "hugepages-1Gi": "2Gi", "ephemeral-storage": "1Gi"}
    (only,) = (needs_of(container(requests=huge)) or NumaNeeds()).containers
    assert dict(only) == {**dict(FOUR_NEED), "hugepages-1Gi": 2**31}
    assert needs_of(container()) is None


def test_containers_in_the_order_in_which_they_start() -> None:
    """Sidecars keep what they have; what another init container had goes to the containers after it."""
    sidecar = container(requests={"cpu": "1", "memory": "1Gi"}, restartPolicy="Always")
    small, large = container(requests={"cpu": "2", "memory": "1Gi"}), container(requests={"cpu": "6", "memory": "1Gi"})
    found = needs_of(container(requests=FOUR), container(requests=FOUR), initContainers=[sidecar, small, large])
    assert found is not None
    assert [dict(each)["cpu"] for each in found.containers] == [1000, 6000, 4000, 4000]
    assert dict(found.pod)["cpu"] == 9000


def test_a_pod_may_ask_for_one_zone() -> None:
    """With all that it requests, whatever its class. Another value is no wish: the pod waits with the reason."""
    found = needs_of(container(requests={"cpu": "1500m"}, limits={}), annotation="single")
    assert found == NumaNeeds((), (("cpu", 1500),), everywhere=True)
    meta = {"name": "p", "namespace": "default", "annotations": {NUMA: "double"}}
    (pod,) = read_pods([{"metadata": meta, "spec": {"containers": [container(requests=FOUR)]}}])
    assert pod.bad_annotation == f"annotation {NUMA}"
    assert pod.blocked_reason == f'annotation {NUMA}: "double" is not "single"'


def topology(name: str, *zones: dict[str, str], attributes: dict[str, str] | None = None, **more: Any) -> Manifest:
    policy = {"topologyManagerPolicy": "single-numa-node"} if attributes is None else attributes
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "attributes": [{"name": key, "value": value} for key, value in policy.items()],
        "zones": [
            {
                "name": f"node-{at}",
                "type": "Node",
                "resources": [{"name": key.replace("gpu", GPU), "available": value} for key, value in zone.items()],
            }
            for at, zone in enumerate(zones)
        ],
        **more,
    }


def read(manifest: Manifest) -> NumaNode:
    return to_numa_node(msgspec.convert(manifest, WireNodeTopology), Interner())


def test_reports_are_read() -> None:
    """NUMA nodes by number, caches passed over, the policy from attributes or from the older field."""
    zones = [{"cpu": str(at), "gpu": "0"} for at in range(11)]
    manifest = topology("n", *zones)
    manifest["zones"] = [*manifest["zones"][::-1], {"name": "l3-0", "type": "L3", "resources": []}]
    found = read(manifest)
    assert [dict(zone)["cpu"] for zone in found.zones] == [1000 * at for at in range(11)]
    assert all(dict(zone)[GPU] == 0 for zone in found.zones), "nothing available is reported all the same"
    assert (found.single, found.pod_scope, found.written) == (True, False, 0.0)
    times = [{"time": "2026-01-01T00:00:00Z"}, {"time": "2026-01-01T00:00:07Z"}]
    dated = topology("n", attributes={}, topologyPolicies=["SingleNUMANodePodLevel"])
    dated["metadata"]["managedFields"] = times
    assert read(dated) == NumaNode("n", (), single=True, pod_scope=True, written=1767225607.0)
    other = topology("n", attributes={"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"})
    assert (read(other).single, read(other).pod_scope) == (False, True)
    only = topology("n", {})
    only["zones"][0]["resources"] = [{"name": "cpu", "allocatable": "3"}]
    assert read(only).zones == ((("cpu", 3000),),)


def test_plan_sends_no_pod_where_only_the_sum_fits() -> None:
    """The report of a dump counts; pods of the dump that have not started count beside it."""
    wants = {"name": "wants", "namespace": "default"}
    spec = {"schedulerName": "thalweg", "containers": [container(requests={"cpu": "6", "memory": "1Gi"})]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": wants, "spec": spec}
    split = [node("n", "12"), topology("n", {"cpu": "4"}, {"cpu": "4"})]
    answer = plan_of(*split, pod)
    assert answer["pending"]["default/wants"]["reason"] == (
        f"0/1 nodes are available: 1 {node_resource_topology.REASON}."
    )
    assert plan_of(*split, node("m", "12"), topology("m", {"cpu": "6"}, {"cpu": "2"}), pod)["placements"] == {
        "default/wants": "m"
    }
    bound = {**pod, "metadata": {**wants, "name": "bound"}, "spec": {**spec, "nodeName": "n"}}
    whole = [node("n", "12"), topology("n", {"cpu": "6"})]
    assert not plan_of(*whole, bound, pod)["placements"]
    running = {**bound, "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}
    assert plan_of(*whole, running, pod)["placements"] == {"default/wants": "n"}


@pytest.mark.parametrize("amount", ["-1", "many"])
def test_a_dump_names_the_amount_that_it_cannot_read(amount: str, tmp_path: Path) -> None:
    """File, object, zone and resource."""
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [topology("n", {"cpu": amount})]}))
    with pytest.raises(Exception, match=r"NodeResourceTopology n: zones\[node-0\]\.resources\.cpu"):
        read_dump((str(file),))


def test_a_saved_state_has_the_reports() -> None:
    """As they were."""
    cluster, again = Cluster(), Cluster()
    report = read(topology("n", {"cpu": "4", "gpu": "1"}))
    cluster.numa.set_report("n", report)
    put_lines([line.decode() for line in to_lines(cluster, BesideCluster(), 0.0)], again)
    assert again.numa.reports == {"n": report}
