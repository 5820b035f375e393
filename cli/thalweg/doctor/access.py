"""The rights of the operator's service account, from the roles in rights/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from thalweg.crds import rights_by_file
from thalweg.option_types import NamespacedName

#: Files of rights without which no operator works; the others belong to features.
REQUIRED = ("base", "lease")
#: Files of features that may be off: an account that has none of such a file's rights does without the feature.
#: Those of delivery Extender are missed where a policy has it.
MAY_BE_OFF = ("view", "view-endpoints")
OF_EXTENDER = ("extender", "gates")
#: Files of rights of an operator that only observes; it needs no other.
OF_OBSERVERS = ("observe", "lease", "view")
#: Verbs that change nothing.
_READS = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class Right:
    """One action that the service account should be allowed.

    Attributes:
        file: file in rights/ that grants it, without its suffix.
        resource: with its subresource, such as pods/binding; "" for a URL.
        name: the only object that it is about; "" for all.
        namespace: "" for all.
        url: a path that is no resource; "" for a resource.
    """

    file: str
    verb: str
    group: str = ""
    resource: str = ""
    name: str = ""
    namespace: str = ""
    url: str = ""

    def __str__(self) -> str:
        of_group = f".{self.group}" if self.group else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {self.url or self.resource + of_group}{named}{where}"

    @property
    def writes(self) -> bool:
        """Whether it lets an account change what is stored; a review is answered, and not stored."""
        return self.verb not in _READS and not self.resource.endswith("reviews")

    def review(self, user: str) -> dict[str, Any]:
        """The SubjectAccessReview of this right for a user."""
        if self.url:
            spec = {"nonResourceAttributes": {"path": self.url, "verb": self.verb}}
        else:
            resource, _, subresource = self.resource.partition("/")
            attributes = {
                "verb": self.verb,
                "group": self.group,
                "resource": resource,
                "subresource": subresource,
                "name": self.name,
                "namespace": self.namespace,
            }
            spec = {"resourceAttributes": attributes}
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}", "system:authenticated"]
        return {**kind, "spec": {"user": user, "groups": groups, **spec}}


def user_of(service_account: NamespacedName) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{service_account.namespace}:{service_account.name}"


def release_of(account: NamespacedName, lease: NamespacedName) -> str:
    """What the names of the operator's objects begin with.

    The chart names them after the release, and puts the Lease beside the account. rights/lease.yaml has it elsewhere.
    """
    return lease.name if lease.namespace == account.namespace else account.name


def wanted_rights(service_account: NamespacedName, lease: NamespacedName) -> tuple[Right, ...]:
    """The rights that the roles in rights/ grant.

    Args:
        service_account: the operator's, in place of the manifests' own.
        lease: the operator's, in place of the manifests' own.
    """
    return tuple(
        right
        for file, manifests in rights_by_file().items()
        for manifest in manifests
        if manifest["kind"] in ("ClusterRole", "Role")
        for rule in manifest["rules"]
        for right in _rights(file, rule, "namespace" in manifest["metadata"], service_account, lease)
    )


def _rights(
    file: str,
    rule: Mapping[str, Any],
    namespaced: bool,  # noqa: FBT001
    service_account: NamespacedName,
    lease: NamespacedName,
) -> Iterator[Right]:
    for verb in rule["verbs"]:
        for url in rule.get("nonResourceURLs", ()):
            yield Right(file, verb, url=url)
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", ("",)):
                    if resource == "leases":
                        yield Right(file, verb, group, resource, lease.name, lease.namespace)
                    elif resource == "configmaps":  # beside the Lease, and named after it
                        yield Right(file, verb, group, resource, f"{lease.name}-usage", lease.namespace)
                    elif namespaced:
                        own = name.replace("thalweg", release_of(service_account, lease), 1)
                        yield Right(file, verb, group, resource, own, service_account.namespace)
                    else:
                        yield Right(file, verb, group, resource, name)
