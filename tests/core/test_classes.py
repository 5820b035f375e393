"""Which pods are interchangeable."""

from support.draw import Manifest
from support.model import pod
from support.verdicts import read_pods

from flowcore.classes import group


def manifest(name: str, owner: str = "web", cpu: str = "1", **spec: object) -> Manifest:
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    container = {"name": "main", "image": f"example.invalid/{owner}", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "labels": {"app": owner}, "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def test_pods_that_ask_for_the_same_are_one_class_whoever_owns_them() -> None:
    """Owner, labels, image and how an amount is spelled are no part of the class."""
    first, second = read_pods([manifest("a-1", "web", "1"), manifest("b-1", "db", "1000m")])
    assert first.pod_class == second.pod_class
    assert hash(first.pod_class) == hash(second.pod_class)
    assert first.pod_class is second.pod_class, "read together they share one object"


def test_pods_of_one_owner_that_ask_for_different_amounts_are_two_classes() -> None:
    """Hole 6: they must never share a verdict."""
    first, second = read_pods([manifest("a-1", cpu="1"), manifest("a-2", cpu="2")])
    assert first.pod_class != second.pod_class


def test_every_field_that_a_filter_reads_tells_classes_apart() -> None:
    """One differing field is enough."""
    term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    specs: list[dict] = [
        {},
        {"nodeSelector": {"zone": "a"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"affinity": {"nodeAffinity": affinity}},
        {"affinity": {"nodeAffinity": wish}},
        {"nodeName": "n0"},
        {"priority": 1},
        {"overhead": {"cpu": "1m"}},
        {"initContainers": [{"name": "i", "restartPolicy": "Always", "ports": [{"hostPort": 80}]}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "b"}}]},
        {"volumes": [{"name": "v", "ephemeral": {}}]},
        {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "a"}}]},
        {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "a", "readOnly": True}}]},
        {"hostNetwork": True, "hostUsers": False},
    ]
    classes = {p.pod_class for p in read_pods([manifest(str(at), **spec) for at, spec in enumerate(specs)])}
    assert len(classes) == len(specs)


def test_groups_keep_the_order_of_arrival_and_the_oldest_first() -> None:
    """Groups come in the order of their first pod; within one, those that waited longest lead."""
    pods = [pod("b", 1000, created=20), pod("big", 2000), pod("a", 1000, created=10), pod("c", 1000, created=20)]
    groups = group(pods)
    assert [[p.key for p in found.pods] for found in groups] == [
        ["default/a", "default/b", "default/c"],
        ["default/big"],
    ]


def test_policies_and_what_running_pods_forbid_split_groups() -> None:
    """The same class under another policy, or kept from other domains, is planned for itself."""
    pods = [pod("a", 1000), pod("b", 1000, policy="other"), pod("c", 1000, avoid=(("zone", "a"),)), pod("d", 1000)]
    assert [len(found.pods) for found in group(pods)] == [2, 1, 1]
