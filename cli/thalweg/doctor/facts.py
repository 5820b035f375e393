"""Facts about a cluster, as the checks judge them. Fields of Kubernetes objects that no check reads are not decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from thalweg.doctor.access import Right
from thalweg.doctor.extender_probe import ProbeAnswer
from thalweg.doctor.scheduler_file import SchedulerFile
from thalweg.doctor.view_probe import ViewAnswer
from thalweg.option_types import NamespacedName
from thalweg.wire_objects import Condition, Meta, Pod


@dataclass(frozen=True, slots=True)
class NotRead:
    """Stands for a fact that could not be read; ``problem`` says why."""

    problem: str


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Spec of a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: datetime | None = None


class Lease(msgspec.Struct, frozen=True):
    """A Lease."""

    metadata: Meta
    spec: LeaseSpec = LeaseSpec()

    @property
    def name(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class NewPodRule(msgspec.Struct, frozen=True):
    """What it is told about pods of one policy."""

    marked: bool = False


class NewPodRules(msgspec.Struct, frozen=True):
    """What the API server is told about new pods."""

    heartbeat: datetime | None = None
    order: tuple[NewPodRule, ...] = ()


class PolicyStatusFields(msgspec.Struct, frozen=True, rename="camel"):
    """Status of a FlowSchedulingPolicy."""

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class PolicyObject(msgspec.Struct, frozen=True):
    """A FlowSchedulingPolicy."""

    metadata: Meta
    spec: dict[str, Any] = {}
    status: PolicyStatusFields = PolicyStatusFields()


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Since when and until when a certificate is valid that kube-scheduler shows to the extender.

    Attributes:
        source: where it was read.
    """

    source: str
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class SchedulerFacts:
    """A KubeSchedulerConfiguration and the answers of its extenders.

    Attributes:
        source: where the configuration comes from.
        chosen: whether the user named it; otherwise it is the one that the chart stored.
        answers: answer to a request for each extender of the configuration that is Thalweg's.
    """

    source: str
    chosen: bool
    config: SchedulerFile
    answers: tuple[ProbeAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts. ``NotRead`` stands for what could not be read.

    Attributes:
        server_time: the API server's clock, from its Date header (whole seconds).
        local_time: this machine's clock when the header arrived.
        server_version: such as v1.36.3.
        cli_version: version of this program.
        service_account: the operator's.
        lease: the lease to check; None for any.
        confinement: the admission policy that confines the account, and its binding; None for what is not there.
        expected_confinement: the same of this version.
        crds: the CustomResourceDefinitions; None for what is not installed.
        expected_crds: the same of this version.
        denied, granted: rights of the roles in rights/ that the service account lacks, and those that it has.
        leases: leases of Thalweg.
        still_renewed: names of leases whose renewal was seen during the check; None if no lease was watched.
        operator_pods: running pods of the operator.
        second_scheduler_pods: running pods of the kube-scheduler that the chart may start.
        new_pod_rules: what the operator tells the API server; None: the object is missing.
        missing_gate_objects: kinds of the admission policy's objects that are not installed.
        scheduler: None without a configuration.
        client_certificates: those that kube-scheduler shows to the extender, as far as they can be read.
        scheduler_features: kube-scheduler's feature gates; None: the caller did not say where to read them.
        pod_group_versions: versions of the API group scheduling.k8s.io that serve PodGroups.
        hyper_node_problems: what of Volcano's HyperNodes does not count; None: there are none.
        view: what the operator's view answers; None: no Service leads to one.
    """

    server_time: datetime
    local_time: datetime
    server_version: str
    cli_version: str
    service_account: NamespacedName
    lease: NamespacedName | None
    confinement: tuple[Mapping[str, Any] | None, ...] | NotRead
    expected_confinement: tuple[Mapping[str, Any], ...]
    crds: tuple[Mapping[str, Any] | None, ...] | NotRead
    expected_crds: tuple[Mapping[str, Any], ...]
    denied: tuple[Right, ...] | NotRead
    leases: tuple[Lease, ...] | NotRead
    still_renewed: frozenset[str] | None
    operator_pods: tuple[Pod, ...] | NotRead
    second_scheduler_pods: tuple[Pod, ...] | NotRead
    pods: tuple[Pod, ...] | NotRead
    namespaces: Mapping[str, dict[str, str]] | NotRead
    policies: tuple[PolicyObject, ...] | NotRead
    new_pod_rules: NewPodRules | NotRead | None
    missing_gate_objects: tuple[str, ...] | NotRead
    node_count: int | NotRead
    scheduler: SchedulerFacts | NotRead | None
    client_certificates: tuple[ClientCertificate, ...]
    scheduler_features: Mapping[str, bool] | NotRead | None
    pod_group_versions: tuple[str, ...] | NotRead
    hyper_node_problems: tuple[str, ...] | NotRead | None
    view: ViewAnswer | NotRead | None
    granted: tuple[Right, ...] | NotRead = ()
