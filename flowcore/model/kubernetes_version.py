"""The API server's version, and what kube-scheduler of that version reads of objects.

Objects are read as the newest known version does. What an older one does not read is taken away here, before anything
else sees it: so every rule knows one kind of object, and none asks for the version.

Source: kubernetes pkg/features (versioned defaults), and what differs between the versions of `KNOWN` in kube-scheduler
plugins/nodedeclaredfeatures, plugins/nodevolumelimits (csi.go), plugins/imagelocality, plugins/interpodaffinity
(plugin.go, mergeAffinityTermNamespacesIfNotEmpty), component-helpers resource (helpers.go, AggregateContainerRequests)
and dynamic-resource-allocation resourceslice/tracker (tracker.go, applyPatches).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from flowcore.model.device_taint_rules import DeviceTaintRule
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, WeightedTerm
from flowcore.model.pods import Pod
from flowcore.model.volumes import CsiDriver, StorageClass, StorageObject

#: Versions of Kubernetes, 1.N, whose rules are known. The tests run on them.
KNOWN: Final = (35, 36, 37)
#: The first version, 1.N, in which, unless a gate says otherwise: nodes declare features (NodeDeclaredFeatures), the
#: API server serves MutatingAdmissionPolicy v1, nodes must have drivers (VolumeLimitScaling), what a resized pod takes
#: is added up before it is compared, a namespaceSelector is not asked about a namespace without labels, a
#: DeviceTaintRule without a selector taints no device, ImageLocality counts image volumes as it does containers, and
#: nodes with more free storage come first (StorageCapacityScoring).
_DECLARED_FEATURES: Final = 36
_MUTATING_POLICIES: Final = 36
_NEEDED_DRIVERS: Final = 37
_SUMMED_RESIZES: Final = 37
_EXACT_NAMESPACES: Final = 37
_SELECTING_RULES: Final = 37
_COUNTED_VOLUMES: Final = 37
_SCORED_STORAGE: Final = 37

_VERSION = re.compile(r"v?1\.(\d+)")


class KubernetesVersion(msgspec.Struct, frozen=True):
    """A version. One that cannot be read has the rules of the newest known.

    Attributes:
        text: as the API server says it, such as v1.36.3; "": it does not say it.
    """

    text: str = ""

    @property
    def minor(self) -> int | None:
        """36 of v1.36.3; None: it is not of Kubernetes 1."""
        match = _VERSION.match(self.text)
        return None if match is None else int(match[1])

    @property
    def rules(self) -> int:
        """The known version whose rules hold: the nearest."""
        minor = self.minor
        return KNOWN[-1] if minor is None else min(max(minor, KNOWN[0]), KNOWN[-1])

    @property
    def is_known(self) -> bool:
        """Whether the rules are its own."""
        return self.minor == self.rules

    @property
    def has_mutating_policies(self) -> bool:
        """Whether the API server serves MutatingAdmissionPolicy v1 (rights/gates.yaml), so that it can gate pods."""
        minor = self.minor
        return minor is None or minor >= _MUTATING_POLICIES

    def as_scheduled(self, pod: Pod) -> Pod:
        """A pod as kube-scheduler of this version reads it."""
        pod_class = pod.pod_class
        reads_more = pod_class.features or pod_class.image_volumes
        if not reads_more and pod.usage_by_container is None and pod.constraints is None:
            return pod  # as nearly all: to read the version takes longer
        rules = self.rules
        if rules < _DECLARED_FEATURES and pod.pod_class.features:
            pod = msgspec.structs.replace(pod, pod_class=msgspec.structs.replace(pod.pod_class, features=()))
        if rules < _COUNTED_VOLUMES and pod.pod_class.image_volumes:
            pod = msgspec.structs.replace(pod, pod_class=msgspec.structs.replace(pod.pod_class, image_volumes=0))
        if rules < _SUMMED_RESIZES and pod.usage_by_container is not None:
            pod = msgspec.structs.replace(pod, usage=pod.usage_by_container)
        if rules < _EXACT_NAMESPACES and pod.constraints is not None:
            pod = _with_inexact_namespaces(pod, pod.constraints)
        return pod

    def as_stored(self, stored: StorageObject) -> StorageObject:
        """A storage object as kube-scheduler of this version reads it."""
        if self.rules < _NEEDED_DRIVERS and isinstance(stored, CsiDriver) and stored.is_needed:
            return msgspec.structs.replace(stored, is_needed=False)
        if self.rules < _SCORED_STORAGE and isinstance(stored, StorageClass):
            return msgspec.structs.replace(stored, is_scored=False)
        return stored

    def as_tainting(self, rule: DeviceTaintRule) -> DeviceTaintRule:
        """A DeviceTaintRule as kube-scheduler of this version reads it."""
        return rule if self.rules >= _SELECTING_RULES else msgspec.structs.replace(rule, selects=True)


def _with_inexact_namespaces(pod: Pod, constraints: InterPodConstraints) -> Pod:
    terms: dict[str, tuple[AffinityTerm | WeightedTerm, ...]] = {
        name: tuple(map(_inexact, getattr(constraints, name)))
        for name in ("affinity", "anti_affinity")
        if any(map(_is_open, getattr(constraints, name)))
    }
    if any(_is_open(weighted.term) for weighted in constraints.preferred):
        terms["preferred"] = tuple(
            msgspec.structs.replace(weighted, term=_inexact(weighted.term)) for weighted in constraints.preferred
        )
    return msgspec.structs.replace(pod, constraints=msgspec.structs.replace(constraints, **terms)) if terms else pod


def _inexact(term: AffinityTerm) -> AffinityTerm:
    return msgspec.structs.replace(term, accepts_every_namespace=True) if _is_open(term) else term


def _is_open(term: AffinityTerm) -> bool:
    """Whether the selector of namespaces accepts one without labels, though it does not accept all."""
    selector = term.namespace_selector
    return selector is not None and bool(selector.requirements) and selector.matches(())
