"""What somebody can do who stole the operator's token, tried on the real API server.

Roles refuse most of it. They cannot tell the fields of a pod apart: the admission policy of rights/confinement.yaml
does. It also holds where the account was given every right on pods besides.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.operator import until
from support.rights import grant, kubeconfig, token
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.client.api import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from thalweg_controlplane.client.objects import node, pod

from flowcore.api.storage_objects import BOUND_BY_CONTROLLER, SELECTED_NODE
from flowcore.model.policies import GATE, PLANNED, WOKEN

pytestmark = pytest.mark.asyncio(loop_scope="module")

BREAKS_PLANE = True

THEIRS = "example.com/later"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
VOLUMES, CLAIMS = "/api/v1/persistentvolumes", "/api/v1/namespaces/default/persistentvolumeclaims"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
POLICIES = "/apis/scheduling.thalweg/v1alpha1/flowschedulingpolicies"
SECRETS = "/api/v1/namespaces/default/secrets"
ACCOUNTS = [
    {"kind": "ServiceAccount", "name": name, "namespace": "thalweg-system"} for name in ("thalweg", "thalweg-uninstall")
]

METADATA = "Thalweg may change nothing but annotations of metadata"
ANNOTATIONS = "Thalweg may change the annotations nominated, woken and leads-since of scheduling.thalweg only"
GATES = "Thalweg may remove its own scheduling gate only"
SPEC = "Thalweg may not change a pod's spec"
STATUS = (
    "Thalweg may change the conditions PodScheduled and DisruptionTarget and the nominated node of a pod's status, and "
    "the claim for its extended resources before it has a node"
)
NOTHING_ELSE = (
    "Thalweg may patch, bind and evict pods, patch volumes and their claims, and create Events; it may do nothing else "
    "with these"
)
KEEPS = "Thalweg may keep a volume for a claim that is kept for none, and change nothing else of volumes"
SELECTS = (
    "Thalweg may name the node that a volume is provisioned for on a claim that names none, and change nothing else of "
    "claims"
)
BINDING = "Thalweg may write no annotations and labels into a pod by its binding"
GRACE = "Thalweg may not shorten the time that an evicted pod has to end"
SYSTEM = "Thalweg may not evict pods of kube-system and of its own namespace"
UNINSTALL = (
    "Thalweg's uninstall account may open Thalweg's scheduling gate; it may do nothing else with pods and Events"
)
LEADS = "Thalweg may lead a Service to the pod of its own token only"
MAKES = "Thalweg may make a ResourceClaim for the extended resources of a pod only"
DELETES = (
    "Thalweg may delete a ResourceClaim for the extended resources of a pod only, while it has no devices and nobody "
    "reserves it"
)
CLAIM_METADATA = (
    "Thalweg may add the finalizer resource.kubernetes.io/delete-protection to a ResourceClaim; it may change nothing "
    "else of its metadata"
)
CLAIM_STATUS = (
    "Thalweg may allocate a ResourceClaim, reserve it for pods and PodGroups, and free one that nobody reserves; it "
    "may change nothing else of its status"
)
GROUP = (
    "Thalweg may write the condition of a PodGroup's status about its scheduling; it may do nothing else with PodGroups"
)
COMPONENT = "Thalweg may write Events as the component thalweg only"
#: Of the admission plugin OwnerReferencesPermissionEnforcement, which comes before admission policies.
NO_OWNER = "cannot set an ownerRef on a resource you can't delete"
#: Of the API server's own authorizer: `... cannot delete resource "pods" in API group "" ...`.
NO_RIGHT = "cannot"


@dataclass(frozen=True)
class Write:
    """One request; a path without a slash in front is under the pod `p`."""

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    params: Mapping[str, str] = field(default_factory=dict)

    async def send(self, api: Api) -> Any:
        path = self.path if self.path.startswith("/") else f"{PODS}/p/{self.path}".rstrip("/")
        return await api.request(self.method, path, self.body, params=self.params, content_type=self.content_type)


def patch(body: Any, under: str = "", content_type: str = STRATEGIC_PATCH) -> Write:
    return Write("PATCH", under, body, content_type)


def metadata(**fields: Any) -> dict[str, Any]:
    return {"metadata": fields}


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


def status(**fields: Any) -> dict[str, Any]:
    return {"status": fields}


def binding(pod: str = "free", **fields: Any) -> dict[str, Any]:
    target = {"kind": "Node", "name": "n"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, **fields}, "target": target}


def eviction(pod: str, namespace: str = "default", **options: Any) -> Write:
    meta = {"name": pod, "namespace": namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
    return Write("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)


def event(name: str, component: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "Told",
        "message": "m",
        "type": "Normal",
        "action": "Telling",
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
    }


def volume(body: Any, name: str = "v") -> Write:
    return Write("PATCH", f"{VOLUMES}/{name}", body, MERGE_PATCH)


def claim(body: Any, name: str = "c") -> Write:
    return Write("PATCH", f"{CLAIMS}/{name}", body, MERGE_PATCH)


#: What a volume is kept for, as somebody wrote it who did not know the claim's uid.
KEPT = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "d"}
CONTAINER = {"name": "main"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
TOLERATION = {"key": "k", "operator": "Exists", "effect": "NoSchedule"}
APPLY = {"fieldManager": "thief", "force": "true"}

DEVICE_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
REQUEST = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
GPU = {"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}
POD_USES = {"resource": "pods", "name": "p", "uid": "p"}
GROUP_USES = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "group", "uid": "group"}
OTHER_USES = {"apiGroup": "scheduling.volcano.sh", "resource": "podgroups", "name": "g", "uid": "g"}
FINALIZER = "resource.kubernetes.io/delete-protection"


EXTENDED = "resource.kubernetes.io/extended-resource-claim"
OWNS = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}


def made_claim(requests: Any = None, config: Any = None, name: str = "made", **meta: Any) -> Write:
    """A claim for the extended resources of a pod, but for what is said."""
    fields = {"name": name, "annotations": {EXTENDED: "true"}, "ownerReferences": [OWNS]} | meta
    devices = {"requests": requests or [REQUEST]} | ({"config": config} if config else {})
    kept = {key: value for key, value in fields.items() if value is not None}
    return Write("POST", DEVICE_CLAIMS, {**CLAIM, **metadata(**kept), **spec(devices=devices)})


def names_claim(pod: str, name: str | None) -> Write:
    """A pod's status names the claim for its extended resources; None: it names none."""
    mapping = {"containerName": "main", "resourceName": "cpu", "requestName": "r"}
    said = None if name is None else {"resourceClaimName": name, "requestMappings": [mapping]}
    return Write("PATCH", f"{PODS}/{pod}/status", status(extendedResourceClaimStatus=said), MERGE_PATCH)


