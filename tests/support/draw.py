"""Clusters and pods as Kubernetes JSON, drawn by hypothesis.

Manifests are drawn as the API server would have stored them, and odd ones beside: what an older version let in, what
validation refuses today, what nobody would write. Few names and few amounts, so that things meet and fit exactly.

An *aspect* is the name of a kube-scheduler plugin: what is drawn for it are the fields that it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from hypothesis import strategies as st
from support import draw_volumes

Manifest = dict[str, Any]
Drawn = st.SearchStrategy

ASPECTS = (
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    *draw_volumes.ASPECTS,
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
)
_VOLUMES = frozenset(draw_volumes.ASPECTS)
_AMONG_PODS = {"PodTopologySpread", "InterPodAffinity"}
#: Score plugins whose raw scores are compared: aspects too, with SOFT beside them for preferences rather than demands.
SCORES = ("NodeAffinity", "TaintToleration", "InterPodAffinity", "PodTopologySpread", "ImageLocality")
SOFT = "preferences"


@dataclass(frozen=True)
class Case:
    """A cluster and what waits in it."""

    nodes: list[Manifest]
    pods: list[Manifest]
    pending: list[Manifest]
    namespaces: list[Manifest] = field(default_factory=list)
    #: persistentVolumes, persistentVolumeClaims, storageClasses ... -> objects
    storage: dict[str, list[Manifest]] = field(default_factory=dict)
    #: PodDisruptionBudgets.
    budgets: list[Manifest] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As tests/oracle/cases/*.json keep it."""
        return asdict(self)


# -- names ---------------------------------------------------------------------------------------------------------

NODE_NAMES = ("n0", "n1", "n2", "n3", "n4", "n5")
NAMESPACES = ("default", "red", "blue")
KEYS = ("zone", "disk", "cores", "example.com/gen")
ODD_KEYS = ("", "two words", "-zone", "example.com/", "/zone", "Example.com/gen", "a/b/c", "z" * 64, "kubernetes.io/x")
WORDS = ("a", "b", "ssd", "")
NUMBERS = ("-3", "0", "007", "+8", "8", "16", "9223372036854775807", "9223372036854775808")
ODD_VALUES = ("two words", "-a", "1e3", "0x10", "1.5", "1_000", "v" * 64, "é")

_keys: Drawn[str] = st.sampled_from(KEYS)
_values: Drawn[str] = st.sampled_from(WORDS + NUMBERS)
labels: Drawn[dict[str, str]] = st.dictionaries(_keys, _values, max_size=3)


def _weighted(plain: Drawn[Any], odd: Drawn[Any], plain_in: int = 8) -> Drawn[Any]:
    """Mostly ``plain``, one in ``plain_in`` times ``odd``; shrinks to ``plain``."""
    return st.integers(1, plain_in).flatmap(lambda at: odd if at == plain_in else plain)


