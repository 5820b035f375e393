"""The fields of a Pod object that scheduling reads."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from flowcore.api.base import Int32, Quantities, Wire, WireMeta
from flowcore.api.gangs import WireGangAnnotations, WireSchedulingGroup
from flowcore.api.named_claims import WireNamedClaim
from flowcore.api.selectors import WireLabelSelector, WireNodeSelector, WireNodeSelectorTerm
from flowcore.api.volumes import WireVolume
from flowcore.model.data import DATA
from flowcore.model.numa import NUMA
from flowcore.model.policies import (
    CHECKPOINTED_AT,
    DO_NOT_DISRUPT,
    DURING_EXECUTION,
    EVICTABLE,
    PLANNED,
    REPLACES,
    SAFE_TO_EVICT,
)
from flowcore.model.shared_gpus import KAI_FRACTION, KAI_MEMORY


class WirePreferredTerm(Wire):
    weight: Int32 = 0
    preference: WireNodeSelectorTerm | None = None


class WireNodeAffinity(Wire):
    required: WireNodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WirePreferredTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class WirePodAffinityTerm(Wire):
    topology_key: str = ""
    label_selector: WireLabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: WireLabelSelector | None = None


class WirePreferredPodAffinityTerm(Wire):
    weight: Int32 = 0
    pod_affinity_term: WirePodAffinityTerm | None = None


class WirePodAffinity(Wire):
    required: list[WirePodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WirePreferredPodAffinityTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class WireAffinity(Wire):
    node_affinity: WireNodeAffinity | None = None
    pod_affinity: WirePodAffinity | None = None
    pod_anti_affinity: WirePodAffinity | None = None


class WireToleration(Wire):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class WireResources(Wire):
    requests: Quantities | None = None
    limits: Quantities | None = None


class WirePort(Wire):
    host_port: Int32 | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class WireContainer(Wire):
    name: str = ""
    image: str | None = None
    resources: WireResources | None = None
    ports: list[WirePort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[WireRestartRule] | None = None


class WireRestartRule(Wire):
    action: str = ""


class WireGate(Wire):
    name: str = ""


class WireSpread(Wire):
    topology_key: str = ""
    when_unsatisfiable: str = ""
    max_skew: Int32 = 0
    min_domains: Int32 | None = None
    label_selector: WireLabelSelector | None = None
    match_label_keys: list[str] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class WirePodSpec(Wire):
    containers: list[WireContainer] | None = None
    init_containers: list[WireContainer] | None = None
    resources: WireResources | None = None
    overhead: Quantities | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: WireAffinity | None = None
    tolerations: list[WireToleration] | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    restart_policy: str | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[WireGate] | None = None
    resource_claims: list[WireNamedClaim] | None = None
    volumes: list[WireVolume] | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    topology_spread_constraints: list[WireSpread] | None = None
    scheduling_group: WireSchedulingGroup | None = None


class WireCondition(Wire):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None
    observed_generation: int | None = None


class WireContainerStatus(Wire):
    name: str = ""
    resources: WireResources | None = None
    allocated_resources: Quantities | None = None


class WireMadeClaim(Wire):
    name: str = ""
    resource_claim_name: str | None = None


class WireExtendedClaim(Wire):
    """The claim that was made for the extended resources of a pod."""

    resource_claim_name: str = ""


class WirePodStatus(Wire):
    phase: str | None = None
    start_time: datetime | None = None
    nominated_node_name: str | None = None
    conditions: list[WireCondition] | None = None
    container_statuses: list[WireContainerStatus] | None = None
    init_container_statuses: list[WireContainerStatus] | None = None
    resources: WireResources | None = None
    allocated_resources: Quantities | None = None
    qos_class: str | None = None
    resource_claim_statuses: list[WireMadeClaim] | None = None
    extended_resource_claim_status: WireExtendedClaim | None = None


class WirePodAnnotations(WireGangAnnotations):
    """The annotations that we read. Others are often long and many."""

    planned: str | None = msgspec.field(default=None, name=PLANNED)
    replaces: str | None = msgspec.field(default=None, name=REPLACES)
    evictable: str | None = msgspec.field(default=None, name=EVICTABLE)
    safe_to_evict: Any = msgspec.field(default=None, name=SAFE_TO_EVICT)
    do_not_disrupt: Any = msgspec.field(default=None, name=DO_NOT_DISRUPT)
    during_execution: str | None = msgspec.field(default=None, name=DURING_EXECUTION)
    checkpointed_at: str | None = msgspec.field(default=None, name=CHECKPOINTED_AT)
    mirror: str | None = msgspec.field(default=None, name="kubernetes.io/config.mirror")
    data: str | None = msgspec.field(default=None, name=DATA)
    numa: str | None = msgspec.field(default=None, name=NUMA)
    # Of others: a value of any shape must not make the pod unreadable.
    gpu_fraction: Any = msgspec.field(default=None, name=KAI_FRACTION)
    gpu_memory: Any = msgspec.field(default=None, name=KAI_MEMORY)


class WireOwner(Wire):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class WirePodMeta(WireMeta):
    generation: int | None = None
    owner_references: list[WireOwner] | None = None
    annotations: WirePodAnnotations | None = None


class WirePod(Wire):
    metadata: WirePodMeta
    spec: WirePodSpec
    status: WirePodStatus | None = None
