"""A cluster of any size as the API server would show it: nodes and running pods by their number. Pure.

Objects are as large as real ones, with status and managedFields, and mixed as in real clusters: of every ten pods two
belong to DaemonSets (their affinity names their node), one to a StatefulSet (its labels name the pod), and seven to
Deployments of a hundred pods, a tenth of which spread over zones. Nothing is kept: any object is made when asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

#: Objects of an API server: a document as a template, filled with ``%``.
_ZONES = 10
_IMAGES = 30
_DEPLOYMENT_PODS, _STATEFUL_PODS = 100, 10
_NAMESPACES = 500
#: Requests of an application: milli-CPU and MiB.
_SIZES = tuple((cpu, memory) for cpu in (50, 100, 250, 500, 1000) for memory in (64, 128, 256, 512, 1024, 2048))
_MADE = "2026-01-05T08:00:00Z"
_PODS_PER_NODE = 10
_DAEMONS, _STATEFUL = 2, 1
_HEX = 16**12


def _uid(kind: int, number: int) -> str:
    return f"{kind:08x}-5ca1-4e00-8000-{number * 2654435761 % _HEX:012x}"


@dataclass(frozen=True)
class LargeCluster:
    """So many nodes, ten pods on each.

    Attributes:
        nodes: number of nodes.
        running: number of running pods.
    """

    nodes: int
    running: int

    def node_name(self, number: int) -> str:
        """The name of a node."""
        return f"ip-10-{number >> 16 & 255}-{number >> 8 & 255}-{number & 255}.internal"

    def node(self, number: int, version: int) -> bytes:
        """A node as JSON."""
        name = self.node_name(number)
        return self._node_template % {
            b"name": name.encode(),
            b"uid": _uid(1, number).encode(),
            b"zone": b"zone-%02d" % (number % _ZONES),
            b"rack": b"rack-%05d" % (number // 40),
            b"ip": b"10.%d.%d.%d" % (number >> 16 & 255, number >> 8 & 255, number & 255),
            b"version": b"%d" % version,
            b"pool": b"pool-%d" % (number // 7 % 4),
        }

    def pod(self, number: int, version: int) -> bytes:
        """A running pod as JSON; ``number``: its place in the order of the API server's keys is not its number."""
        node, place = number % self.nodes, number // self.nodes
        if place < _DAEMONS:
            return self._fill(self._daemon, number, node, place, version, f"agent-{place}-{number % _HEX:08x}")
        if place < _DAEMONS + _STATEFUL:
            app = 100_000 + (number - _DAEMONS * self.nodes) // _STATEFUL_PODS
            return self._fill(self._stateful, number, node, app, version, f"store-{app}-{number % _STATEFUL_PODS}")
        app = (number - (_DAEMONS + _STATEFUL) * self.nodes) // _DEPLOYMENT_PODS
        template = self._spread if app % _ZONES == 0 else self._plain
        return self._fill(template, number, node, app, version, f"app-{app:05}-7c9d8f6b54-{number:07x}")

    def _fill(self, template: bytes, number: int, node: int, app: int, version: int, name: str) -> bytes:
        cpu, memory = _SIZES[app % len(_SIZES)]
        return template % {
            b"name": name.encode(),
            b"namespace": b"team-%03d" % (app % _NAMESPACES),
            b"uid": _uid(2, number).encode(),
            b"owner": _uid(3, app).encode(),
            b"app": b"%05d" % app,
            b"node": self.node_name(node).encode(),
            b"cpu": b"%dm" % cpu,
            b"memory": b"%dMi" % memory,
            b"image": b"%02d" % (app % _IMAGES),
            b"ip": b"10.%d.%d.%d" % (node >> 16 & 255, node >> 8 & 255, node & 255),
            b"pod_ip": b"172.%d.%d.%d" % (number >> 16 & 255, number >> 8 & 255, number & 255),
            b"version": b"%d" % version,
            b"suffix": b"%05x" % (number % 16**5),
        }

    @cached_property
    def _node_template(self) -> bytes:
        return _template(_NODE)

    @cached_property
    def _daemon(self) -> bytes:
        affinity = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["%(node)s"]}]}
                    ]
                }
            }
        }
        labels = {"app": "agent-%(app)s", "controller-revision-hash": "6d8f5c7b9"}
        keys = ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
        tolerations = [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
            for key, effect in zip(keys, ("NoExecute",) * 2 + ("NoSchedule",) * 4, strict=True)
        ]
        return _template(_pod("DaemonSet", "agent-%(app)s", labels, affinity=affinity, tolerations=tolerations))

    @cached_property
    def _stateful(self) -> bytes:
        labels = {"app": "store-%(app)s", "apps.kubernetes.io/pod-index": "0"}
        labels["statefulset.kubernetes.io/pod-name"] = "%(name)s"
        return _template(_pod("StatefulSet", "store-%(app)s", labels))

    @cached_property
    def _plain(self) -> bytes:
        return _template(_pod("ReplicaSet", "app-%(app)s-7c9d8f6b54", _APP_LABELS))

    @cached_property
    def _spread(self) -> bytes:
        constraint = {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "app-%(app)s"}},
        }
        return _template(
            _pod("ReplicaSet", "app-%(app)s-7c9d8f6b54", _APP_LABELS, topologySpreadConstraints=[constraint])
        )


