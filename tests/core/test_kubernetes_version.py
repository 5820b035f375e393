"""What kube-scheduler of each version reads of pods and storage objects, and which version's rules hold."""

from typing import Any

import msgspec
import pytest
from support.verdicts import read_pods

from flowcore.api import to_storage_object
from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.cluster.arrays.storage import Storage
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.saved_state import BesideCluster, put_lines, to_lines
from flowcore.model.kubernetes_version import KNOWN, KubernetesVersion
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature, own_term_matches
from flowcore.model.pods import Pod
from flowcore.model.volumes import ClaimVolume, CsiDriver, StorageObject
from flowcore.rules.filters import node_volume_limits

V35, V36, V37 = (KubernetesVersion(f"v1.{minor}.1") for minor in KNOWN)
NEWEST = KubernetesVersion()
DRIVER = "csi.example.com"


@pytest.mark.parametrize(
    ("text", "minor", "rules", "is_known"),
    [
        ("v1.36.3", 36, 36, True),
        ("1.35", 35, 35, True),
        ("v1.35.2-eks-1", 35, 35, True),
        ("v1.37.0-alpha.1+5", 37, 37, True),
        ("v1.34.9", 34, 35, False),
        ("v1.40.0", 40, 37, False),
        ("v2.0.0", None, 37, False),
        ("", None, 37, False),
    ],
)
def test_the_nearest_known_version_has_the_rules(text: str, minor: int | None, rules: int, *, is_known: bool) -> None:
    """One that cannot be read has those of the newest."""
    version = KubernetesVersion(text)
    assert (version.minor, version.rules, version.is_known) == (minor, rules, is_known)


def pod(status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    """A pod as the newest version reads it."""
    manifest = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"containers": [{"name": "main"}], **spec},
        "status": status or {},
    }
    (made,) = read_pods([manifest], NEWEST)
    return made


def test_image_volumes_count_for_locality_since_1_37() -> None:
    """As containers do; before, they raised no threshold."""
    brings = pod(volumes=[{"name": "data", "image": {"reference": "data:v1"}}])
    assert (brings.pod_class.containers, brings.pod_class.image_volumes) == (1, 1)
    older = msgspec.structs.replace(brings.pod_class, image_volumes=0)
    assert [each.as_scheduled(brings).pod_class for each in (V35, V36, V37)] == [older, older, brings.pod_class]


def test_nodes_declare_features_since_1_36() -> None:
    """Before, a pod asks no node for them."""
    needs = pod(hostNetwork=True, hostUsers=False)
    assert needs.pod_class.features == ("UserNamespacesHostNetworkSupport",)
    assert V35.as_scheduled(needs).pod_class == msgspec.structs.replace(needs.pod_class, features=())
    assert V36.as_scheduled(needs) == V37.as_scheduled(needs) == needs


def amounts(cpu: str) -> dict[str, str]:
    return {"cpu": cpu, "memory": "1Gi"}


def resized(first: str, second: str, **status: Any) -> Pod:
    """Two containers that ask for 1 and 3 CPUs on their node, and have these."""
    asked = (("a", "1"), ("b", "3"))
    return pod(
        {
            "containerStatuses": [
                {"name": name, "resources": {"requests": amounts(cpu)}, "allocatedResources": amounts(cpu)}
                for name, cpu in zip("ab", (first, second), strict=True)
            ],
            **status,
        },
        nodeName="n",
        containers=[{"name": name, "resources": {"requests": amounts(cpu)}} for name, cpu in asked],
    )


def cpus(version: KubernetesVersion, read: Pod) -> int:
    """Millis of CPU that a pod takes."""
    return dict(version.as_scheduled(read).usage)["cpu"]