def _objects(**fields: Drawn[Any]) -> Drawn[Manifest]:
    """Objects with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def _named(prefix: str, items: Iterable[Manifest]) -> list[Manifest]:
    return [{"name": f"{prefix}{at}", **item} for at, item in enumerate(items)]


# -- quantities ----------------------------------------------------------------------------------------------------

#: The same few amounts in many spellings, so that sums meet capacities exactly.
CPU = (
    "0", "1m", "100m", "0.1", "1e-1", "100000u", "250m", ".25", "0.5", "500m", "500000000n", "1", "1.", "+1",
    "1e0", "1.5", "1500m", "0.0015k", "2", "2E0", "0.002k", "4", "1n", "1u", "1500u", "999999n", "1.0000001", "1Ki",
)  # fmt: skip
MEMORY = (
    "0", "1", "1n", "100m", "1023", "1024", "1Ki", "1024000m", "1k", "1e3", "0.5Mi", "512Ki", "1Mi", "1M", "256Mi",
    "0.5Gi", "536870912", "536870912000m", "0.536870912G", "1Gi", "1048576Ki", "1.5Gi", "1610612736", "1G", "1e9",
    "1E9", "2Gi", "4Gi", "1Ti", "0.001T", "1P", "1Pi", "0.1Pi",
)  # fmt: skip
COUNTS = ("0", "1", "2", "3", "4", "1k", "500m", "2e0", "1Ki")
EXTENDED = ("nvidia.com/gpu", "example.com/fpga", "hugepages-2Mi", "attachable-volumes-csi-x")
ODD_RESOURCES = (
    "pods", "storage", "gpu", "requests.example.com/fpga", "kubernetes.io/thing", "example.com/", "Example.com/fpga",
    "sub.kubernetes.io/x", "example.com/a_b.c", "hugepages-", "example.com/two words",
)  # fmt: skip

_cpu, _memory, _count = st.sampled_from(CPU), st.sampled_from(MEMORY), st.sampled_from(COUNTS)
#: The API server stores strings; whoever writes dumps by hand writes numbers too.
_number: Drawn[Any] = st.sampled_from([0, 1, 2, 0.5, 1.5, 3])


def _resource_list(cpu: Drawn[Any], memory: Drawn[Any], count: Drawn[Any]) -> Drawn[Manifest]:
    plain = {"cpu": cpu, "memory": memory}
    extended = {**plain, "ephemeral-storage": memory, **dict.fromkeys(EXTENDED, count)}
    odd = {**extended, **dict.fromkeys(ODD_RESOURCES, count)}
    return st.one_of(_objects(**plain), st.fixed_dictionaries(plain), _objects(**extended), _objects(**odd))


requests: Drawn[Manifest] = _resource_list(_weighted(_cpu, _number), _weighted(_memory, _number), _count)
allocatable: Drawn[Manifest] = st.tuples(
    _resource_list(
        st.sampled_from(("1", "2", "4", "1500m", "3.5", "0", "4000000u", "1e1", "0.5")),
        st.sampled_from(("4Gi", "1Gi", "2Gi", "1610612736", "1Ki", "0", "1.5Gi", "2e9", "1Ti", "1P", "1023")),
        _count,
    ),
    _objects(pods=st.sampled_from(("110", "4", "2", "1", "0", "1k", 3))),
).map(lambda parts: {**parts[0], **parts[1]})
GENEROUS = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}


# -- nodes ---------------------------------------------------------------------------------------------------------

FEATURES = (
    "InPlacePodLevelResourcesVerticalScaling",
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
)
TAINT_KEYS = ("dedicated", "gpu", "node.kubernetes.io/unschedulable")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")

taints: Drawn[list[Manifest]] = st.lists(
    st.fixed_dictionaries(
        {
            "key": _weighted(st.sampled_from(TAINT_KEYS), st.just("")),
            "effect": _weighted(st.sampled_from(EFFECTS), st.sampled_from(["", "Sometimes"])),
        },
        optional={"value": st.sampled_from(["a", "b", "", "8"])},
    ),
    max_size=3,
)


def _node_labels(aspects: frozenset[str]) -> Drawn[dict[str, str]]:
    if aspects & _VOLUMES:
        others = _node_labels(aspects - _VOLUMES)
        return st.tuples(others, draw_volumes.node_labels).map(lambda parts: {**parts[0], **parts[1]})
    if aspects & _AMONG_PODS:  # few and large domains, where rules between pods meet
        zones = _weighted(st.sampled_from([{"zone": "a"}, {"zone": "b"}]), st.just({}), 6)
        return st.tuples(labels, zones).map(lambda parts: {**parts[0], **parts[1]})
    return labels if "NodeAffinity" in aspects else st.just({})


_IMAGES = ("web:v1", "web", "web:latest", "example.com:5000/db", "example.com:5000/db:latest", "db@sha256:00ff")
_held_images: Drawn[list[Manifest]] = st.lists(
    st.fixed_dictionaries(
        {"names": st.lists(st.sampled_from(_IMAGES), min_size=1, max_size=3)},
        optional={"sizeBytes": st.sampled_from((0, 23 * 2**20, 200 * 2**20, 10**9, 1000 * 2**20, 3 * 2**30, 2**40))},
    ),
    max_size=4,
)
_features: Drawn[list[str]] = _weighted(
    st.lists(st.sampled_from(FEATURES), unique=True, max_size=3).map(sorted),
    st.lists(st.sampled_from((*FEATURES, "", "Zeal", "Aim")), max_size=4),
    4,
)


@cache
def _node_fields(aspects: frozenset[str]) -> Drawn[Manifest]:
    spec: dict[str, Drawn[Any]] = {}
    if aspects & {"NodeUnschedulable", "TaintToleration", "PodTopologySpread"}:
        spec["taints"] = taints
    if "NodeUnschedulable" in aspects:
        spec["unschedulable"] = st.booleans()
    room = st.just(dict(GENEROUS))
    return st.fixed_dictionaries(
        {
            "labels": _node_labels(aspects),
            "spec": _objects(**spec),
            "allocatable": allocatable if "NodeResourcesFit" in aspects else room,
            "images": _held_images if "ImageLocality" in aspects else st.just([]),
            "features": _features if "NodeDeclaredFeatures" in aspects else st.just([]),
        }
    )


def _node(name: str, drawn: Manifest) -> Manifest:
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **drawn["labels"]}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": drawn["spec"],
        "status": {
            "allocatable": drawn["allocatable"],
            "declaredFeatures": drawn["features"],
            **({"images": drawn["images"]} if drawn["images"] else {}),
        },
    }


# -- what pods demand of nodes ---------------------------------------------------------------------------------------

_expressions: Drawn[Manifest] = st.one_of(
    st.fixed_dictionaries(
        {
            "key": _keys,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(_values, min_size=1, max_size=3),
        }
    ),
    st.fixed_dictionaries({"key": _keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
    st.fixed_dictionaries(
        {"key": _keys, "operator": st.sampled_from(["Gt", "Lt"]), "values": st.sampled_from(NUMBERS).map(lambda n: [n])}
    ),
)
_odd_expressions: Drawn[Manifest] = _objects(
    key=st.sampled_from(KEYS + ODD_KEYS),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "", "in", "Near"]),
    values=st.none() | st.lists(st.sampled_from(WORDS + NUMBERS + ODD_VALUES), max_size=3),
)
expressions: Drawn[Manifest] = _weighted(_expressions, _odd_expressions)
_fields: Drawn[Manifest] = _weighted(
    st.fixed_dictionaries(
        {
            "key": st.just("metadata.name"),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.sampled_from((*NODE_NAMES, "n9")).map(lambda name: [name]),
        }
    ),
    _objects(
        key=st.sampled_from(["metadata.name", "metadata.namespace", "spec.unschedulable", ""]),
        operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Near", ""]),
        values=st.none() | st.lists(st.sampled_from((*NODE_NAMES, "")), max_size=2),
    ),
)
_terms: Drawn[Any] = st.one_of(
    st.fixed_dictionaries({"matchExpressions": st.lists(expressions, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"matchFields": st.lists(_fields, min_size=1, max_size=2)}),
    _objects(
        matchExpressions=st.none() | st.lists(expressions, max_size=2),
        matchFields=st.none() | st.lists(_fields, max_size=2),
    ),
)
_required: Drawn[Any] = _weighted(
    st.fixed_dictionaries({"nodeSelectorTerms": st.lists(_weighted(_terms, st.none(), 12), min_size=1, max_size=3)}),
    st.none() | _objects(nodeSelectorTerms=st.none() | st.just([])),
)
_preference = _objects(matchExpressions=st.lists(expressions, max_size=2))
_preferred = st.lists(
    st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": _preference}),
    max_size=2,
)
node_affinity: Drawn[Manifest] = _objects(
    requiredDuringSchedulingIgnoredDuringExecution=_required,
    preferredDuringSchedulingIgnoredDuringExecution=_preferred,
)

_soft_terms: Drawn[Manifest] = _objects(
    matchExpressions=st.lists(_weighted(_expressions, _odd_expressions, 20), max_size=1),
    matchFields=st.lists(_fields, max_size=1),
)
soft_node_affinity: Drawn[Manifest] = st.fixed_dictionaries(
    {
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.fixed_dictionaries({"weight": st.sampled_from((1, 7, 50, 100, 0, -5)), "preference": _soft_terms}),
            min_size=1,
            max_size=4,
        )
    }
)

tolerations: Drawn[list[Manifest]] = st.lists(
    _weighted(
        st.one_of(
            st.fixed_dictionaries(
                {"key": st.sampled_from(TAINT_KEYS), "operator": st.just("Exists")},
                optional={"effect": st.sampled_from(EFFECTS), "tolerationSeconds": st.just(300)},
            ),
            st.fixed_dictionaries(
                {"key": st.sampled_from(TAINT_KEYS), "value": st.sampled_from(["a", "b", ""])},
                optional={"operator": st.sampled_from(["Equal", ""]), "effect": st.sampled_from(EFFECTS)},
            ),
            st.just({"operator": "Exists"}),
        ),
        _objects(
            key=st.sampled_from((*TAINT_KEYS, "")),
            operator=st.sampled_from(["Exists", "Equal", "", "Gt", "Lt", "exists", "Near"]),
            value=st.sampled_from(["a", "b", "", "8"]),
            effect=st.sampled_from((*EFFECTS, "", "Sometimes")),
        ),
        3,
    ),
    max_size=4,
)


# -- containers ------------------------------------------------------------------------------------------------------

_ports: Drawn[list[Manifest]] = st.lists(
    st.fixed_dictionaries(
        {
            "containerPort": st.just(80),
            "hostPort": _weighted(st.sampled_from([80, 8080]), st.sampled_from([0, -1, 65535])),
        },
        optional={
            "hostIP": st.sampled_from(["", "0.0.0.0", "127.0.0.1", "10.0.0.1", "::"]),  # noqa: S104 - a value
            "protocol": st.sampled_from(["TCP", "TCP", "UDP", "SCTP", ""]),
        },
    ),
    min_size=1,
    max_size=3,
)
_policies: Drawn[Any] = _weighted(st.sampled_from(["Always"]), st.sampled_from(["Never", "OnFailure", "always"]), 6)


@cache
def _containers(aspects: frozenset[str], *, init: bool) -> Drawn[list[Manifest]]:
    fields: dict[str, Drawn[Any]] = {}
    if "NodePorts" in aspects:
        fields["ports"] = _ports
    if "NodeResourcesFit" in aspects:
        fields["resources"] = _objects(requests=requests)
    if "ImageLocality" in aspects:
        fields["image"] = st.sampled_from(_IMAGES)
    if "NodeDeclaredFeatures" in aspects:
        fields["restartPolicyRules"] = st.lists(
            st.sampled_from(({"action": "Restart"}, {"action": "RestartAllContainers"}, {})), max_size=2
        )
    if init:
        fields["restartPolicy"] = _policies
    prefix = "init" if init else "main"
    return st.lists(_objects(**fields), min_size=0 if init else 1, max_size=3 if init else 2).map(
        lambda found: _named(prefix, found)
    )


_POD_LEVEL = {"cpu": _cpu, "memory": _memory, "hugepages-2Mi": _count}
pod_level: Drawn[Manifest] = _weighted(_objects(**_POD_LEVEL), requests)


def _pod_requests(aspects: frozenset[str]) -> tuple[dict[str, Drawn[Any]], dict[str, Drawn[Any]]]:
    """Fields of a pod's spec that are always there, and those that may be."""
    always: dict[str, Drawn[Any]] = {"containers": _containers(aspects, init=False)}
    maybe: dict[str, Drawn[Any]] = {}
    if aspects & {"NodeUnschedulable", "TaintToleration", "PodTopologySpread"}:
        maybe["tolerations"] = tolerations
    if aspects & {"NodeAffinity", "PodTopologySpread"}:
        maybe["nodeSelector"] = _weighted(
            st.dictionaries(_keys, _values, max_size=2),
            st.dictionaries(st.sampled_from(KEYS + ODD_KEYS), st.sampled_from(WORDS + ODD_VALUES), max_size=2),
            12,
        )
        maybe["affinity"] = _objects(nodeAffinity=node_affinity)
        if SOFT in aspects and "NodeAffinity" in aspects:
            maybe["affinity"] = st.fixed_dictionaries({"nodeAffinity": soft_node_affinity})
    if "ImageLocality" in aspects:
        image = st.fixed_dictionaries({"reference": st.sampled_from(_IMAGES)})
        maybe["volumes"] = st.lists(_objects(name=st.just("v"), image=image), max_size=2)
    if aspects & _VOLUMES:
        always["volumes"] = draw_volumes.pod_volumes(aspects)
        maybe.pop("volumes", None)
    if "NodeDeclaredFeatures" in aspects:
        maybe["hostNetwork"], maybe["hostUsers"] = st.booleans(), st.sampled_from((True, False, False, None))
    if aspects & {"NodePorts", "NodeResourcesFit", "NodeDeclaredFeatures", "ImageLocality"}:
        maybe["initContainers"] = _containers(aspects, init=True)
    if "NodeResourcesFit" in aspects:
        maybe["overhead"] = _objects(**_POD_LEVEL)
        maybe["resources"] = _objects(requests=pod_level)
    return always, maybe


