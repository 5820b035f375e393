"""`why` names what is in a pod's way: the volume and where it is, the port and its holder, the partner, the amount."""

from typing import Any

import pytest
from support.cli import Manifest, node, pod
from support.scenario_state import NOW, scenario_of

from flowcore.questions.diagnosis.answers import WhyAnswer, WhyKind, WhyQuery
from flowcore.questions.diagnosis.why import answer_why
from flowcore.questions.scenario import plan_scenario
from flowcore.questions.scenario.context import AnswerContext

RUNS = {"phase": "Running"}
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
DATA = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


def why(target: str, *objects: Manifest, context: AnswerContext | None = None) -> WhyAnswer:
    return answer_why(scenario_of(objects), WhyQuery(target), context or AnswerContext(NOW))


def zoned(name: str, zone: str, cpu: str = "4") -> Manifest:
    made = node(name, cpu)
    made["metadata"]["labels"][ZONE] = zone
    return made


def claim(name: str = "data", storage_class: str = "disk", mode: str = "ReadWriteOnce", **more: Any) -> Manifest:
    spec = {"storageClassName": storage_class, "accessModes": [mode], "resources": {"requests": {"storage": "10Gi"}}}
    if "volume" in more:
        spec["volumeName"] = more.pop("volume")
        more["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    metadata = {"name": name, "namespace": "default", "uid": name, **more}
    return {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def volume(name: str, key: str = "", value: str = "", storage_class: str = "disk", **more: Any) -> Manifest:
    spec: Manifest = {"capacity": {"storage": "10Gi"}, "storageClassName": storage_class,
                      "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"], **more}  # fmt: skip
    spec["csi"] = {"driver": "csi.example.com", "volumeHandle": name}
    if key:
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}


def storage_class(name: str = "disk", mode: str = "WaitForFirstConsumer", **more: Any) -> Manifest:
    provisioner = more.pop("provisioner", "csi.example.com")
    metadata = {"name": name}
    return {"kind": "StorageClass", "metadata": metadata, "provisioner": provisioner, "volumeBindingMode": mode, **more}


REF = {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": "data"}}


def test_the_volume_of_a_bound_claim_and_where_it_is() -> None:
    """No node is in the zone of the volume; or one is, and lacks cpu."""
    there = (claim(volume="vol"), volume("vol", ZONE, "c", **REF), storage_class(), pod("p", "2", volumes=DATA))
    says = "PersistentVolumeClaim default/data is bound to PersistentVolume vol, which only nodes with "
    answer = why("default/p", zoned("a", "a"), zoned("b", "b"), *there)
    assert answer.evidence[0] == f"{says}{ZONE}=c can use; there is none."
    answer = why("default/p", zoned("a", "a"), zoned("c", "c", "1"), *there)
    assert answer.evidence[0] == f"{says}{ZONE}=c can use: c (Insufficient cpu)."


def test_a_volume_of_a_node_that_is_gone() -> None:
    """A local disk: the node is named."""
    there = (claim(volume="vol"), volume("vol", HOSTNAME, "n9", **REF), storage_class(), pod("p", "2", volumes=DATA))
    answer = why("default/p", zoned("a", "a"), *there)
    assert f"{HOSTNAME}=n9 can use; there is none." in answer.evidence[0]


def test_the_zone_of_a_volume_by_its_labels() -> None:
    """A volume without node affinity is in the zone that its labels say."""
    labelled = volume("vol", **REF)
    labelled["metadata"]["labels"] = {ZONE: "c"}
    answer = why("default/p", zoned("a", "a"), claim(volume="vol"), labelled, storage_class(),
                 pod("p", "2", volumes=DATA))  # fmt: skip
    assert answer.evidence[0].endswith(f"PersistentVolume vol, which only nodes with {ZONE}=c can use; there is none.")


def test_a_claim_that_has_chosen_its_node() -> None:
    """The annotation is named, and what is short there; a node that is gone is said to be gone."""
    chosen = claim(annotations={"volume.kubernetes.io/selected-node": "a"})
    filler = pod("f", "4", nodeName="a", status=RUNS)
    answer = why("default/p", zoned("a", "a"), zoned("b", "b"), storage_class(), chosen, filler,
                 pod("p", "2", volumes=DATA))  # fmt: skip
    named = "PersistentVolumeClaim default/data has chosen node a (annotation volume.kubernetes.io/selected-node)"
    assert answer.evidence[0] == f"{named}: a (Insufficient cpu)."
    answer = why("default/p", zoned("b", "b"), storage_class(), chosen, pod("p", "2", volumes=DATA))
    assert answer.evidence[0] == f"{named}, and there is no such node."
    off = "Take the annotation volume.kubernetes.io/selected-node off PersistentVolumeClaim default/data"
    assert answer.next == f"{off}, or make it anew."


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        ([claim(), storage_class(mode="Immediate")],
         "has no volume: StorageClass disk binds claims at once, and its provisioner csi.example.com has to bind it."),
        ([claim(), storage_class(mode="Immediate", provisioner="kubernetes.io/no-provisioner")],
         "has no volume, and StorageClass disk provisions none: make one that suits it."),
        ([claim(storage_class="")],
         "has no volume and names no StorageClass: a PersistentVolume that suits it has to be made."),
    ],
)  # fmt: skip
def test_a_claim_that_is_bound_before_its_pod(objects: list[Manifest], says: str) -> None:
    """Claim, class and who has to bind it are named; no node helps, and none is advised."""
    answer = why("default/p", zoned("a", "a"), *objects, pod("p", "1", volumes=DATA))
    assert answer.text == "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    assert answer.evidence[0] == f"PersistentVolumeClaim default/data {says}"
    assert "kubectl describe pvc data -n default" in answer.next
    assert not answer.fixes
    assert "dd a node" not in " ".join((answer.next, *answer.evidence))


