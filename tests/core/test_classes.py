"""Which pods are interchangeable."""

from support.draw import Manifest
from support.model import pod
from support.verdicts import read_pods

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.rules.verdicts import group


def manifest(name: str, owner: str = "web", cpu: str = "1", **spec: object) -> Manifest:
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    container = {"name": "main", "image": "example.invalid/app", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "labels": {"app": owner}, "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def test_pods_that_ask_for_the_same_are_one_class_whoever_owns_them() -> None:
    """Owner, labels and how an amount is spelled are no part of the class."""
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
    groups = group(pods, PodIndex())
    assert [[p.key for p in found.pods] for found in groups] == [
        ["default/a", "default/b", "default/c"],
        ["default/big"],
    ]


def selecting(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


def sizes(kinds: list[PodSignature], running: list[PodSignature] | None = None) -> list[int]:
    """Pods in each group, of pods of one class and these kinds."""
    pending = [PendingPod(f"default/p{at}", "", PodClass(), "p", signature=kind) for at, kind in enumerate(kinds)]
    return [len(found.pods) for found in group(pending, PodIndex.of(("n", kind) for kind in running or ()))]


def test_policies_split_groups() -> None:
    """The same class under another policy is planned for itself."""
    pods = [pod("a", 1000), pod("b", 1000, policy="other"), pod("c", 1000)]
    assert [len(found.pods) for found in group(pods, PodIndex())] == [2, 1]


def test_labels_that_no_rule_reads_tell_nothing_apart() -> None:
    """A StatefulSet labels each of its pods with its name."""
    alone = InterPodConstraints(anti_affinity=(AffinityTerm("zone", selecting("db"), ("default",)),))
    named = [PodSignature("default", (("app", "web"), ("pod", f"web-{at}"))) for at in range(5)]
    assert sizes(named) == [5]
    assert sizes(named, [PodSignature("default", (), constraints=alone)]) == [5]
    assert sizes([*named, PodSignature("default", (("app", "db"),)), PodSignature("other")]) == [7]


def test_whom_a_running_pod_keeps_away_is_a_group() -> None:
    """In the namespaces that its term speaks of."""
    alone = InterPodConstraints(anti_affinity=(AffinityTerm("zone", selecting("web"), ("default",)),))
    kinds = [
        PodSignature("default", (("app", "web"),)),
        PodSignature("default", (("app", "db"),)),
        PodSignature("other", (("app", "web"),)),
    ]
    assert sizes(kinds, [PodSignature("default", (), constraints=alone)]) == [1, 2]


def test_whom_a_waiting_pods_rule_speaks_of_is_a_group() -> None:
    """It may run by the end of the round: by affinity, anti-affinity and spread alike."""
    kinds = [PodSignature("default", (("app", "web"), ("pod", str(at)))) for at in range(2)]
    kinds += [PodSignature("default", (("app", "db"), ("pod", str(at)))) for at in range(2)]
    for rules in (
        InterPodConstraints(affinity=(AffinityTerm("zone", selecting("web"), ("default",)),)),
        InterPodConstraints(anti_affinity=(AffinityTerm("zone", selecting("web"), ("default",)),)),
        InterPodConstraints(spread=(SpreadConstraint("zone", 1, selecting("web")),)),
    ):
        assert sizes([*kinds, PodSignature("default", (("own", "label"),), constraints=rules)]) == [2, 2, 1]
        ruled = [PodSignature(kind.namespace, kind.labels, constraints=rules) for kind in kinds]
        assert sizes(ruled) == [2, 2], "equal rules, and the same rules speak of them"


def test_spread_counts_its_own_namespace() -> None:
    """So equal constraints in two namespaces are two rules."""
    rules = InterPodConstraints(spread=(SpreadConstraint("zone", 1, selecting("web")),))
    assert sizes([PodSignature("a", constraints=rules), PodSignature("b", constraints=rules)]) == [1, 1]
