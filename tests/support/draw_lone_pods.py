"""Clusters with one waiting pod, drawn by what the pod prefers: what kube-scheduler's scores tell apart.

Objects are as the API server stores them. All are drawn from a seed, without hypothesis: figures count clusters, and
the same ones come each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final

Manifest = dict[str, Any]

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NAMESPACE, KEY = "shop", "shop/lone"
_ZONES, _APPS, _WEIGHTS = ("a", "b", "c"), ("web", "db", "cache"), (1, 10, 50, 100)
_DRIVER, _MODELS = "gpu.example.com", ("large", "medium", "small")
_MIB: Final = 1024 * 1024


@dataclass(slots=True)
class LoneCase:
    """A cluster and the pod that waits in it.

    Attributes:
        more: the other objects.
    """

    random: Random
    nodes: list[Manifest]
    running: list[Manifest]
    pod: Manifest
    more: list[Manifest] = field(default_factory=list)

    def objects(self) -> list[Manifest]:
        """All of them, as a dump has them."""
        return [_object("v1", "Namespace", NAMESPACE), *self.nodes, *self.running, self.pod, *self.more]

    def question(self) -> dict[str, Any]:
        """The same as arguments of ``Oracle.total``."""
        by_kind: dict[str, list[Manifest]] = {}
        for each in self.objects():
            by_kind.setdefault(each["kind"], []).append(each)
        return {
            "nodes": self.nodes,
            "pods": self.running,
            "pending": [self.pod],
            "namespaces": by_kind["Namespace"],
            "storage": _parts(by_kind, _STORAGE),
            "devices": _parts(by_kind, _DEVICES) if "DeviceClass" in by_kind else None,
            "owners": _parts(by_kind, _OWNERS),
        }

    def add(self, version: str, kind: str, name: str, **fields: Any) -> Manifest:
        """One more object."""
        self.more.append(_object(version, kind, name, **fields))
        return self.more[-1]


_STORAGE = {
    "persistentVolumes": "PersistentVolume",
    "persistentVolumeClaims": "PersistentVolumeClaim",
    "storageClasses": "StorageClass",
    "csiNodes": "CSINode",
    "csiDrivers": "CSIDriver",
    "csiStorageCapacities": "CSIStorageCapacity",
}
_DEVICES = {"slices": "ResourceSlice", "classes": "DeviceClass", "claims": "ResourceClaim"}
_OWNERS = {
    "services": "Service",
    "replicationControllers": "ReplicationController",
    "replicaSets": "ReplicaSet",
    "statefulSets": "StatefulSet",
}
_OF_THE_CLUSTER = {
    "Namespace", "Node", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "ResourceSlice", "DeviceClass",
}  # fmt: skip


def _parts(by_kind: Mapping[str, list[Manifest]], names: Mapping[str, str]) -> dict[str, list[Manifest]]:
    return {name: by_kind.get(kind, []) for name, kind in names.items()}


def _object(version: str, kind: str, name: str, **fields: Any) -> Manifest:
    where = {} if kind in _OF_THE_CLUSTER else {"namespace": NAMESPACE}
    metadata = {"name": name, **where, "uid": f"{kind}-{name}", **fields.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def lone_case(row: str, seed: int) -> LoneCase:
    """A cluster of a row of ``ROWS``."""
    random = Random(f"{row} {seed}")
    nodes = [_node(random, at) for at in range(random.randint(4, 8))]
    case = LoneCase(random, nodes, [], {})
    for node in nodes:
        _fill(case, node)
    case.pod = _pod("lone", _amounts(random), "web")
    ROWS[row](case)
    return case


def _node(random: Random, at: int) -> Manifest:
    cpu = random.choice((8, 16, 32))
    amounts = {"cpu": str(cpu), "memory": f"{cpu * random.choice((2, 4, 8))}Gi", "pods": "110"}
    labels = {HOSTNAME: f"n{at}", ZONE: _ZONES[at % 3], "disk": random.choice(("ssd", "hdd"))}
    status = {"capacity": amounts, "allocatable": dict(amounts), "conditions": [{"type": "Ready", "status": "True"}]}
    return _object("v1", "Node", f"n{at}", metadata={"labels": labels}, spec={}, status=status)


def _amounts(random: Random) -> dict[str, str]:
    return {"cpu": f"{random.choice((100, 250, 500, 1000, 2000))}m", "memory": f"{random.choice((128, 512, 2048))}Mi"}


def _container(name: str, requests: Mapping[str, str] | None, image: str = "registry.example.com/app:1") -> Manifest:
    return {"name": name, "image": image, "resources": {"requests": dict(requests)} if requests else {}}


def _pod(name: str, requests: Mapping[str, str] | None, app: str, node: str = "") -> Manifest:
    spec = {"schedulerName": "thalweg", "containers": [_container("main", requests)]}
    status = {"phase": "Running" if node else "Pending"}
    if node:
        spec["nodeName"] = node
    metadata = {"labels": {"app": app}, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return _object("v1", "Pod", name, metadata=metadata, spec=spec, status=status)


def _fill(case: LoneCase, node: Manifest) -> None:
    """Pods until a drawn part of the node is taken."""
    random, name = case.random, node["metadata"]["name"]
    cpu, memory = (int(node["status"]["allocatable"][each].removesuffix("Gi")) for each in ("cpu", "memory"))
    share = random.uniform(0.0, 0.8)
    taken_cpu = taken_memory = 0.0
    for at in count():
        milli, mib = random.choice((250, 500, 1000, 2000)), random.choice((256, 1024, 2048, 4096))
        taken_cpu, taken_memory = taken_cpu + milli / 1000, taken_memory + mib / 1024
        if taken_cpu > share * cpu or taken_memory > 0.9 * memory:
            return
        requests = {"cpu": f"{milli}m", "memory": f"{mib}Mi"}
        case.running.append(_pod(f"{name}-{at}", requests, random.choice(_APPS), name))


# -- what the pod has ----------------------------------------------------------------------------------------------


def nothing(_case: LoneCase) -> None:
    """Requests alone."""


def no_requests(case: LoneCase) -> None:
    """The pod requests nothing."""
    case.pod["spec"]["containers"] = [_container("main", None)]


def containers_without_requests(case: LoneCase) -> None:
    """On half of the nodes run pods of several containers of which one requests a bit; the lone one may be so too."""
    for node in case.random.sample(case.nodes, len(case.nodes) // 2):
        name = node["metadata"]["name"]
        for at in range(case.random.randint(1, 6)):
            pod = _pod(f"{name}-injected-{at}", {"cpu": "10m", "memory": "10Mi"}, "cache", name)
            pod["spec"]["containers"] += [_container(f"side-{each}", None) for each in range(5)]
            case.running.append(pod)
    if case.random.random() < 0.5:
        case.pod["spec"]["containers"].append(_container("side", case.random.choice((None, {"cpu": "50m"}))))


def schedule_anyway(case: LoneCase) -> None:
    """Soft topology spread."""
    keys = case.random.sample((HOSTNAME, ZONE), case.random.randint(1, 2))
    case.pod["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": case.random.randint(1, 3),
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        for key in keys
    ]


def prefer_no_schedule(case: LoneCase) -> None:
    """Soft taints, some of which the pod tolerates."""
    for node in case.nodes:
        keys = case.random.sample(("old", "slow", "spot"), case.random.choice((0, 0, 1, 2)))
        if keys:
            node["spec"]["taints"] = [{"key": key, "value": "yes", "effect": "PreferNoSchedule"} for key in keys]
    if case.random.random() < 0.5:
        case.pod["spec"]["tolerations"] = [{"key": "spot", "operator": "Exists"}]


def images(case: LoneCase) -> None:
    """Images that some nodes hold."""
    names = [f"registry.example.com/image-{at}:1" for at in range(3)]
    sizes = [case.random.randint(50, 2000) * _MIB for _ in names]
    for node in case.nodes:
        held = [{"names": [name], "sizeBytes": size} for name, size in zip(names, sizes, strict=True)]
        node["status"]["images"] = [each for each in held if case.random.random() < 0.4]
    requests = case.pod["spec"]["containers"][0]["resources"].get("requests")
    case.pod["spec"]["containers"] = [
        _container(f"main-{at}", requests if at == 0 else {"cpu": "10m", "memory": "10Mi"}, name)
        for at, name in enumerate(case.random.sample(names, case.random.randint(1, 2)))
    ]


def gpus(case: LoneCase) -> None:
    """Some nodes have GPUs, and the pod asks for none."""
    for node in case.random.sample(case.nodes, len(case.nodes) // 2):
        for part in ("capacity", "allocatable"):
            node["status"][part]["nvidia.com/gpu"] = "8"


def preferred_node_affinity(case: LoneCase) -> None:
    """One to three preferred terms."""
    expressions = (
        {"key": ZONE, "operator": "In", "values": ["a"]},
        {"key": ZONE, "operator": "NotIn", "values": ["b"]},
        {"key": "disk", "operator": "In", "values": ["ssd"]},
        {"key": HOSTNAME, "operator": "In", "values": ["n1", "n2"]},
    )
    terms = [
        {"weight": case.random.choice(_WEIGHTS), "preference": {"matchExpressions": [each]}}
        for each in case.random.sample(expressions, case.random.randint(1, 3))
    ]
    _affinity(case.pod)["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": terms}


def preferred_pod_affinity(case: LoneCase) -> None:
    """One or two terms that attract."""
    _affinity(case.pod)["podAffinity"] = _preferred_terms(case.random)


def preferred_pod_anti_affinity(case: LoneCase) -> None:
    """One or two terms that repel."""
    _affinity(case.pod)["podAntiAffinity"] = _preferred_terms(case.random)


def affinity_of_others(case: LoneCase) -> None:
    """Running pods have terms about pods like this one, which has none."""
    for pod in case.random.sample(case.running, len(case.running) // 4):
        side = case.random.choice(("podAffinity", "podAntiAffinity"))
        _affinity(pod)[side] = _preferred_terms(case.random, ("web",))
        if side == "podAffinity" and case.random.random() < 0.3:
            required = [_term(case.random, ("web",))]
            _affinity(pod)[side] = {"requiredDuringSchedulingIgnoredDuringExecution": required}


def _affinity(pod: Manifest) -> Manifest:
    affinity: Manifest = pod["spec"].setdefault("affinity", {})
    return affinity


def _preferred_terms(random: Random, apps: tuple[str, ...] = _APPS) -> Manifest:
    terms = [
        {"weight": random.choice(_WEIGHTS), "podAffinityTerm": _term(random, apps)} for _ in range(random.randint(1, 2))
    ]
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms}


def _term(random: Random, apps: tuple[str, ...]) -> Manifest:
    selector = {"matchLabels": {"app": random.choice(apps)}}
    return {"topologyKey": random.choice((HOSTNAME, ZONE)), "labelSelector": selector}


def default_spread(case: LoneCase) -> None:
    """A Service or a controller selects the pod, and others like it run, most of them in one zone."""
    random, selector = case.random, {"app": "web"}
    version, kind = random.choice(
        (("", ""), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("v1", "ReplicationController"))
    )
    replicas = [case.pod]
    for at in range(random.randint(2, 8)):
        crowded = [node for node in case.nodes if node["metadata"]["labels"][ZONE] == "a"]
        node = random.choice(crowded if random.random() < 0.6 else case.nodes)["metadata"]["name"]
        replicas.append(_pod(f"replica-{at}", {"cpu": "100m", "memory": "64Mi"}, "web", node))
    case.running += replicas[1:]
    if not kind or random.random() < 0.5:
        case.add("v1", "Service", "web", spec={"selector": selector})
    if kind:
        selector = {"app": "web", "owner": "web-1"}
        labelled = selector if kind == "ReplicationController" else {"matchLabels": selector}
        template = {"metadata": {"labels": selector}, "spec": {"containers": [_container("main", None)]}}
        owner = case.add(version, kind, "web-1", spec={"selector": labelled, "template": template})
        reference = {"apiVersion": version, "kind": kind, "name": "web-1", "uid": owner["metadata"]["uid"]}
        for pod in replicas:
            pod["metadata"]["labels"] = dict(selector)
            pod["metadata"]["ownerReferences"] = [{**reference, "controller": True}]


def first_available(case: LoneCase) -> None:
    """A claim with alternatives; nodes have some of the devices."""
    wanted = case.random.sample(_MODELS, case.random.randint(2, 3))
    for model in _MODELS:
        said = f'device.attributes["{_DRIVER}"].model == "{model}"'
        expression = f'device.driver == "{_DRIVER}" && {said}'
        case.add("resource.k8s.io/v1", "DeviceClass", model, spec={"selectors": [{"cel": {"expression": expression}}]})
    for node in case.nodes:
        devices = [
            {"name": f"gpu-{at}", "attributes": {"model": {"string": model}}}
            for at, model in enumerate(_MODELS)
            if case.random.random() < 0.5
        ]
        if devices:
            name = node["metadata"]["name"]
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": _DRIVER, "nodeName": name, "pool": pool, "devices": devices}
            case.add("resource.k8s.io/v1", "ResourceSlice", name, spec=spec)
    alternatives = [
        {"name": model, "deviceClassName": model, "allocationMode": "ExactCount", "count": 1} for model in wanted
    ]
    request = {"devices": {"requests": [{"name": "gpu", "firstAvailable": alternatives}]}}
    case.add("resource.k8s.io/v1", "ResourceClaim", "gpu", spec=request, status={})
    case.pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    case.pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]


def csi_capacity(case: LoneCase) -> None:
    """A volume is to be made, and the driver has more room for it on some nodes than on others."""
    driver = "disk.example.com"
    _volume_class(case, driver)
    case.add("storage.k8s.io/v1", "CSIDriver", driver, spec={"storageCapacity": True, "attachRequired": False})
    for node in case.nodes:
        name = node["metadata"]["name"]
        drivers = [{"name": driver, "nodeID": name, "topologyKeys": [HOSTNAME]}]
        case.add("storage.k8s.io/v1", "CSINode", name, spec={"drivers": drivers})
        case.add(
            "storage.k8s.io/v1", "CSIStorageCapacity", name, storageClassName="disk",
            capacity=f"{case.random.choice((5, 11, 20, 50, 100, 1000))}Gi",
            nodeTopology={"matchLabels": {HOSTNAME: name}},
        )  # fmt: skip


def local_volumes(case: LoneCase) -> None:
    """Local volumes of different sizes are free."""
    _volume_class(case, "kubernetes.io/no-provisioner")
    for node in case.nodes:
        name = node["metadata"]["name"]
        here = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [name]}]}
        spec = {
            "capacity": {"storage": f"{case.random.choice((5, 10, 20, 50, 100, 1000))}Gi"},
            "accessModes": ["ReadWriteOnce"], "storageClassName": "disk", "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        }  # fmt: skip
        case.add("v1", "PersistentVolume", f"on-{name}", spec=spec, status={"phase": "Available"})


def _volume_class(case: LoneCase, provisioner: str) -> None:
    """A class of volumes that wait for their pod, and the pod's claim."""
    case.add(
        "storage.k8s.io/v1", "StorageClass", "disk", provisioner=provisioner,
        volumeBindingMode="WaitForFirstConsumer", reclaimPolicy="Delete",
    )  # fmt: skip
    spec = {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "disk", "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": "10Gi"}},
    }  # fmt: skip
    case.add("v1", "PersistentVolumeClaim", "data", spec=spec, status={"phase": "Pending"})
    case.pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


def several(case: LoneCase) -> None:
    """Three of the others at once."""
    for draw in case.random.sample(_TOGETHER, 3):
        draw(case)


_TOGETHER: tuple[Callable[[LoneCase], None], ...] = (
    schedule_anyway, prefer_no_schedule, images, preferred_node_affinity, preferred_pod_affinity,
    preferred_pod_anti_affinity, affinity_of_others, first_available, csi_capacity,
)  # fmt: skip
#: What the pod has -> what draws it.
ROWS: Final[Mapping[str, Callable[[LoneCase], None]]] = {
    "nothing": nothing,
    "no requests": no_requests,
    "containers without requests": containers_without_requests,
    "ScheduleAnyway": schedule_anyway,
    "PreferNoSchedule": prefer_no_schedule,
    "images": images,
    "GPUs on some nodes": gpus,
    "preferred node affinity": preferred_node_affinity,
    "preferred pod affinity": preferred_pod_affinity,
    "preferred pod anti-affinity": preferred_pod_anti_affinity,
    "affinity of running pods": affinity_of_others,
    "a Service or a controller": default_spread,
    "firstAvailable": first_available,
    "CSI capacity": csi_capacity,
    "local volumes": local_volumes,
    "several of these": several,
}