def test_local_volumes_that_are_taken() -> None:
    """The class provisions none: how many there are and where a free one is."""
    local = storage_class("local", provisioner="kubernetes.io/no-provisioner")
    taken = volume("v1", HOSTNAME, "a", "local", claimRef={"namespace": "x", "name": "y", "uid": "z"})
    waiting = pod("p", "2", volumes=DATA)
    answer = why("default/p", zoned("a", "a"), local, claim(storage_class="local"), taken, waiting)
    needs = "PersistentVolumeClaim default/data needs a PersistentVolume of class local"
    assert answer.evidence[0] == f"{needs}, and the only one is taken."
    free = volume("v2", HOSTNAME, "b", "local")
    answer = why("default/p", zoned("a", "a"), zoned("b", "b", "1"), local, claim(storage_class="local"), taken, free,
                 waiting)  # fmt: skip
    assert answer.evidence[0] == f"{needs}: v2 is free, on b (Insufficient cpu)."


def test_a_volume_is_missing_where_others_of_its_kind_get_those_that_are_there() -> None:
    """Three claims and two volumes: a priority would take another one's, so it is no advice."""
    local = storage_class("local", provisioner="kubernetes.io/no-provisioner")
    volumes = [volume(f"v{at}", HOSTNAME, at, "local") for at in "ab"]
    claims = [claim(f"c{at}", "local") for at in "abc"]
    pods = [pod(f"db-{at}", "1", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": f"c{at}"}}])
            for at in "abc"]  # fmt: skip
    scenario = scenario_of([*(zoned(at, "a") for at in "abc"), local, *volumes, *claims, *pods])
    waits = plan_scenario(scenario, NOW).result.unplaced[0].pod.key
    answer = answer_why(scenario, WhyQuery(waits, fixes=False), AnswerContext(NOW))
    name = f"PersistentVolumeClaim default/c{waits[-1]}"
    assert f"{name} needs a PersistentVolume of class local, and all 2 are taken." in answer.evidence
    assert answer.next == f"Make a PersistentVolume of class local that suits {name}."


def test_who_has_a_claim_for_one_pod() -> None:
    """ReadWriteOncePod: the claim and the pod that holds it; of another namespace it cannot be."""
    mode = "ReadWriteOncePod"
    objects = (claim(volume="vol", mode=mode), volume("vol", **REF), storage_class())
    holder = pod("old", "1", nodeName="a", status=RUNS, volumes=DATA)
    answer = why("default/p", zoned("a", "a"), *objects, holder, pod("p", "1", volumes=DATA))
    assert answer.evidence[0] == (
        "PersistentVolumeClaim default/data is for one pod (ReadWriteOncePod) and is used by default/old."
    )


def test_a_node_with_as_many_volumes_as_it_takes() -> None:
    """The node, its limit and the driver."""
    limits = {"kind": "CSINode", "metadata": {"name": "a"},
              "spec": {"drivers": [{"name": "csi.example.com", "allocatable": {"count": 1}}]}}  # fmt: skip
    held = [{"name": "data", "persistentVolumeClaim": {"claimName": "other"}}]
    objects = (claim(), claim("other"), storage_class(), limits)
    running = pod("r", "1", nodeName="a", status=RUNS, volumes=held)
    answer = why("default/p", zoned("a", "a"), *objects, running, pod("p", "1", volumes=DATA))
    assert answer.evidence[0] == "a takes 1 volume of csi.example.com and has no room for another one."


def test_a_move_frees_the_place_of_a_volume() -> None:
    """The pod whose volume it is moves to a node that reaches it, too, and on which the waiting pod does not fit."""
    limits = {"kind": "CSINode", "metadata": {"name": "a"},
              "spec": {"drivers": [{"name": "csi.example.com", "allocatable": {"count": 1}}]}}  # fmt: skip
    volumes = [volume("v", **REF), volume("w", claimRef=REF["claimRef"] | {"name": "other", "uid": "other"})]
    claims = [claim(volume="v"), claim("other", volume="w")]
    held = [{"name": "data", "persistentVolumeClaim": {"claimName": "other"}}]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    running = pod("r", "1", nodeName="a", status=RUNS, volumes=held)
    running["metadata"]["ownerReferences"] = [owner]
    waiting = pod("p", "2", volumes=DATA)
    answer = why(
        "default/p", zoned("a", "a"), zoned("b", "a", "1"), limits, *volumes, *claims, storage_class(), running, waiting
    )
    assert answer.next == "Move default/r to node b: default/r runs on another node, nobody loses a place."


def with_port(name: str, port: int, protocol: str = "TCP", **more: Any) -> Manifest:
    made = pod(name, "1", **more)
    made["spec"]["containers"][0]["ports"] = [{"containerPort": 1, "hostPort": port, "protocol": protocol}]
    return made


def test_who_holds_a_host_port() -> None:
    """Number, protocol, node and pod; a pod that may not be read is not named."""
    held = with_port("h", 8080, nodeName="a", status=RUNS, metadata={"namespace": "red"})
    answer = why("default/p", zoned("a", "a"), held, with_port("p", 8080))
    assert answer.evidence[0] == "Port 8080/TCP of a is held by red/h."
    hidden = AnswerContext(NOW, sees=lambda namespace: namespace != "red")
    answer = why("default/p", zoned("a", "a"), held, with_port("p", 8080), context=hidden)
    assert answer.evidence[0] == "Port 8080/TCP of a is held by a pod of another namespace."
    both = [with_port(f"h{at}", 53, "UDP", nodeName=at, status=RUNS) for at in "ab"]
    answer = why("default/p", zoned("a", "a"), zoned("b", "a"), *both, with_port("p", 53, "UDP"))
    assert answer.evidence[0] == "Port 53/UDP is held by default/ha on a and by default/hb on b."


def beside(kind: str, app: str, key: str = HOSTNAME) -> Manifest:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def labelled(name: str, app: str, cpu: str = "1", **more: Any) -> Manifest:
    return pod(name, cpu, metadata={"labels": {"app": app}}, **more)


def test_the_partner_of_a_pod_and_what_its_node_lacks() -> None:
    """Where the partner runs, and why not there; or that there is none."""
    partner = labelled("cache", "cache", "3", nodeName="a", status=RUNS)
    waiting = pod("p", "2", affinity=beside("podAffinity", "cache"))
    answer = why("default/p", zoned("a", "a"), zoned("b", "b"), partner, waiting)
    must = f"It must run beside pods that match app=cache by {HOSTNAME}"
    assert answer.evidence[0] == f"{must}, such as default/cache on a: a (Insufficient cpu)."
    answer = why("default/p", zoned("a", "a"), waiting)
    assert answer.evidence[0] == f"{must}, and no such pod runs in namespace default."


def test_a_partner_elsewhere() -> None:
    """One of another namespace is none; the node of one may lack the label by which nodes are near each other."""
    waiting = pod("p", "2", affinity=beside("podAffinity", "cache", "rack"))
    must = "It must run beside pods that match app=cache by rack"
    partner = labelled("cache", "cache", "3", nodeName="a", status=RUNS)
    answer = why("default/p", node("a"), partner, waiting)
    assert answer.evidence[0] == f"{must}, such as default/cache on a; its node has no label rack."
    partner["metadata"]["namespace"] = "red"
    answer = why("default/p", node("a"), partner, waiting)
    assert answer.evidence[0] == f"{must}, and no such pod runs in namespace default."


def test_whose_anti_affinity_it_is() -> None:
    """A pod without a rule of its own is kept away by that of another one, or keeps away itself."""
    guard = labelled("guard", "guard", nodeName="a", status=RUNS, affinity=beside("podAntiAffinity", "web"))
    answer = why("default/p", zoned("a", "a"), guard, labelled("p", "web"))
    assert answer.evidence[0] == (
        f"The anti-affinity of default/guard on a keeps it away by {HOSTNAME}. It has no such rule itself."
    )
    other = labelled("r", "db", nodeName="a", status=RUNS)
    answer = why("default/p", zoned("a", "a"), other, labelled("p", "web", affinity=beside("podAntiAffinity", "db")))
    assert answer.evidence[0] == f"Its anti-affinity by {HOSTNAME} keeps it away from default/r on a."


def test_the_domain_that_may_have_one_more_and_why_it_has_none() -> None:
    """Spread by zone: the full zone is named, and what is short there."""
    rule = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": {"matchLabels": {"app": "web"}}}]  # fmt: skip
    running = labelled("w", "web", nodeName="a", status=RUNS)
    answer = why("default/p", zoned("a", "a"), zoned("c", "c", "1"), running,
                 labelled("p", "web", "2", topologySpreadConstraints=rule))  # fmt: skip
    counts = f"Its topology spread by {ZONE} allows a difference of 1: c has 0 and a has 1."
    assert answer.evidence[0] == f"{counts} Only c may have more: c (Insufficient cpu)."
    more = [zoned(name, name) for name in "bde"]
    others = [labelled(f"w{name}", "web", nodeName=name, status=RUNS) for name in "bde"]
    answer = why("default/p", zoned("a", "a"), zoned("c", "c", "1"), *more, running, *others,
                 labelled("p", "web", "2", topologySpreadConstraints=rule))  # fmt: skip
    counts = f"Its topology spread by {ZONE} allows a difference of 1: c has 0, a has 1, b has 1 and 2 others."
    assert answer.evidence[0] == f"{counts} Only c may have more: c (Insufficient cpu)."


def test_an_amount_that_no_node_has() -> None:
    """The largest node is named by what it has; of what no node offers that is said."""
    npu, large = "example.com/npu", pod("p", "1")
    large["spec"]["containers"][0]["resources"]["requests"][npu] = "16"
    with_npu = zoned("a", "a")
    with_npu["status"]["allocatable"][npu] = "8"
    answer = why("default/p", with_npu, zoned("b", "b"), large)
    assert answer.evidence[0] == "It asks for 16 example.com/npu, more than any node has: the largest has 8."
    answer = why("default/p", zoned("b", "b"), large)
    assert answer.evidence[0] == "It asks for 16 example.com/npu, and no node has example.com/npu."
    answer = why("default/p", zoned("b", "b"), node("c", "16", taints=[{"key": "x", "effect": "NoSchedule"}]),
                 pod("p", "8"))  # fmt: skip
    assert answer.evidence[0] == (
        "It asks for 8 cpu, more than any node has that its node selector and tolerations allow: the largest has 4."
    )


def test_a_pod_group_that_does_not_exist() -> None:
    """It is said as it is: nothing about the number of pods that a group needs which is not there."""
    waiting = pod("p", "1", schedulingGroup={"podGroupName": "lost"})
    answer = why("default/p", zoned("a", "a"), waiting)
    assert answer.kind is WhyKind.GANG_INCOMPLETE
    assert answer.text == "PodGroup default/lost does not exist."
    assert answer.evidence == ["1 pod of it waits."]
    assert answer.next == "Create PodGroup default/lost, or let the pod name another one."


def test_why_many_nodes_near_the_volume_do_not_take_the_pod() -> None:
    """Every kind of reason with its nodes: the one that is cordoned is not among "others"."""
    cordoned = zoned("d", "c")
    cordoned["spec"] = {"unschedulable": True}
    small = [zoned(f"c{at}", "c", "1") for at in range(3)]
    there = (claim(volume="vol"), volume("vol", ZONE, "c", **REF), storage_class(), pod("p", "2", volumes=DATA))
    answer = why("default/p", zoned("a", "a"), *small, cordoned, *there)
    assert answer.evidence[0].endswith("=c can use: 3 nodes (Insufficient cpu), 1 node (cordoned).")


def test_the_taint_of_the_node_near_the_volume() -> None:
    """A node that is gone from the network has one: it is named, as one is where the taint alone is in the way."""
    there = (claim(volume="vol"), volume("vol", ZONE, "c", **REF), storage_class(), pod("p", "2", volumes=DATA))
    down = zoned("c", "c")
    down["spec"] = {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]}
    answer = why("default/p", zoned("a", "a"), down, *there)
    assert answer.evidence[0].endswith("=c can use: c (taint node.kubernetes.io/unreachable:NoSchedule).")