@cache
def _pending(aspects: frozenset[str]) -> Drawn[Manifest]:
    always, maybe = _pod_requests(aspects)
    if "PodTopologySpread" in aspects:
        always["topologySpreadConstraints"] = soft_spread if SOFT in aspects else spread
    if "InterPodAffinity" in aspects:
        one_side = soft_pod_affinity if SOFT in aspects else pod_affinity
        sides = _objects(podAffinity=one_side, podAntiAffinity=one_side)
        nodes = maybe.get("affinity", st.just({}))
        maybe["affinity"] = st.tuples(nodes, sides).map(lambda parts: {**parts[0], **parts[1]})
    if "NodeName" in aspects:
        maybe["nodeName"] = st.sampled_from((*NODE_NAMES, "", "n9"))
    spec = st.fixed_dictionaries(always, optional=maybe)
    return st.fixed_dictionaries({"namespace": _namespaces(aspects), "labels": _pod_labels(aspects), "spec": spec})


@cache
def _running(aspects: frozenset[str]) -> Drawn[Manifest]:
    always, maybe = _pod_requests(aspects & ({"NodePorts", "NodeResourcesFit"} | _VOLUMES))
    status: dict[str, Drawn[Any]] = {
        "phase": st.sampled_from(["Running", "Pending", "Unknown", "Running", "Succeeded", "Failed"])
    }
    if "NodeResourcesFit" in aspects:
        status["containerStatuses"] = _statuses("main")
        status["initContainerStatuses"] = _statuses("init")
        status["conditions"] = _conditions
        status["resources"] = _objects(requests=pod_level)
        status["allocatedResources"] = pod_level
    if "InterPodAffinity" in aspects:
        one_side = soft_pod_affinity if SOFT in aspects else pod_affinity
        maybe["affinity"] = _objects(podAntiAffinity=one_side, podAffinity=one_side)
    leaving = _weighted(st.just({}), st.just({"deletionTimestamp": "2026-01-01T00:00:00Z"}), 5)
    return st.fixed_dictionaries(
        {
            "metadata": leaving if aspects & _AMONG_PODS else st.just({}),
            "namespace": _namespaces(aspects),
            "labels": _pod_labels(aspects),
            "spec": st.fixed_dictionaries(always, optional=maybe),
            "status": _objects(**status),
            "at": st.integers(0, 20),
        }
    )