def of_claim(name: str, body: Any, under: str = "", content_type: str = MERGE_PATCH) -> Write:
    return Write("PATCH", f"{DEVICE_CLAIMS}/{name}{under}", body, content_type)


#: Changes of pods and what belongs to them. Rights alone would let the account send the first half of these.
CONFINED: dict[str, tuple[Write, str]] = {
    "a label": (patch(metadata(labels={"app": "stolen"})), METADATA),
    "a label taken off": (patch(metadata(labels={"app": None}), content_type=MERGE_PATCH), METADATA),
    "a label by JSON patch": (
        patch([{"op": "replace", "path": "/metadata/labels/app", "value": "x"}], content_type=JSON_PATCH),
        METADATA,
    ),
    "a label by way of the status": (patch(metadata(labels={"app": "stolen"}), "status"), METADATA),
    "a label by server-side apply": (
        Write("PATCH", "", {"apiVersion": "v1", "kind": "Pod", **metadata(name="p", labels={"app": "x"})},
              APPLY_PATCH, APPLY),
        METADATA,
    ),
    "a finalizer": (patch(metadata(finalizers=["example.com/f"])), METADATA),
    "an owner": (patch(metadata(ownerReferences=[OWNER])), METADATA),
    "an annotation": (patch(metadata(annotations={"example.com/a": "b"})), ANNOTATIONS),
    "an annotation changed": (patch(metadata(annotations={"example.com/theirs": "b"})), ANNOTATIONS),
    "an annotation taken off": (patch(metadata(annotations={"example.com/theirs": None})), ANNOTATIONS),
    "an annotation by way of the status": (patch(metadata(annotations={"example.com/a": "b"}), "status"), ANNOTATIONS),
    "an annotation that users write": (
        patch(metadata(annotations={"scheduling.thalweg/replaces": "other"})), ANNOTATIONS),
    "an image": (patch(spec(containers=[{**CONTAINER, "image": "stolen"}])), SPEC),
    "a toleration": (patch(spec(tolerations=[TOLERATION])), SPEC),
    "a deadline": (patch(spec(activeDeadlineSeconds=1)), SPEC),
    "a node selector": (patch(spec(nodeSelector={"stolen": "yes"})), SPEC),
    "the gate of others": (patch(spec(schedulingGates=[{"name": THEIRS, "$patch": "delete"}])), GATES),
    "all gates": (patch(spec(schedulingGates=None), content_type=MERGE_PATCH), GATES),
    "a phase": (patch(status(phase="Failed"), "status"), STATUS),
    "a message": (patch(status(message="stolen"), "status"), STATUS),
    "a condition": (patch(status(conditions=[{"type": "Ready", "status": "True"}]), "status"), STATUS),
    "an address": (patch(status(podIP="10.0.0.1", podIPs=[{"ip": "10.0.0.1"}]), "status"), STATUS),
    "the claim of a pod that runs": (names_claim("runs", "made"), STATUS),
    "a binding with a label": (Write("POST", f"{PODS}/free/binding", binding(labels={"app": "stolen"})), BINDING),
    "a binding with an annotation": (Write("POST", f"{PODS}/free/binding", binding(annotations={"a": "b"})), BINDING),
    "an eviction without grace": (eviction("runs", gracePeriodSeconds=0), GRACE),
    "an eviction in kube-system": (eviction("dns", "kube-system"), SYSTEM),
    "an eviction in our own namespace": (eviction("ours", "thalweg-system"), SYSTEM),
    "an Event in the name of another": (Write("POST", EVENTS, event("e1", "kubelet")), COMPONENT),
    "a volume's reclaim policy": (volume(spec(persistentVolumeReclaimPolicy="Delete")), KEEPS),
    "a volume's annotation": (volume(metadata(annotations={"example.com/a": "b"})), KEEPS),
    "a volume's label": (volume(metadata(labels={"a": "b"})), METADATA),
    "the volume of another claim": (volume(spec(claimRef={"name": "other"}), "taken"), KEEPS),
    "the volume of an earlier claim of this name": (volume(spec(claimRef={"uid": "u"}), "known"), KEEPS),
    "the uid of a claim taken off": (volume(spec(claimRef={"uid": None}), "known"), KEEPS),
    "a volume let go": (volume(spec(claimRef=None), "taken"), KEEPS),
    "a claim's volume": (claim(spec(volumeName="v")), SELECTS),
    "a claim's annotation": (claim(metadata(annotations={"example.com/a": "b"})), SELECTS),
    "a claim's finalizer": (claim(metadata(finalizers=["example.com/f"])), METADATA),
    "the node of a claim that has one": (claim(metadata(annotations={SELECTED_NODE: "n"}), "chosen"), SELECTS),
}  # fmt: skip

