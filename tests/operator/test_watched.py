"""Which kinds the operator watches, and where."""

from typing import Any, cast

import pytest
import yaml
from support.fake_api import ScriptedApi
from support.repository import ROOT
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.watches.watched import OPTIONAL_KINDS, make_reflectors
from thalweg_operator.metrics import Metrics
from thalweg_operator.shell import Shell

from flowcore.api.kinds import KINDS, PARENTS, POLICY, VOLCANO_JOB
from flowcore.cluster.cluster import Cluster

STORAGE = "/apis/storage.k8s.io/v1"


def test_every_kind_is_watched_at_its_path() -> None:
    """By name: the paths, the newest version first, and whether a cluster may do without the kind."""
    metrics = Metrics()
    cluster = Cluster()
    shell = cast("Any", type("ShellOfNothing", (), {"cluster": cluster, "apply": lambda *_: None})())
    reflectors = make_reflectors(cast("Shell", shell), cast("ApiClient", ScriptedApi()), metrics, BadInput(metrics))
    found = {name: (*each._paths, each._may_be_absent) for name, each in reflectors.items()}
    groups = "/apis/scheduling.k8s.io"
    assert found == {
        "nodes": ("/api/v1/nodes", False),
        "pods": ("/api/v1/pods", False),
        "namespaces": ("/api/v1/namespaces", False),
        "services": ("/api/v1/services", False),
        **{
            name: (f"/apis/resource.k8s.io/v1/{name}", True)
            for name in ("deviceclasses", "resourceslices", "resourceclaims")
        },
        "devicetaintrules": (
            *(f"/apis/resource.k8s.io/{version}/devicetaintrules" for version in ("v1", "v1beta2", "v1alpha3")),
            True,
        ),
        "noderesourcetopologies": (
            *(f"/apis/topology.node.k8s.io/{version}/noderesourcetopologies" for version in ("v1alpha2", "v1alpha1")),
            True,
        ),
        "hypernodes": ("/apis/topology.volcano.sh/v1alpha1/hypernodes", True),
        "flowqueues": ("/apis/scheduling.thalweg/v1alpha1/flowqueues", True),
        "poddisruptionbudgets": ("/apis/policy/v1/poddisruptionbudgets", True),
        "persistentvolumes": ("/api/v1/persistentvolumes", False),
        "persistentvolumeclaims": ("/api/v1/persistentvolumeclaims", False),
        **{
            name: (f"{STORAGE}/{name}", True)
            for name in ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments")
        },
        "podgroups.scheduling.k8s.io": (
            *(f"{groups}/{version}/podgroups" for version in ("v1beta1", "v1alpha3", "v1alpha2")),
            True,
        ),
        "podgroups.scheduling.x-k8s.io": ("/apis/scheduling.x-k8s.io/v1alpha1/podgroups", True),
        "podgroups.scheduling.volcano.sh": ("/apis/scheduling.volcano.sh/v1beta1/podgroups", True),
    }
    assert found.keys() >= OPTIONAL_KINDS
    assert len(found) == len(KINDS) - 1, f"all kinds but {POLICY.kind}, which kopf watches"


@pytest.mark.parametrize("observes", [False, True])
def test_the_roles_let_the_operator_watch_every_kind(observes: bool) -> None:  # noqa: FBT001
    """And list it; an operator that only observes by one file, the others by all others."""
    allowed = {
        (group, plural)
        for path in (ROOT / "rights").glob("*.yaml")
        if (path.stem == "observe") is observes
        for manifest in yaml.safe_load_all(path.read_text())
        if manifest["kind"] == "ClusterRole"
        for rule in manifest["rules"]
        for group in rule.get("apiGroups", ())
        for plural in rule["resources"]
        if {"list", "watch"} <= set(rule["verbs"])
    }
    assert {(kind.group, kind.plural) for kind in (*KINDS, *PARENTS, VOLCANO_JOB)} <= allowed