@pytest.mark.parametrize(
    ("has", "status", "before", "since"),
    [
        (("1", "3"), {}, 4000, 4000),
        (("3", "1"), {}, 6000, 4000),
        (("2", "3"), {}, 5000, 5000),
        # The node says of the pod as a whole what it promised: that counts since 1.37.
        (("1", "3"), {"allocatedResources": amounts("9"), "resources": {"requests": amounts("4")}}, 4000, 9000),
        (("3", "3"), {"allocatedResources": amounts("4"), "resources": {"requests": amounts("4")}}, 6000, 4000),
        (
            ("1", "2"),
            {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]},
            3000,
            3000,
        ),
    ],
)
def test_resized_pods(has: tuple[str, str], status: dict[str, Any], before: int, since: int) -> None:
    """Before 1.37 the largest of three amounts of each container, added up; since then the largest of three sums."""
    read = resized(*has, **status)
    assert [cpus(version, read) for version in (V35, V36, V37)] == [before, before, since]


def affinity(namespace_selector: dict[str, Any]) -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": namespace_selector}
    return {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term],
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}],
        }
    }


@pytest.mark.parametrize(
    ("namespace_selector", "before", "since"),
    [
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, True, False),
        ({"matchLabels": {"team": "a"}}, True, True),
        ({"matchLabels": {"team": "b"}}, False, False),
        ({}, True, True),
    ],
)
def test_selectors_of_namespaces(namespace_selector: dict[str, Any], *, before: bool, since: bool) -> None:
    """Before 1.37 a selector that accepts a namespace without labels accepts all of them, here one with team: a."""
    read = pod(affinity=affinity(namespace_selector))
    there = PodSignature("red")
    for version, is_meant in ((V35, before), (V36, before), (V37, since)):
        constraints = version.as_scheduled(read).constraints
        assert constraints is not None
        for term in (*constraints.anti_affinity, *(each.term for each in constraints.preferred)):
            assert own_term_matches(term, there, {"red": (("team", "a"),)}) == is_meant


STORAGE = (
    ("CSIDriver", {"metadata": {"name": DRIVER}, "spec": {"preventPodSchedulingIfMissing": True}}),
    ("CSINode", {"metadata": {"name": "with"}, "spec": {"drivers": [{"name": DRIVER}]}}),
    ("CSINode", {"metadata": {"name": "without"}, "spec": {"drivers": [{"name": "another.example.com"}]}}),
    ("StorageClass", {"metadata": {"name": "fast"}, "provisioner": DRIVER}),
    ("PersistentVolumeClaim", {"metadata": {"name": "c"}, "spec": {"storageClassName": "fast"}}),
)


def stored(version: KubernetesVersion) -> list[StorageObject]:
    read = [to_storage_object(*each) for each in STORAGE]
    return [version.as_stored(each) for each in read if each is not None]


@pytest.mark.parametrize(("version", "is_needed"), [(V35, False), (V36, False), (V37, True)])
def test_nodes_need_a_driver_since_1_37(version: KubernetesVersion, *, is_needed: bool) -> None:
    """If the driver says so: a node with another driver takes no pod with its volumes, nor does one without any."""
    storage = Storage.of(stored(version), ())
    table = NodeTable.of([Node(name) for name in ("none", "with", "without")])
    volumes = (ClaimVolume("default", "c"),)
    rejected = {
        table.nodes[at].name: rejection.reason
        for rejection in node_volume_limits.rejections(volumes, storage, table)
        for at in rejection.nodes.nonzero()[0]
    }
    said = f"{DRIVER} CSI driver is not installed on the node"
    assert rejected == ({"none": said, "without": said} if is_needed else {})
    for node in ("none", "with", "without"):
        assert node_volume_limits.rejects(volumes, storage, node, ()) == (node in rejected)


def test_a_cluster_reads_by_its_version_and_a_saved_state_keeps_it() -> None:
    """Whoever reads what a worker or a file has from it needs no version, and follows the same rules."""
    cluster = Cluster()
    cluster.version = V35
    needs = pod(hostNetwork=True, hostUsers=False)
    cluster.put_pod(needs)
    for each in stored(NEWEST):
        cluster.put_storage(each)
    assert not cluster.pods[needs.key].pod_class.features
    again = Cluster()
    put_lines((line.decode() for line in to_lines(cluster, BesideCluster(), 0.0)), again)
    (driver,) = (key for key, each in again.storage.objects.items() if isinstance(each, CsiDriver))
    assert again.version == V35
    assert again.pods == cluster.pods
    assert not again.storage.objects[driver].is_needed
