"""Volumes of pods and storage objects as Kubernetes JSON, drawn by hypothesis: see support/draw.py.

Sizes of PersistentVolumes differ, and each is kept for another claim: of equal ones kube-scheduler takes any.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from flowcore.model.volumes import BETA_REGION, BETA_ZONE, REGION, ZONE

Manifest = dict[str, Any]
Drawn = st.SearchStrategy

ASPECTS = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")
NODES = ("n0", "n1", "n2", "n3")
CLAIMS = ("c0", "c1", "c2", "c3")
VOLUMES = ("v0", "v1", "v2", "v3")
CLASSES = ("late", "late", "late", "late", "late", "late", "now", "odd")
DRIVER = "csi.example.com"
ZONES = ("us-a-1", "us-a-2", "eu-b-1")
IN_TREE = (
    "kubernetes.io/gce-pd",
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/cinder",
    "kubernetes.io/portworx-volume",
)
PROVISIONERS = ("ebs.csi.aws.com", *IN_TREE[:2], "kubernetes.io/azure-file",
                "kubernetes.io/no-provisioner", "")  # fmt: skip
DRIVERS = (DRIVER, "ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com", "cinder.csi.openstack.org",
           "pxd.portworx.com")  # fmt: skip
SIZES = ("1Gi", "1.5Gi", "2Gi", "2147483649", "3Gi", "5000M", "10Gi")
WANTED = ("1Gi", "1073741824", "1500Mi", "2Gi", "2147483649n", "4Gi", "20Gi", "0")
ACCESS = ("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany", "ReadWriteMany")


def _mostly(plain: Drawn[Any], odd: Drawn[Any], plain_in: int = 8) -> Drawn[Any]:
    """Mostly ``plain``, one in ``plain_in`` times ``odd``; shrinks to ``plain``."""
    return st.sampled_from((*[False] * (plain_in - 1), True)).flatmap(lambda is_odd: odd if is_odd else plain)


def _objects(**fields: Drawn[Any]) -> Drawn[Manifest]:
    return st.fixed_dictionaries({}, optional=fields)


# -- nodes -----------------------------------------------------------------------------------------------------------

_zone: Drawn[str] = st.sampled_from(ZONES)
_region: Drawn[str] = st.sampled_from(("us-a", "eu-b"))
_labels = {ZONE: _zone, BETA_ZONE: _zone, REGION: _region, BETA_REGION: _region}
_more_labels = {**_labels, "topology.ebs.csi.aws.com/zone": _zone, "topology.gke.io/zone": _zone}
node_labels: Drawn[dict[str, str]] = _mostly(
    st.tuples(_objects(**_more_labels), _zone).map(lambda parts: {**parts[0], ZONE: parts[1]}), _objects(**_labels), 4
)

# -- volumes of pods -------------------------------------------------------------------------------------------------

_flag: Drawn[bool] = st.booleans()
_disk: Drawn[str] = st.sampled_from(("d0", "d0", "d0", "d1"))
_claim: Drawn[Manifest] = st.fixed_dictionaries(
    {
        "persistentVolumeClaim": st.fixed_dictionaries(
            {"claimName": _mostly(st.sampled_from(("c0", *CLAIMS)), st.just(""), 60)}
        )
    }
)
_ephemeral: Drawn[Manifest] = st.just({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
_aws: Drawn[str] = st.sampled_from(("vol-1", "aws:///vol-1", "aws://us-a-1/vol-2", "disk", "aws://us-a-1/disk"))
_gce: Drawn[Manifest] = st.fixed_dictionaries({"pdName": _disk}, optional={"readOnly": _flag})
_azure: Drawn[Manifest] = st.fixed_dictionaries(
    {"diskName": _disk, "diskURI": _disk}, optional={"kind": st.sampled_from(("Managed", "managed", "Dedicated"))}
)
_conflicting: Drawn[Manifest] = st.one_of(
    st.fixed_dictionaries({"gcePersistentDisk": _gce}),
    st.fixed_dictionaries({"awsElasticBlockStore": st.fixed_dictionaries({"volumeID": _aws})}),
    st.fixed_dictionaries({"iscsi": st.fixed_dictionaries({"iqn": _disk}, optional={"readOnly": _flag})}),
    st.fixed_dictionaries(
        {
            "rbd": st.fixed_dictionaries(
                {"monitors": st.lists(_disk, max_size=2), "image": _disk},
                optional={"pool": _disk, "readOnly": _flag},
            )
        }
    ),
)
_counted: Drawn[Manifest] = st.one_of(
    st.fixed_dictionaries({"azureDisk": _azure}),
    st.fixed_dictionaries({"cinder": st.fixed_dictionaries({"volumeID": _disk})}),
    st.fixed_dictionaries({"portworxVolume": st.fixed_dictionaries({"volumeID": _disk})}),
)
_other: Drawn[Manifest] = st.sampled_from(
    (
        {"emptyDir": {}},
        {"configMap": {"name": "c0"}},
        {"csi": {"driver": DRIVER}},
        {"azureFile": {"secretName": "s", "shareName": "s"}},
        {"vsphereVolume": {"volumePath": "p"}},
        {},
    )
)


def pod_volumes(aspects: frozenset[str]) -> Drawn[list[Manifest]]:
    """Volumes of a pod: those that the aspects read, and others."""
    kinds: list[Drawn[Manifest]] = [_claim, _claim, _claim]
    if "VolumeRestrictions" in aspects:
        kinds += [_conflicting, _conflicting, _conflicting]
    if "NodeVolumeLimits" in aspects:
        kinds += [_conflicting, _counted, _ephemeral]
    if "VolumeBinding" in aspects:
        kinds += [_ephemeral]
    return st.lists(_mostly(st.one_of(kinds), _other, 10), min_size=1, max_size=3).map(
        lambda found: [{"name": f"e{at}", **volume} for at, volume in enumerate(found)]
    )


# -- claims ----------------------------------------------------------------------------------------------------------

_modes: Drawn[list[str]] = st.lists(st.sampled_from(ACCESS), min_size=1, max_size=2)
_volume_labels: Drawn[dict[str, str]] = st.dictionaries(st.just("tier"), st.sampled_from(("gold", "tin")), max_size=1)
_selector: Drawn[Any] = _mostly(
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"matchLabels": _volume_labels}),
        st.just({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
    ),
    st.sampled_from(
        (
            {"matchExpressions": [{"key": "tier", "operator": "Near"}]},
            {"matchLabels": {"tier": "-gold"}},
            {"matchExpressions": [{"key": "tier", "operator": "Gt", "values": ["1"]}]},
        )
    ),
    5,
)
#: Filesystem mostly; None means it too.
_volume_mode: Drawn[Any] = _mostly(st.sampled_from(("Filesystem", None)), st.sampled_from(("Block", "")), 8)
_quality: Drawn[Any] = _mostly(st.sampled_from((None, None, "")), st.just("gold"), 10)
_wanted: Drawn[Manifest] = _mostly(
    st.sampled_from(WANTED).map(lambda size: {"requests": {"storage": size}}),
    st.sampled_from(({}, {"requests": {}})),
    8,
)


def _claim_object(namespace: str, name: str, drawn: Manifest) -> Manifest:
    """A claim; a third of them are bound as the controller does it, another third wait for their first consumer."""
    annotations, spec, metadata = dict(drawn["annotations"]), dict(drawn["spec"]), dict(drawn["metadata"])
    if drawn["state"] == "bound":
        spec["volumeName"] = drawn["volume"]
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    elif drawn["state"] == "prebound":
        spec["volumeName"] = drawn["volume"]
    elif drawn["state"] == "chosen":
        annotations["volume.kubernetes.io/selected-node"] = drawn["node"]
    owner = drawn["owner"]
    if owner == "itself":  # the pod that an ephemeral volume's claim is named after
        metadata["ownerReferences"] = [{"uid": name.partition("-")[0], "controller": True, "kind": "Pod", "name": "p"}]
    elif owner:
        metadata["ownerReferences"] = owner
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "annotations": annotations, **metadata},
        "spec": spec,
        "status": {"phase": drawn["phase"]},
    }


_claim_fields: Drawn[Manifest] = st.fixed_dictionaries(
    {
        "state": _mostly(st.sampled_from(("waiting", "bound")), st.sampled_from(("prebound", "chosen")), 8),
        "volume": _mostly(st.sampled_from(VOLUMES), st.just("v9"), 15),
        "node": st.sampled_from((*NODES, "n9")),
        "owner": _mostly(
            st.just("itself"),
            st.sampled_from((None, [{"uid": "p0"}], [{"uid": other, "controller": True} for other in ("p9", "p0")])),
        ),
        "phase": _mostly(st.sampled_from(("Bound", "Pending")), st.just("Lost"), 40),
        "metadata": _mostly(st.just({}), st.just({"deletionTimestamp": "2026-01-01T00:00:00Z"}), 40),
        "annotations": _mostly(st.just({}), st.sampled_from(({"volume.beta.kubernetes.io/storage-class": "late"},
                                                             {"volume.beta.kubernetes.io/storage-class": ""})), 12),
        "spec": st.fixed_dictionaries(
            {"accessModes": _modes, "resources": _wanted},
            optional={
                "selector": _mostly(st.just(None), _selector, 3),
                "volumeMode": _volume_mode,
                "volumeAttributesClassName": _quality,
            },
        ).flatmap(
            lambda spec: _mostly(st.sampled_from(CLASSES), st.sampled_from(("", None, "gone")), 30).map(
                lambda name: {**spec, "storageClassName": name}
            )
        ),
    }
)  # fmt: skip

# -- volumes ---------------------------------------------------------------------------------------------------------

_zone_key: Drawn[str] = st.sampled_from((ZONE, ZONE, BETA_ZONE, "kubernetes.io/hostname", BETA_REGION, "disk"))
_reach_term: Drawn[Manifest] = st.fixed_dictionaries(
    {
        "matchExpressions": st.lists(
            st.one_of(
                st.fixed_dictionaries(
                    {
                        "key": _zone_key,
                        "operator": st.sampled_from(("In", "In", "NotIn")),
                        "values": st.lists(st.sampled_from((*ZONES, *NODES, "us-a")), min_size=1, max_size=4),
                    }
                ),
                st.fixed_dictionaries({"key": _zone_key, "operator": st.sampled_from(("Exists", "DoesNotExist"))}),
            ),
            min_size=1,
            max_size=2,
        )
    }
)
_odd_term: Drawn[Manifest] = st.sampled_from(
    (
        {},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "Near", "values": ["n0"]}]},
        {"matchExpressions": [{"key": ZONE, "operator": "Near", "values": ["us-a-1"]}]},
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": []}]},
    )
)
_reach: Drawn[Any] = _mostly(
    st.fixed_dictionaries(
        {
            "required": st.fixed_dictionaries(
                {"nodeSelectorTerms": st.lists(_mostly(_reach_term, _odd_term, 8), min_size=1, max_size=2)}
            )
        }
    ),
    st.sampled_from(({}, {"required": {"nodeSelectorTerms": []}}, {"required": {}})),
    10,
)
_zone_text: Drawn[str] = _mostly(
    st.sampled_from((*ZONES, "us-a-1__us-a-2", "us-a-1__eu-b-1", "us-a-1__us-a-2__eu-b-1")),
    st.sampled_from(("", "us-a-1__", "__", "us-a-1 __us-a-2", "mars", "mars__venus")),
    5,
)
_region_text: Drawn[str] = _mostly(st.sampled_from(("us-a", "eu-b", "us-a__eu-b")), st.sampled_from(("", "us-a__")), 8)
#: Zone labels of today, of older versions, or of both.
_zone_labels: Drawn[dict[str, str]] = st.one_of(
    st.fixed_dictionaries({ZONE: _zone_text}),
    st.fixed_dictionaries({BETA_ZONE: _zone_text}),
    _objects(**{ZONE: _zone_text, BETA_ZONE: _zone_text, REGION: _region_text, BETA_REGION: _region_text}),
)
_handle: Drawn[str] = _mostly(st.sampled_from(("h0", "h1", "h2", "h3")), st.just(""), 12)
_source: Drawn[Manifest] = _mostly(
    st.fixed_dictionaries(
        {
            "csi": st.fixed_dictionaries(
                {"driver": st.sampled_from((DRIVER, DRIVER, "ebs.csi.aws.com")), "volumeHandle": _handle}
            )
        }
    ),
    st.one_of(
        st.fixed_dictionaries({"gcePersistentDisk": _gce}),
        st.fixed_dictionaries({"awsElasticBlockStore": st.fixed_dictionaries({"volumeID": _aws})}),
        _counted,
        st.sampled_from(({"hostPath": {"path": "/"}}, {"azureFile": {"shareName": "s"}}, {})),
    ),
    3,
)  # fmt: skip


def _volumes(aspects: frozenset[str]) -> Drawn[list[Manifest]]:
    fields: dict[str, Drawn[Any]] = {
        "source": _source,
        "labels": st.just({}),
        "spec": st.just({}),
        "metadata": st.just({}),
        "claim": st.none(),
        "phase": st.just("Bound"),
        "mode": st.just({}),
    }
    if aspects & {"VolumeZone", "VolumeBinding"}:
        fields["labels"] = st.tuples(_zone_labels, _volume_labels).map(lambda parts: {**parts[0], **parts[1]})
    if "VolumeBinding" in aspects:
        fields["spec"] = st.fixed_dictionaries(
            {"accessModes": st.lists(st.sampled_from(ACCESS), min_size=1, max_size=4)},
            optional={"nodeAffinity": _reach, "volumeAttributesClassName": _quality},
        )
        fields["mode"] = st.fixed_dictionaries({"volumeMode": _volume_mode})
        fields["phase"] = _mostly(st.just("Available"), st.sampled_from(("Bound", "Released", "")), 3)
        fields["claim"] = _mostly(st.none(), _objects(uid=st.sampled_from((*CLAIMS, ""))), 4)
        fields["metadata"] = _mostly(st.just({}), st.sampled_from(({"deletionTimestamp": "2026-01-01T00:00:00Z"},
                             {"annotations": {"volume.beta.kubernetes.io/storage-class": "late"}})), 10)  # fmt: skip
        fields["class"] = _mostly(st.just("late"), st.sampled_from(("now", "odd", "", None)), 4)

    def made(at: int, shift: int, drawn: Manifest) -> Manifest:
        spec = {**drawn["spec"], **drawn["source"], **drawn["mode"]}
        spec["capacity"] = {"storage": SIZES[(at + shift) % len(SIZES)]}
        spec["storageClassName"] = drawn.get("class", "late")
        if drawn["claim"] is not None:
            claim = {"namespace": "default", "name": CLAIMS[(at + 3 * shift) % len(CLAIMS)]}
            spec["claimRef"] = {**claim, **drawn["claim"]}
        metadata = {"name": VOLUMES[at], "labels": drawn["labels"], **drawn["metadata"]}
        return {"metadata": metadata, "spec": spec, "status": {"phase": drawn["phase"]}}

    each = _mostly(st.fixed_dictionaries(fields), st.none(), 12)
    listed = st.lists(each, min_size=len(CLAIMS), max_size=len(CLAIMS))
    return st.tuples(st.integers(0, len(SIZES) - 1), listed).map(
        lambda parts: [made(at, parts[0], drawn) for at, drawn in enumerate(parts[1]) if drawn is not None]
    )


# -- classes, drivers, nodes of drivers ------------------------------------------------------------------------------

_topology: Drawn[Any] = st.lists(
    st.fixed_dictionaries(
        {
            "matchLabelExpressions": st.lists(
                st.fixed_dictionaries(
                    {"key": st.sampled_from((ZONE, BETA_ZONE)), "values": st.lists(_zone, min_size=1, max_size=2)}
                ),
                max_size=2,
            )
        }
    ),
    max_size=2,
)
_odd_topology: Drawn[Any] = st.sampled_from(
    ([{"matchLabelExpressions": [{"key": "", "values": ["a"]}]}], [{"matchLabelExpressions": [{"key": ZONE}]}], [{}])
)


def _class(name: str) -> Drawn[Manifest]:
    modes: Drawn[Any] = st.just({"late": "WaitForFirstConsumer", "now": "Immediate"}.get(name))
    if name == "odd":
        modes = st.sampled_from((None, "", "WaitForFirstConsumer"))
    return st.fixed_dictionaries(
        {
            "metadata": st.just({"name": name}),
            "provisioner": _mostly(st.just(DRIVER), st.sampled_from(PROVISIONERS), 2),
            "volumeBindingMode": modes,
        },
        optional={"allowedTopologies": _mostly(_topology, _odd_topology, 6)},
    )


_classes: Drawn[list[Manifest]] = st.tuples(
    *(_mostly(_class(name), st.none(), 12) for name in ("late", "now", "odd"))
).map(lambda found: [each for each in found if each is not None])
_counts: Drawn[Manifest] = st.sampled_from((1, 0, 2, 3, -1)).map(lambda count: {"count": count})
_csi_node: Drawn[Any] = st.fixed_dictionaries(
    {
        "annotations": st.one_of(
            st.just({}),
            st.lists(st.sampled_from((*IN_TREE, "")), min_size=1, max_size=5).map(
                lambda names: {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(names)}
            ),
        ),
        "drivers": st.lists(
            st.fixed_dictionaries(
                {
                    "name": _mostly(st.just(DRIVER), st.sampled_from(DRIVERS), 2),
                    "nodeID": st.just("n"),
                    "allocatable": _mostly(_counts, st.sampled_from((None, {}))),
                }
            ),
            max_size=4,
        ),
    }
)
_attachments: Drawn[list[Manifest]] = st.lists(
    st.fixed_dictionaries(
        {
            "attacher": _mostly(st.sampled_from((DRIVER, "ebs.csi.aws.com")), st.just(""), 12),
            "nodeName": st.sampled_from((*NODES, "n9")),
            "source": _mostly(
                st.sampled_from((*VOLUMES, "v9")).map(lambda name: {"persistentVolumeName": name}), st.just({}), 12
            ),
        }
    ),
    max_size=4,
).map(lambda found: [{"metadata": {"name": f"a{at}"}, "spec": each} for at, each in enumerate(found)])
_csi_drivers: Drawn[list[Manifest]] = st.tuples(
    st.sampled_from((True, True, True, False, None)),
    st.sampled_from(((DRIVER,), (DRIVER, "ebs.csi.aws.com"), ())),
    st.sampled_from((None, False, True)),
).map(
    lambda drawn: [
        {"metadata": {"name": name}, "spec": {"storageCapacity": drawn[0], "preventPodSchedulingIfMissing": drawn[2]}}
        for name in drawn[1]
    ]
)
_capacities: Drawn[list[Manifest]] = st.lists(
    st.fixed_dictionaries(
        {"storageClassName": _mostly(st.just("late"), st.sampled_from(("now", "")), 5)},
        optional={
            "capacity": st.sampled_from(SIZES),
            "maximumVolumeSize": st.sampled_from(SIZES),
            "nodeTopology": _mostly(
                st.one_of(st.just({}), st.fixed_dictionaries({"matchLabels": st.fixed_dictionaries({ZONE: _zone})})),
                st.just({"matchExpressions": [{"key": ZONE, "operator": "Near"}]}),
                8,
            ),
        },
    ),
    max_size=3,
).map(lambda found: [{"metadata": {"name": f"q{at}", "namespace": "default"}, **each} for at, each in enumerate(found)])


@st.composite
def storage(
    draw: st.DrawFn, aspects: frozenset[str], nodes: list[Manifest], pods: list[Manifest]
) -> dict[str, list[Manifest]]:
    """Storage objects for a cluster: the claims that its pods name, less a few, and what belongs to them."""
    named = {}
    for pod in pods:
        for volume in pod["spec"].get("volumes", ()):
            if "persistentVolumeClaim" in volume:
                named[pod["metadata"]["namespace"], volume["persistentVolumeClaim"]["claimName"]] = None
            elif "ephemeral" in volume:
                named[pod["metadata"]["namespace"], f"{pod['metadata']['name']}-{volume['name']}"] = None
    claims = []
    for namespace, name in named:
        drawn = draw(_mostly(_claim_fields, st.none(), 40))
        if drawn is not None and name:
            claims.append(_claim_object(namespace, name, drawn))
    found: dict[str, list[Manifest]] = {
        "persistentVolumeClaims": claims,
        "persistentVolumes": draw(_volumes(aspects)),
        "storageClasses": draw(_classes),
    }
    if aspects & {"NodeVolumeLimits", "VolumeBinding"}:
        found["csiNodes"] = []
        for node in nodes:
            drawn = draw(_mostly(_csi_node, st.none(), 6))
            if drawn is not None:
                metadata = {"name": node["metadata"]["name"], "annotations": drawn["annotations"]}
                found["csiNodes"].append({"metadata": metadata, "spec": {"drivers": drawn["drivers"]}})
    if "NodeVolumeLimits" in aspects:
        found["volumeAttachments"] = draw(_attachments)
    if aspects & {"NodeVolumeLimits", "VolumeBinding"}:
        found["csiDrivers"] = draw(_csi_drivers)
    if "VolumeBinding" in aspects:
        found["csiStorageCapacities"] = draw(_capacities)
    return {kind: objects for kind, objects in found.items() if objects}