def _statuses(prefix: str) -> Drawn[list[Manifest]]:
    return st.lists(
        _objects(resources=_objects(requests=requests), allocatedResources=requests), max_size=3
    ).map(lambda found: _named(prefix, found))  # fmt: skip


_conditions: Drawn[list[Manifest]] = st.lists(
    st.sampled_from(
        [
            {"type": "PodResizePending", "status": "True", "reason": "Infeasible"},
            {"type": "PodResizePending", "status": "True", "reason": "Deferred"},
            {"type": "PodResizePending", "status": "False", "reason": "Infeasible"},
            {"type": "PodResizeInProgress", "status": "True"},
            {"type": "PodScheduled", "status": "True"},
        ]
    ),
    max_size=2,
)


# -- what running pods demand of others ------------------------------------------------------------------------------

_pod_label_keys: Drawn[str] = st.sampled_from(("app", "tier"))
_pod_label_values: Drawn[str] = st.sampled_from(("web", "db", ""))
_selectors: Drawn[Any] = st.one_of(
    st.fixed_dictionaries({"matchLabels": st.dictionaries(_pod_label_keys, _pod_label_values, max_size=1)}),
    _objects(
        matchExpressions=st.lists(
            st.one_of(
                st.fixed_dictionaries(
                    {
                        "key": _pod_label_keys,
                        "operator": st.sampled_from(["In", "NotIn"]),
                        "values": st.lists(_pod_label_values, min_size=1, max_size=2),
                    }
                ),
                st.fixed_dictionaries(
                    {"key": _pod_label_keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])}
                ),
            ),
            max_size=2,
        )
    ),
)
_odd_selectors: Drawn[Any] = st.none() | _objects(
    matchLabels=st.dictionaries(st.sampled_from(("app", "-app", "")), st.sampled_from(("web", "-web")), max_size=2),
    matchExpressions=st.lists(
        _objects(
            key=st.sampled_from(("app", "", "a b")),
            operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Near", ""]),
            values=st.lists(st.sampled_from(("web", "db", "1", "-x")), max_size=2),
        ),
        max_size=2,
    ),
)
_namespace_selectors: Drawn[Any] = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"matchLabels": st.dictionaries(st.just("team"), st.sampled_from(("one", "two")), min_size=1)}
    ),
    st.fixed_dictionaries(
        {
            "matchExpressions": st.sampled_from(
                (
                    [{"key": "team", "operator": "Exists"}],
                    [{"key": "team", "operator": "DoesNotExist"}],
                    [{"key": "team", "operator": "NotIn", "values": ["one"]}],
                    [{"key": "team", "operator": "Near"}],
                )
            )
        }
    ),
    st.none(),
)
_topologies: Drawn[str] = st.sampled_from(("kubernetes.io/hostname", "zone", "zone", "zone", "disk", "no-such-label"))
#: A selector, one that selects much, or an odd one.
_pod_selectors: Drawn[Any] = _weighted(_selectors, _odd_selectors, 8)
_affinity_terms: Drawn[Manifest] = st.fixed_dictionaries(
    {"topologyKey": _topologies, "labelSelector": _pod_selectors},
    optional={
        "namespaces": st.lists(st.sampled_from(NAMESPACES), max_size=3),
        "namespaceSelector": _namespace_selectors,
        "matchLabelKeys": st.just(["app"]),  # merged into the selector when the pod is created, ignored after
    },
)
_preferred_terms: Drawn[list[Manifest]] = st.lists(
    st.fixed_dictionaries({"weight": st.just(1), "podAffinityTerm": _affinity_terms}), max_size=1
)
pod_affinity: Drawn[Manifest] = st.fixed_dictionaries(
    {"requiredDuringSchedulingIgnoredDuringExecution": st.lists(_affinity_terms, min_size=1, max_size=2)},
    optional={"preferredDuringSchedulingIgnoredDuringExecution": _preferred_terms},
)

