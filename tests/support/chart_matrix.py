"""Choices of the chart's values that are tried together, and the kinds of others that they make objects of."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from support.helm import Manifest

#: Kinds of others that the chart makes objects of.
FOREIGN = {
    "cert-manager.io/v1": ("Certificate", "Issuer"),
    "monitoring.coreos.com/v1": ("PodMonitor", "ServiceMonitor", "PrometheusRule"),
}
MODES = ({"mode": "Binder"}, {"mode": "Extender"}, {"mode": "Observe"}, {"mode": "SecondScheduler"})
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
        "priorityClass.create": False,
        "networkPolicy.egress.restrict": True,
        "networkPolicy.metricsFrom": [{"namespaceSelector": {}}],
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "extender.service.clusterIP": "10.96.7.7",
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "podAnnotations": {"a": "b"},
        "openshift": True,
        "view.tlsSecret": "view-tls",
        "networkPolicy.viewFrom": [{"namespaceSelector": {}}],
    },
)
RIGHTS: tuple[dict[str, Any], ...] = (
    {"crds.keep": False},
    {"rights.create": False, "rights.policyRoles": False, "crds.install": False, "view.viewer": False},
)


#: All kinds of choices.
KINDS = (MODES, SOURCES, MONITORING, SIZES, RIGHTS)


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


def matrix() -> Iterator[tuple[dict[str, Any], ...]]:
    """Choices of mode, certificates, monitoring, sizes and rights. Any two of different kinds occur together."""
    for mode, source, rights in itertools.product(range(4), range(4), range(2)):
        monitoring, size = (mode + source) % 3, (mode + source + rights) % 2
        yield MODES[mode], SOURCES[source], MONITORING[monitoring], SIZES[size], RIGHTS[rights]


def key(manifest: Manifest) -> str:
    return json.dumps(manifest, sort_keys=True)