#: Changes of claims. Rights alone would let the account send these.
CONFINED_CLAIMS: dict[str, tuple[Write, str]] = {
    "a label": (of_claim("held", metadata(labels={"a": "b"})), CLAIM_METADATA),
    "another finalizer": (of_claim("held", metadata(finalizers=[FINALIZER, "example.com/f"])), CLAIM_METADATA),
    "a finalizer taken off": (of_claim("held", metadata(finalizers=None)), CLAIM_METADATA),
    "freed under a pod": (of_claim("held", status(allocation=None, reservedFor=None), "/status"), CLAIM_STATUS),
    "a reservation of others": (
        of_claim("held", status(reservedFor=[{"$patch": "delete", "uid": "g"}]), "/status", STRATEGIC_PATCH),
        CLAIM_STATUS,
    ),
    "a reservation for others": (of_claim("shared", status(reservedFor=[OTHER_USES]), "/status"), CLAIM_STATUS),
    "a claim of nobody": (made_claim(ownerReferences=None), MAKES),
    "a claim of another kind of owner": (made_claim(ownerReferences=[{**OWNS, "kind": "Node"}]), MAKES),
    "a claim that its owner does not control": (made_claim(ownerReferences=[{**OWNS, "controller": False}]), MAKES),
    "a claim of two owners": (made_claim(ownerReferences=[OWNS, {**OWNS, "uid": "q", "controller": False}]), MAKES),
    "a claim for no extended resource": (made_claim(annotations=None), MAKES),
    "a claim that says no": (made_claim(annotations={EXTENDED: "false"}), MAKES),
    "a claim with another annotation": (made_claim(annotations={EXTENDED: "true", "a": "b"}), MAKES),
    "a claim with a label": (made_claim(labels={"a": "b"}), MAKES),
    "a claim with a finalizer": (made_claim(finalizers=["example.com/f"]), MAKES),
    "a claim with config": (
        made_claim(config=[{"opaque": {"driver": "gpu.example.com", "parameters": {"a": "b"}}}]), MAKES),
    "a claim for all devices": (
        made_claim([{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]), MAKES),
    "a claim with a selector": (
        made_claim([{**REQUEST, "exactly": {**REQUEST["exactly"], "selectors": [{"cel": {"expression": "true"}}]}}]),
        MAKES,
    ),
    "a claim with alternatives": (
        made_claim([{"name": "r", "firstAvailable": [{**REQUEST["exactly"], "name": "a"}]}]), MAKES),
    "a claim of users deleted": (Write("DELETE", f"{DEVICE_CLAIMS}/free"), DELETES),
    "a claim deleted under a pod": (Write("DELETE", f"{DEVICE_CLAIMS}/made-held"), DELETES),
}  # fmt: skip
#: All that the operator does with claims, in this order.
ALLOWED_CLAIMS: dict[str, Write] = {
    "the finalizer": of_claim("free", metadata(finalizers=[FINALIZER]), content_type=STRATEGIC_PATCH),
    "devices": of_claim("free", status(allocation={"devices": {"results": [GPU]}}, reservedFor=[POD_USES]), "/status"),
    "one more pod": of_claim(
        "free", status(reservedFor=[{**POD_USES, "name": "q", "uid": "q"}]), "/status", STRATEGIC_PATCH),
    "one pod less": of_claim(
        "free", status(reservedFor=[{"$patch": "delete", "uid": "q"}]), "/status", STRATEGIC_PATCH),
    "a PodGroup": of_claim("free", status(reservedFor=[GROUP_USES]), "/status", STRATEGIC_PATCH),
    "a PodGroup less": of_claim(
        "free", status(reservedFor=[{"$patch": "delete", "uid": "group"}]), "/status", STRATEGIC_PATCH),
    "the last pod": of_claim(
        "free", status(reservedFor=[{"$patch": "delete", "uid": "p"}]), "/status", STRATEGIC_PATCH),
    "freed": of_claim("free", status(allocation=None), "/status"),
    "a claim for extended resources": made_claim(),
    "a pod that names it": names_claim("p", "made"),
    "a pod that names none": names_claim("p", None),
    "that claim deleted": Write("DELETE", f"{DEVICE_CLAIMS}/made"),
}  # fmt: skip

GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
POD_GROUP = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
             "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}  # fmt: skip


def of_group(body: Any, under: str = "/status", content_type: str = STRATEGIC_PATCH) -> Write:
    return Write("PATCH", f"{GROUPS}/g{under}", body, content_type)


def group_said(kind: str, value: str = "False") -> dict[str, Any]:
    """A condition of a PodGroup, as it is written for the first time."""
    words = {"reason": "Unschedulable", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return status(conditions=[{"type": kind, "status": value, **words}])


#: Changes of PodGroups' status, to which the account has a right.
CONFINED_GROUPS: dict[str, tuple[Write, str]] = {
    "another condition": (of_group(group_said("DisruptionTarget")), GROUP),
    "another condition beside ours": (
        of_group(status(conditions=[*group_said("PodGroupScheduled")["status"]["conditions"],
                                    *group_said("DisruptionTarget")["status"]["conditions"]])),
        GROUP,
    ),
    "the condition of others taken off": (of_group(status(conditions=None), content_type=MERGE_PATCH), GROUP),
}  # fmt: skip
#: What roles refuse it with PodGroups, and where it has every right the policy.
GROUPS_WITHOUT_RIGHT: dict[str, Write] = {
    "a group": Write("POST", GROUPS, {**POD_GROUP, **metadata(name="stolen")}),
    "a group deleted": Write("DELETE", f"{GROUPS}/g"),
    "a group's label": of_group(metadata(labels={"a": "b"}), "", MERGE_PATCH),
    "a group's finalizers": of_group(metadata(finalizers=None), "", MERGE_PATCH),
}
#: All that the operator does with PodGroups.
ALLOWED_GROUPS: dict[str, Write] = {
    "why it waits": of_group(group_said("PodGroupScheduled")),
    "the same on 1.37": of_group(group_said("PodGroupInitiallyScheduled")),
    "that it was scheduled": of_group(group_said("PodGroupScheduled", "True")),
}

#: What the account has no right to. Where it is given every right on pods, the policy refuses it all the same.
WITHOUT_RIGHT: dict[str, Write] = {
    "a pod": Write("POST", PODS, pod("stolen")),
    "a pod by server-side apply": Write("PATCH", f"{PODS}/stolen", pod("stolen"), APPLY_PATCH, APPLY),
    "a deletion": Write("DELETE", ""),
    "a deletion of all": Write("DELETE", PODS),
    "the older way to bind": Write("POST", "/api/v1/namespaces/default/bindings", binding()),
    "a resize": patch(spec(containers=[{**CONTAINER, "resources": {"requests": {"cpu": "1"}}}]), "resize"),
    "a container for debugging": patch(
        spec(ephemeralContainers=[{"name": "e", "image": "e"}]), "ephemeralcontainers"),
    "a command in a container": Write("POST", "exec", params={"command": "sh", "stdout": "true"}),
    "a look into a container": Write("POST", "attach", params={"stdout": "true"}),
    "a port": Write("POST", "portforward", params={"ports": "80"}),
    "a call by way of the API server": Write("POST", "proxy/"),
    "an Event changed": Write("PATCH", f"{EVENTS}/there", {"message": "x"}, MERGE_PATCH),
    "an Event deleted": Write("DELETE", f"{EVENTS}/there"),
    "a volume deleted": Write("DELETE", f"{VOLUMES}/v"),
    "a claim deleted": Write("DELETE", f"{CLAIMS}/c"),
    "a volume's status": Write("PATCH", f"{VOLUMES}/v/status", status(phase="Failed"), MERGE_PATCH),
    "a claim's status": Write("PATCH", f"{CLAIMS}/c/status", status(phase="Lost"), MERGE_PATCH),
}  # fmt: skip

#: What no rule on pods covers: roles alone refuse it.
ELSEWHERE: dict[str, Write] = {
    "a secret read": Write("GET", f"{SECRETS}/s"),
    "secrets listed": Write("GET", SECRETS),
    "a secret": Write("POST", SECRETS, {"apiVersion": "v1", "kind": "Secret", **metadata(name="s")}),
    "configuration read": Write("GET", "/api/v1/configmaps"),
    "a log read": Write("GET", "log"),
    "a node labelled": Write("PATCH", "/api/v1/nodes/n", metadata(labels={"a": "b"}), MERGE_PATCH),
    "a node read": Write("GET", "/api/v1/nodes/n"),
    "a policy changed": Write("PATCH", f"{POLICIES}/own", spec(precedence=1), MERGE_PATCH),
    "a policy deleted": Write("DELETE", f"{POLICIES}/own"),
    "our gate's policy changed": Write(
        "PATCH", f"{ADMISSION}/mutatingadmissionpolicies/thalweg-gate", spec(failurePolicy="Fail"), MERGE_PATCH),
    "our gate's policy deleted": Write("DELETE", f"{ADMISSION}/mutatingadmissionpolicies/thalweg-gate"),
    "our gate's binding deleted": Write("DELETE", f"{ADMISSION}/mutatingadmissionpolicybindings/thalweg-gate"),
    "a policy of admission made": Write(
        "POST", f"{ADMISSION}/mutatingadmissionpolicies",
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", **metadata(name="x")}),
    "other admission policies listed": Write("GET", f"{ADMISSION}/mutatingadmissionpolicies"),
    "a webhook made": Write(
        "POST", f"{ADMISSION}/validatingwebhookconfigurations",
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
         **metadata(name="x")}),
    "the confinement deleted": Write("DELETE", f"{ADMISSION}/validatingadmissionpolicies/thalweg-confinement"),
    "the confinement's binding deleted": Write(
        "DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/thalweg-confinement"),
    "a role read": Write("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/thalweg-base"),
    "a role widened": Write(
        "PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/thalweg-base", {"rules": []}, MERGE_PATCH),
    "another lease taken": Write("GET", f"{LEASES}/kube-scheduler"),
    "leases listed": Write("GET", LEASES),
    "a token": Write(
        "POST", "/api/v1/namespaces/thalweg-system/serviceaccounts/thalweg/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
    "a deployment": Write("GET", "/apis/apps/v1/deployments"),
}  # fmt: skip

DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for x"}
NOT_SCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "no room"}
#: All that the operator does, in this order.
ALLOWED: dict[str, Write] = {
    "a nomination": patch(
        {**metadata(annotations={PLANNED: "n"}), **status(nominatedNodeName="n")}, "status", MERGE_PATCH),
    "a nomination cleared": patch(
        {**metadata(annotations={PLANNED: None}), **status(nominatedNodeName=None)}, "status", MERGE_PATCH),
    "a reason": patch(status(conditions=[NOT_SCHEDULED]), "status"),
    "for whom a pod leaves": patch(status(conditions=[DISRUPTED]), "status"),
    "a wake": patch(metadata(annotations={WOKEN: "now"}), content_type=MERGE_PATCH),
    "our gate opened": patch(spec(schedulingGates=[{"name": GATE, "$patch": "delete"}])),
    "a binding": Write("POST", f"{PODS}/free/binding", binding()),
    "a binding in kube-system": Write("POST", "/api/v1/namespaces/kube-system/pods/dns/binding", binding("dns")),
    "an eviction": eviction("runs", preconditions={}),
    "an Event": Write("POST", EVENTS, event("e2", "thalweg")),
    "a policy's status": Write("PATCH", f"{POLICIES}/own/status", status(observedGeneration=1), MERGE_PATCH),
    "a volume kept for a claim": volume(
        {**metadata(annotations={BOUND_BY_CONTROLLER: "yes"}), **spec(claimRef={**KEPT, "uid": "u"})}),
    "the uid of a claim that a volume is kept for": volume(spec(claimRef={**KEPT, "uid": "u"}), "taken"),
    "the node that a volume is provisioned for": claim(metadata(annotations={SELECTED_NODE: "n"})),
    "our lease": Write("GET", f"{LEASES}/thalweg"),
}  # fmt: skip


async def refusal(write: Write, api: Api) -> str:
    """The API server's words; "" where it did what it was asked for."""
    try:
        await write.send(api)
    except ApiError as error:
        if error.status not in (403, 422):
            raise
        return str(error)
    return ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def thief(plane: tuple[ControlPlane, Api], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """A client with the account's token, once the API server has noticed its admission policy; and what it attacks."""
    control, api = plane
    await grant(api)
    # A node with a place: the API server itself adds its labels to what is bound there.
    await api.create(node("n", labels={"topology.kubernetes.io/zone": "z"}))
    await api.create(pod("p", "100m", labels={"app": "p"}, annotations={"example.com/theirs": "a"}, scheduler="nobody",
                         schedulingGates=[{"name": THEIRS}, {"name": GATE}]))  # fmt: skip
    for name, namespace in (
        ("free", "default"),
        ("runs", "default"),
        ("dns", "kube-system"),
        ("ours", "thalweg-system"),
    ):
        await api.create(pod(name, "100m", namespace=namespace, scheduler="nobody"))
    await Write("POST", f"{PODS}/runs/binding", binding("runs")).send(api)
    await made_claim(name="made-held").send(api)
    for name, consumers in (
        ("free", []), ("held", [POD_USES, OTHER_USES]), ("shared", [POD_USES]), ("made-held", [POD_USES])
    ):  # fmt: skip
        if name != "made-held":
            meta = metadata(name=name, namespace="default")
            await api.create({**CLAIM, **meta, **spec(devices={"requests": [REQUEST]})})
        if consumers:
            await of_claim(name, metadata(finalizers=[FINALIZER])).send(api)
            taken = status(allocation={"devices": {"results": [{**GPU, "device": name}]}}, reservedFor=consumers)
            await of_claim(name, taken, "/status").send(api)
    await api.create({**POD_GROUP, **metadata(name="g", namespace="default")})
    await of_group(group_said("Example")).send(api)
    await api.create(event("there", "kubelet"))
    size, modes = {"storage": "1Gi"}, {"accessModes": ["ReadWriteOnce"], "storageClassName": "late"}
    kept_for: dict[str, Any] = {"v": {}, "taken": {"claimRef": KEPT}, "known": {"claimRef": {**KEPT, "uid": "theirs"}}}
    for name, kept in kept_for.items():
        held = spec(capacity=size, hostPath={"path": "/v"}, **modes, **kept)
        await api.create({"apiVersion": "v1", "kind": "PersistentVolume", **metadata(name=name), **held})
    for name, annotations in (("c", {}), ("chosen", {SELECTED_NODE: "other"})):
        meta = metadata(name=name, namespace="default", annotations=annotations)
        wanted = spec(resources={"requests": size}, **modes)
        await api.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", **meta, **wanted})
    await api.create(
        {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy", **metadata(name="own"), **spec()}
    )
    async with Api(await kubeconfig(control, api, tmp_path_factory.mktemp("thief"))) as thief:
        write, words = CONFINED["a label"]
        probe = Write(write.method, write.path, write.body, write.content_type, {"dryRun": "All"})

        said = ""

        async def noticed() -> bool:
            nonlocal said
            said = await refusal(probe, thief)
            return words in said

        await until(noticed, 30, lambda: f"the admission policy to be in force; last: {said}")
        yield thief


async def test_roles_refuse_what_is_not_about_the_fields_of_a_pod(thief: Api) -> None:
    """Secrets, nodes, policies of admission, roles, other leases, commands in containers."""
    for name, write in (WITHOUT_RIGHT | ELSEWHERE | GROUPS_WITHOUT_RIGHT).items():
        assert NO_RIGHT in await refusal(write, thief), name


async def test_the_policy_refuses_what_roles_cannot_tell(thief: Api, plane: tuple[ControlPlane, Api]) -> None:
    """Each forbidden change of a pod is refused with its sentence, and the pod stays as it is."""
    before = await plane[1].get(f"{PODS}/p")
    for name, (write, words) in CONFINED.items():
        said = await refusal(write, thief)
        assert words in said or (name == "an owner" and NO_OWNER in said), name
    assert await plane[1].get(f"{PODS}/p") == before
    claims = await plane[1].list(DEVICE_CLAIMS)
    for name, (write, words) in CONFINED_CLAIMS.items():
        assert words in await refusal(write, thief), name
    said = {**{key: GPU[key] for key in ("driver", "pool")}, "device": "held", "conditions": []}
    assert await refusal(of_claim("held", status(devices=[said]), "/status"), thief), "in a driver's place"
    assert await plane[1].list(DEVICE_CLAIMS) == claims
    groups = await plane[1].list(GROUPS)
    for name, (write, words) in CONFINED_GROUPS.items():
        assert words in await refusal(write, thief), name
    assert await plane[1].list(GROUPS) == groups


async def test_the_policy_holds_whatever_else_is_granted(
    thief: Api, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """Both accounts are given every right on pods and Events: the admission policy refuses the same and all the rest.

    The account of the uninstall Job may open our gate and nothing more: no nomination, no binding, no eviction.
    """
    control, api = plane
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", **metadata(name="too-much")}
    of = ["", "events.k8s.io", "resource.k8s.io", "scheduling.k8s.io"]
    rules = [{"apiGroups": of, "resources": ["*"], "verbs": ["*"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "too-much"}
    account = metadata(name="thalweg-uninstall", namespace="thalweg-system")
    await api.apply({"apiVersion": "v1", "kind": "ServiceAccount", **account})
    await api.apply({**rbac, "kind": "ClusterRole", "rules": rules})
    await api.apply({**rbac, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": ACCOUNTS})
    before = await api.get(f"{PODS}/p")

    async def granted() -> bool:
        return NOTHING_ELSE in await refusal(WITHOUT_RIGHT["a deletion"], thief)

    try:
        await until(granted, 30, lambda: "the right to delete pods")
        for name, write in WITHOUT_RIGHT.items():
            assert NOTHING_ELSE in await refusal(write, thief), name
        for name, (write, words) in CONFINED.items():
            assert words in await refusal(write, thief), name
        for name, (write, words) in (CONFINED_CLAIMS | CONFINED_GROUPS).items():
            assert words in await refusal(write, thief), name
        for name, write in GROUPS_WITHOUT_RIGHT.items():
            assert GROUP in await refusal(write, thief), name
        whole = {**before, **metadata(**{**before["metadata"], "labels": {"app": "stolen"}})}
        assert METADATA in await refusal(Write("PUT", "", whole), thief)
        assert STATUS in await refusal(Write("PUT", "status", {**before, **status(phase="Failed")}), thief)
        other = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "e3"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "regarding": {"namespace": "default"},
            "action": "a",
            "reason": "r",
            "type": "Normal",
            "reportingController": "kubelet",
            "reportingInstance": "i",
        }
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        assert COMPONENT in await refusal(Write("POST", path, other), thief)
        async with Api(await kubeconfig(control, api, tmp_path, account="thalweg-uninstall")) as uninstaller:
            for name, write in WITHOUT_RIGHT.items():
                assert UNINSTALL in await refusal(write, uninstaller), name
            for name, (write, words) in CONFINED.items():
                said = await refusal(write, uninstaller)
                assert UNINSTALL in said or words in said, name
            first = ("the finalizer", "devices", "a claim for extended resources", "a pod that names it")
            for name, write in {name: ALLOWED_CLAIMS[name] for name in first}.items():
                assert UNINSTALL in await refusal(write, uninstaller), name
            for name in ("a nomination", "a reason", "a wake", "a binding", "an eviction", "an Event"):
                assert UNINSTALL in await refusal(ALLOWED[name], uninstaller), name
            assert await refusal(replace(ALLOWED["our gate opened"], params={"dryRun": "All"}), uninstaller) == ""
        assert await api.get(f"{PODS}/p") == before
    finally:
        for kind in ("clusterrolebindings", "clusterroles"):
            await api.delete(f"/apis/rbac.authorization.k8s.io/v1/{kind}/too-much")


def leads(*addresses: dict[str, Any], **more: Any) -> Write:
    """Endpoints of the view's Service, as the leader applies them."""
    subsets = [{"addresses": list(addresses), **more, "ports": [{"name": "https", "port": 8444}]}]
    body = {"apiVersion": "v1", "kind": "Endpoints", **metadata(name="thalweg-view"), "subsets": subsets}
    return Write("PATCH", "/api/v1/namespaces/thalweg-system/endpoints/thalweg-view", body, APPLY_PATCH, APPLY)


def address(pod: str, namespace: str = "thalweg-system", kind: str = "Pod") -> dict[str, Any]:
    return {"ip": "10.1.2.3", "targetRef": {"kind": kind, "name": pod, "namespace": namespace}}


async def test_the_views_service_leads_to_the_own_pod_only(
    thief: Api, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """A token that was stolen from a pod cannot lead users to another pod, and no token to what is no pod of ours."""
    control, api = plane
    for name in ("leader", "stolen"):
        await api.create(pod(name, namespace="thalweg-system", scheduler="nobody", serviceAccountName="thalweg"))
    config = json.loads((await kubeconfig(control, api, tmp_path)).read_text())
    config["users"][0]["user"]["token"] = await token(api, in_pod="leader")
    (tmp_path / "in-pod").write_text(json.dumps(config))
    async with Api(tmp_path / "in-pod") as in_pod:
        assert await refusal(leads(address("leader")), in_pod) == ""
        assert LEADS in await refusal(leads(address("stolen")), in_pod)
        assert LEADS in await refusal(leads(address("leader"), address("stolen")), in_pod)
        for write in (
            leads({"ip": "10.1.2.3"}),
            leads(address("p", "default")),
            leads(address("leader", kind="Node")),
            leads(notReadyAddresses=[address("leader")]),
        ):
            for client in (in_pod, thief):
                assert LEADS in await refusal(write, client)
    # An operator outside of the cluster has a token of no pod.
    assert await refusal(leads(address("stolen")), thief) == ""


async def test_what_the_operator_does_is_allowed(thief: Api, plane: tuple[ControlPlane, Api]) -> None:
    """Nominations, reasons, wakes, our gate, bindings, evictions, Events, the status of policies, the lease."""
    for name, write in (ALLOWED | ALLOWED_CLAIMS | ALLOWED_GROUPS).items():
        assert await refusal(write, thief) == "", name
    opened = await plane[1].get(f"{PODS}/p")
    assert opened["spec"]["schedulingGates"] == [{"name": THEIRS}]
    bound = await plane[1].get(f"{PODS}/free")
    assert bound["spec"]["nodeName"] == "n"
    assert bound["metadata"]["labels"]["topology.kubernetes.io/zone"] == "z"


async def test_others_are_not_confined(thief: Api, plane: tuple[ControlPlane, Api]) -> None:
    """The admission policy is about our account alone."""
    assert thief
    await plane[1].patch(f"{PODS}/p", metadata(labels={"app": "mine"}))