_soft_weights: Drawn[int] = _weighted(st.integers(1, 100), st.sampled_from((0, -5, 2**31 - 1)))
_preferred_affinity: Drawn[list[Manifest]] = st.lists(
    st.fixed_dictionaries({"weight": _soft_weights, "podAffinityTerm": _affinity_terms}), max_size=2
)
soft_pod_affinity: Drawn[Manifest] = st.fixed_dictionaries(
    {"preferredDuringSchedulingIgnoredDuringExecution": _preferred_affinity},
    optional={"requiredDuringSchedulingIgnoredDuringExecution": st.lists(_affinity_terms, max_size=1)},
)

_inclusion: Drawn[str] = _weighted(st.sampled_from(("Honor", "Ignore")), st.sampled_from(("", "honor")))
spread: Drawn[list[Manifest]] = st.lists(
    st.fixed_dictionaries(
        {
            "topologyKey": _topologies,
            "maxSkew": _weighted(st.integers(1, 2), st.sampled_from((0, -1, 5, 2**31 - 1))),
            "whenUnsatisfiable": _weighted(st.just("DoNotSchedule"), st.sampled_from(("ScheduleAnyway", "", "Never"))),
            "labelSelector": _weighted(_selectors, _odd_selectors, 10),
        },
        optional={
            "minDomains": _weighted(st.integers(1, 4), st.sampled_from((0, -1))),
            "nodeAffinityPolicy": _inclusion,
            "nodeTaintsPolicy": _inclusion,
            "matchLabelKeys": st.lists(st.sampled_from(("app", "tier", "zone", "")), max_size=2),
        },
    ),
    min_size=1,
    max_size=2,
)