_APP_LABELS = {"app": "app-%(app)s", "pod-template-hash": "7c9d8f6b54"}


def _template(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _fields(manager: str, paths: dict[str, Any], subresource: str = "") -> dict[str, Any]:
    entry = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": _MADE}
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": paths}
    return entry | ({"subresource": subresource} if subresource else {})


def _pod(kind: str, owner: str, labels: dict[str, str], **rules: Any) -> dict[str, Any]:
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    token = {
        "name": "kube-api-access-%(suffix)s",
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    container = {
        "name": "main",
        "image": "registry.internal/team/app-%(image)s:v1.42.7",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"SETTING_{i}", "value": f"value-{i}"} for i in range(8)],
        "resources": {"limits": {"memory": "%(memory)s"}, "requests": {"cpu": "%(cpu)s", "memory": "%(memory)s"}},
        "volumeMounts": [token],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 1,
                          "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }  # fmt: skip
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1",
                                                                      "fieldPath": "metadata.namespace"}}]}},
    ]  # fmt: skip
    container_paths = {
        'k:{"name":"main"}': {".": {}} | {f"f:{key}": {} for key in container if key != "env"},
    }
    status_paths = {
        f'k:{{"type":"{each}"}}': {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {},
                                  "f:type": {}}
        for each in conditions
    }  # fmt: skip
    return {
        "metadata": {
            "name": "%(name)s",
            "generateName": f"{owner}-",
            "namespace": "%(namespace)s",
            "uid": "%(uid)s",
            "resourceVersion": "%(version)s",
            "creationTimestamp": _MADE,
            "labels": labels,
            "annotations": {"checksum/config": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "%(owner)s", "controller": True,
                 "blockOwnerDeletion": True}
            ],
            "managedFields": [
                _fields("kube-controller-manager", {"f:metadata": {"f:labels": {f"f:{key}": {} for key in labels}},
                                                    "f:spec": {"f:containers": container_paths}}),
                _fields("kubelet", {"f:status": {"f:conditions": status_paths, "f:podIP": {}, "f:startTime": {}}},
                        "status"),
            ],
        },
        "spec": {
            "volumes": [{"name": "kube-api-access-%(suffix)s", "projected": {"sources": sources, "defaultMode": 420}}],
            "containers": [container],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            **({"hostname": "%(name)s"} if kind == "StatefulSet" else {}),
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "nodeName": "%(node)s",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": tolerations,
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            **rules,
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": each, "status": "True", "lastProbeTime": None, "lastTransitionTime": _MADE}
                for each in conditions
            ],
            "hostIP": "%(ip)s",
            "podIP": "%(pod_ip)s",
            "podIPs": [{"ip": "%(pod_ip)s"}],
            "startTime": _MADE,
            "containerStatuses": [
                {"name": "main", "state": {"running": {"startedAt": _MADE}}, "lastState": {}, "ready": True,
                 "allocatedResources": container["resources"]["requests"], "resources": container["resources"],
                 "restartCount": 0, "image": "registry.internal/team/app-%(image)s:v1.42.7", "started": True,
                 "imageID": "registry.internal/team/app@sha256:" + "%(image)s" * 32,
                 "containerID": "containerd://" + "%(image)s" * 32}
            ],
            "qosClass": "Burstable",
        },
    }  # fmt: skip


_CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "100Gi"}
_NODE: dict[str, Any] = {
    "metadata": {
        "name": "%(name)s",
        "uid": "%(uid)s",
        "resourceVersion": "%(version)s",
        "creationTimestamp": _MADE,
        "labels": {
            "kubernetes.io/hostname": "%(name)s",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "m6.16xlarge",
            "topology.kubernetes.io/region": "here",
            "topology.kubernetes.io/zone": "%(zone)s",
            "example.com/rack": "%(rack)s",
            "example.com/pool": "%(pool)s",
        },
        "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        "managedFields": [
            _fields("kubelet", {"f:metadata": {"f:labels": {"f:kubernetes.io/hostname": {}}}}),
            _fields("kubelet", {"f:status": {"f:allocatable": {}, "f:capacity": {}, "f:images": {}}}, "status"),
        ],
    },
    "spec": {"podCIDR": "%(ip)s/24", "providerID": "here:///%(zone)s/%(name)s"},
    "status": {
        "capacity": _CAPACITY,
        "allocatable": _CAPACITY,
        "conditions": [
            {"type": each, "status": "True" if each == "Ready" else "False", "reason": "Kubelet", "message": "kubelet",
             "lastHeartbeatTime": _MADE, "lastTransitionTime": _MADE}
            for each in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
        ],
        "addresses": [{"type": "InternalIP", "address": "%(ip)s"}, {"type": "Hostname", "address": "%(name)s"}],
        "nodeInfo": {"architecture": "amd64", "kubeletVersion": "v1.36.0", "operatingSystem": "linux",
                     "osImage": "Linux", "kernelVersion": "6.12", "containerRuntimeVersion": "containerd://2.1"},
        "images": [
            {"names": [f"registry.internal/team/app-{i:02}@sha256:{i:064x}",
                       f"registry.internal/team/app-{i:02}:v1.42.7"],
             "sizeBytes": 50_000_000 + i * 1_000_003}
            for i in range(_IMAGES)
        ],
    },
}  # fmt: skip
