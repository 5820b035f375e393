"""What ``thalweg up`` installs: CRDs, the rights of the operator's account, and an account that may look."""

from __future__ import annotations

from typing import Any, Final

import yaml

from flowcore.model.kubernetes_version import KubernetesVersion
from thalweg.crds import custom_resource_definitions, rights_by_file
from thalweg.option_types import NamespacedName

#: The accounts of the operator and of who looks at the page.
OPERATOR: Final = NamespacedName("thalweg-system", "thalweg")
VIEWER: Final = NamespacedName("thalweg-system", "thalweg-viewer")

#: Kinds by which the API server gates pods (rights/gates.yaml).
_GATE_KINDS: Final = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")

#: As the chart makes it: who has its token sees what the view shows.
_VIEWER: Final = """\
apiVersion: v1
kind: ServiceAccount
metadata: {name: thalweg-viewer, namespace: thalweg-system}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: thalweg-viewer}
rules:
  - apiGroups: [""]
    resources: [pods, nodes]
    verbs: [list]
  - apiGroups: [scheduling.thalweg]
    resources: [flowschedulingpolicies, flowqueues]
    verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: thalweg-viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: thalweg-viewer}
subjects:
  - {kind: ServiceAccount, name: thalweg-viewer, namespace: thalweg-system}
"""


def up_objects(scheduler_config: str, kubernetes_version: str) -> list[dict[str, Any]]:
    """All objects, in an order in which they can be applied.

    Args:
        scheduler_config: kube-scheduler's configuration. It is stored as the chart stores it, so that `thalweg doctor`
            finds it.
        kubernetes_version: such as 1.36.
    """
    # An operator makes its own Lease, and takes it at once: an existing one may belong to another.
    unwanted = ["Lease", *(() if KubernetesVersion(kubernetes_version).has_mutating_policies else _GATE_KINDS)]
    rights = [each for file in rights_by_file().values() for each in file if each["kind"] not in unwanted]
    return [*custom_resource_definitions(), *rights, *yaml.safe_load_all(_VIEWER), _stored(scheduler_config)]


def _stored(scheduler_config: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "thalweg-scheduler-config", "namespace": OPERATOR.namespace},
        "stringData": {"scheduler.yaml": scheduler_config},
    }