@pytest.mark.parametrize("users", [(), ("old",)])
def test_a_claim_that_is_being_deleted(users: tuple[str, ...]) -> None:
    """No node helps; a pod that runs with it keeps it from going."""
    data = claim(volume="vol", deletionTimestamp="2026-11-20T09:00:00Z", finalizers=["kubernetes.io/pvc-protection"])
    there = [pod(name, "1", nodeName="a", volumes=DATA, status=RUNS) for name in users]
    storage = (data, volume("vol", **REF), storage_class())
    answer = why("default/p", node("a"), *there, *storage, pod("p", "1", volumes=DATA))
    says = "PersistentVolumeClaim default/data is being deleted"
    assert answer.evidence[0] == (f"{says}; default/old uses it." if users else f"{says}.")
    assert answer.next == "Wait until PersistentVolumeClaim default/data is gone, and create it anew."
    assert not answer.fixes


def test_a_claim_that_lost_its_volume() -> None:
    """Its phase says so, also where the files have no volume at all."""
    lost = claim(volume="gone") | {"status": {"phase": "Lost"}}
    answer = why("default/p", node("a"), lost, storage_class(), pod("p", "1", volumes=DATA))
    says = "PersistentVolume gone, which PersistentVolumeClaim default/data is bound to, does not exist."
    assert answer.evidence[0] == says
    assert answer.next == "Restore the volume, or create the claim anew."
    assert not answer.fixes


def test_a_claim_of_another_pod() -> None:
    """That of a generic ephemeral volume which somebody else made: no node helps."""
    ephemeral = [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": claim()["spec"]}}}]
    answer = why("default/p", node("a"), claim("p-data"), storage_class(), pod("p", "1", volumes=ephemeral))
    assert answer.next == "Mend its volume claims."


def test_volumes_in_two_zones() -> None:
    """Both are named, and no node is asked for: none can be in two zones."""
    both = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "log")]
    ref = {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "log", "uid": "log"}}
    there = (claim(volume="v"), volume("v", ZONE, "a", **REF), claim("log", volume="w"), volume("w", ZONE, "b", **ref))
    answer = why("default/p", zoned("a", "a"), zoned("b", "b"), *there, storage_class(), pod("p", "1", volumes=both))
    assert [each.split(" can use: ")[1] for each in answer.evidence[:2]] == ["a.", "b."]
    assert answer.next == "Bring its volumes together: no node can use all of them."
    assert not answer.fixes
