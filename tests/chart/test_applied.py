"""The chart on the real API server: every object that it can render, install, upgrade and uninstall.

Nothing runs the pods here. cert-manager and Prometheus Operator are not there: their kinds are stood for by CRDs that
keep every field, so of those objects only the envelope is checked by the server.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from support.helm import NAMESPACE, Helm, Manifest, pod_templates
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.api import APPLY_PATCH
from thalweg_controlplane.objects import collection_path, object_path

pytestmark = pytest.mark.asyncio(loop_scope="module")

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/flowschedulingpolicies.scheduling.thalweg"
POLICIES = "/apis/scheduling.thalweg/v1alpha1/flowschedulingpolicies"
#: Kinds of others that the chart makes objects of.
FOREIGN = {
    "cert-manager.io/v1": ("Certificate", "Issuer"),
    "monitoring.coreos.com/v1": ("PodMonitor", "ServiceMonitor", "PrometheusRule"),
}
POLICY = {
    "apiVersion": "scheduling.thalweg/v1alpha1",
    "kind": "FlowSchedulingPolicy",
    "metadata": {"name": "kept"},
    "spec": {"delivery": "Observe"},
}

MODES = ({"mode": "Binder"}, {"mode": "Extender"}, {"mode": "SecondScheduler"})
SOURCES: tuple[dict[str, Any], ...] = (
    {},
    {"certificates.source": "CertManager"},
    {"certificates.source": "CertManager", "certificates.certManager.issuerRef.name": "theirs"},
    {"certificates.source": "Secret", "certificates.secret": {"server": "s", "client": "c"}},
)
MONITORING: tuple[dict[str, Any], ...] = (
    {},
    {"monitoring.podMonitor.enabled": True, "monitoring.prometheusRule.enabled": True},
    {"monitoring.serviceMonitor.enabled": True, "monitoring.dashboard.enabled": True},
)
SIZES: tuple[dict[str, Any], ...] = (
    {},
    {
        "replicas": 1,
        "strategy.type": "Recreate",
        "podDisruptionBudget.enabled": False,
        "topologySpread": False,
        "priorityClassName": "",
        "networkPolicy.egress.restrict": True,
        "networkPolicy.metricsFrom": [{"namespaceSelector": {}}],
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "extender.service.clusterIP": "10.96.7.7",
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "podAnnotations": {"a": "b"},
    },
)
RIGHTS: tuple[dict[str, Any], ...] = (
    {"crds.keep": True},
    {"rights.create": False, "rights.policyRoles": False, "crds.install": False},
)


def foreign_crds() -> list[Manifest]:
    """CRDs for the kinds of others, without a schema."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crds = []
    for api_version, kinds in FOREIGN.items():
        group, version = api_version.split("/")
        for kind in kinds:
            names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower(), "listKind": f"{kind}List"}
            served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
            crds.append(
                {
                    "apiVersion": "apiextensions.k8s.io/v1",
                    "kind": "CustomResourceDefinition",
                    "metadata": {"name": f"{names['plural']}.{group}"},
                    "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
                }
            )
    return crds


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def namespace(plane: tuple[ControlPlane, Api]) -> AsyncIterator[str]:
    """The release's namespace, which allows restricted pods only, with the kinds of others served."""
    _, api = plane
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
    for each in foreign_crds():
        await api.create(each)
    for api_version, kinds in FOREIGN.items():
        for kind in kinds:
            await api.wait_for(f"/apis/{api_version}/{kind.lower()}s", lambda _: True)
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    await api.wait_for(path, lambda _: True)
    return NAMESPACE


def matrix() -> Iterator[tuple[dict[str, Any], ...]]:
    """Choices of mode, certificates, monitoring, sizes and rights. Any two of different kinds occur together."""
    for mode, source, rights in itertools.product(range(3), range(4), range(2)):
        monitoring, size = (mode + source) % 3, (mode + source + rights) % 2
        yield MODES[mode], SOURCES[source], MONITORING[monitoring], SIZES[size], RIGHTS[rights]


def test_the_matrix_has_all_pairs() -> None:
    """What the next test renders: each choice with each choice of another kind."""
    kinds = (MODES, SOURCES, MONITORING, SIZES, RIGHTS)
    for first, second in itertools.combinations(range(len(kinds)), 2):
        pairs = {(key(each[first]), key(each[second])) for each in matrix()}
        assert len(pairs) == len(kinds[first]) * len(kinds[second])


def key(manifest: Manifest) -> str:
    return json.dumps(manifest, sort_keys=True)


async def test_the_api_server_takes_every_object(helm: Helm, plane: tuple[ControlPlane, Api], namespace: str) -> None:
    """Over a matrix of values, each different object passes server-side apply with strict checks of its fields."""
    _, api = plane
    objects: dict[str, Manifest] = {}
    pods: dict[str, Manifest] = {}
    for parts in matrix():
        values = {name: value for part in parts for name, value in part.items()}
        rendered = await asyncio.to_thread(helm.template, values)
        names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in rendered]
        assert len(set(names)) == len(names), values
        objects |= {key(each): each for each in rendered}
        pods |= {key(each): each for each in pod_templates(rendered)}
    assert len(objects) > 60
    params = {"dryRun": "All", "fieldManager": "test", "force": "true", "fieldValidation": "Strict"}
    for each in objects.values():
        await api.request("PATCH", object_path(each), each, params=params, content_type=APPLY_PATCH)
    # Accounts must be there for pods to be admitted.
    for name in {pod["spec"].get("serviceAccountName", "default") for pod in pods.values()} - {"default"}:
        await api.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        )
    for number, each in enumerate(pods.values()):
        metadata = {**each["metadata"], "name": f"p{number}", "namespace": namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": each["spec"]}
        await api.request("POST", collection_path(pod), pod, params={"dryRun": "All", "fieldValidation": "Strict"})
    await api.delete(f"/api/v1/namespaces/{namespace}/serviceaccounts", labelSelector="!never")


async def test_the_namespace_is_restricted(plane: tuple[ControlPlane, Api], namespace: str) -> None:
    """The check before means something: a pod without the restricted security context is refused there."""
    _, api = plane
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "default"},
    }
    with pytest.raises(ApiError, match=r'violates PodSecurity "restricted'):
        await api.request("POST", collection_path(pod), pod, params={"dryRun": "All"})