soft_spread: Drawn[list[Manifest]] = spread.map(
    lambda found: [{**each, "whenUnsatisfiable": "ScheduleAnyway"} for each in found]
)


def _namespaces(aspects: frozenset[str]) -> Drawn[str]:
    if aspects & _VOLUMES and not aspects & _AMONG_PODS:
        return _weighted(st.just("default"), st.just("red"), 12)
    if not aspects & _AMONG_PODS:
        return st.just("default")
    return st.sampled_from(NAMESPACES if "InterPodAffinity" in aspects else ("default", "default", "red"))


def _pod_labels(aspects: frozenset[str]) -> Drawn[dict[str, str]]:
    if not aspects & _AMONG_PODS:
        return st.just({})
    return st.dictionaries(_pod_label_keys, _pod_label_values, max_size=2)


_namespace_objects: Drawn[list[Manifest]] = st.lists(
    st.tuples(st.sampled_from(NAMESPACES), _objects(team=st.sampled_from(("one", "two")))),
    max_size=3,
    unique_by=lambda drawn: drawn[0],
).map(
    lambda drawn: [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": found}} for name, found in drawn
    ]
)


def _pod(name: str, drawn: Manifest) -> Manifest:
    metadata = {
        "name": name,
        "namespace": drawn["namespace"],
        "uid": name,
        "labels": drawn["labels"],
        **drawn.get("metadata", {}),
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": drawn["spec"]}
    return {**pod, "status": drawn["status"]} if "status" in drawn else pod


# -- whole cases -----------------------------------------------------------------------------------------------------


@cache
def cases(aspects: frozenset[str]) -> Drawn[Case]:
    """Cases in which each object has what the aspects read; with several aspects most objects have one of them."""
    few = [frozenset({aspect}) for aspect in ASPECTS if aspect in aspects]
    nodes = _merged([_node_fields(each) for each in (*few, aspects)])
    pending = _merged([_pending(each) for each in (*few, aspects)])
    running = _merged([_running(each) for each in (*few, aspects)])

    @st.composite
    def case(draw: st.DrawFn) -> Case:
        found_nodes = draw(st.lists(nodes, min_size=1, max_size=len(NODE_NAMES)))
        found_pods = draw(st.lists(running, max_size=8 if aspects & _AMONG_PODS else 5))
        for pod in found_pods:
            at = pod.pop("at")  # drawn without knowing the nodes: each part shrinks for itself
            pod["spec"]["nodeName"] = NODE_NAMES[at % len(found_nodes)] if at < 20 else "n9"
        found_pending = draw(st.lists(pending, min_size=1, max_size=8))
        made_nodes = [_node(NODE_NAMES[at], node) for at, node in enumerate(found_nodes)]
        made_pods = [_pod(f"r{at}", pod) for at, pod in enumerate(found_pods)]
        made_pending = [_pod(f"p{at}", pod) for at, pod in enumerate(found_pending)]
        return Case(
            nodes=made_nodes,
            pods=made_pods,
            pending=made_pending,
            namespaces=draw(_namespace_objects) if "InterPodAffinity" in aspects else [],
            storage=draw(draw_volumes.storage(aspects, made_nodes, [*made_pods, *made_pending]))
            if aspects & _VOLUMES
            else {},
        )

    return case()


@st.composite
def crowded_cases(draw: st.DrawFn, aspects: Collection[str] = ASPECTS) -> Case:
    """Cases in which pending pods come in several copies, have priorities and have waited."""
    case = draw(cases(frozenset(aspects) - _VOLUMES))  # what its pods take of each other's is kube-scheduler's
    pending = []
    for at, pod in enumerate(case.pending):
        spec = {**pod["spec"], "priority": draw(st.sampled_from((0, 0, 10, 1000, -5, 2_000_001_000)))}
        for copy in range(draw(st.integers(1, 6))):
            waiting = draw(
                st.sampled_from(("2026-01-01T00:00:00Z", "2025-12-31T23:59:00Z", "2026-02-01T00:00:00Z", None))
            )
            name = f"p{at}-{copy}"
            metadata = {**pod["metadata"], "name": name, "uid": name, "creationTimestamp": waiting}
            pending.append({**pod, "metadata": metadata, "spec": spec})
    return Case(case.nodes, case.pods, pending, case.namespaces, case.storage)


def cases_for(aspects: Collection[str]) -> Drawn[Case]:
    """``cases`` of any collection of aspects."""
    return cases(frozenset(aspects))


def _merged(strategies: list[Drawn[Any]]) -> Drawn[Any]:
    return st.one_of(list(dict.fromkeys(strategies)))
