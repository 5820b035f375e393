"""Sources of gangs that need no annotation, a row each: the kind, how its pods name it, how it says its size.

The name of a pod's controller tells whether a pod that names a parent is the parent's: no two objects of a kind have
the same name, so nobody can make a pod that counts for the gang of somebody else. Where the parent is itself the
controller, its uid is compared too (``flowcore.cluster.gang_specs.parent_resolution``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import msgspec

from flowcore.api import parent_sizes
from flowcore.api.kinds import (
    JOB,
    JOB_SET,
    KUBEFLOW,
    LEADER_WORKER_SET,
    MPI_JOB,
    PARENTS,
    POD_GANG,
    POLICY,
    RAY_CLUSTER,
    ObjectKind,
)
from flowcore.api.parent_rules import WireParentRule, parse_parent_rules
from flowcore.model.errors import ModelError, PolicyError
from flowcore.model.gang_parents import GangController, GangParent, ParentKey, ParentRule
from flowcore.model.gang_spec import GangKey, GangSource
from flowcore.model.pods import Pod
from flowcore.model.policies import GangPolicy
from flowcore.model.selectors import value_of

#: Name of a pod's parent and the part of it that the pod is in; None: it names none.
NamedParent = tuple[str, str] | None
#: The part of a Job where only Indexed ones are gangs; "" is that of any Job.
INDEXED: Final = "Indexed"
_LEADER_WORKER_LABELS: Final = (
    "leaderworkerset.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
)
_KUBEFLOW_NAME: Final = "training.kubeflow.org/job-name"
_MAX_SHOWN: Final = 200
#: Rows of policies that are remembered: they are asked about each pod with a controller.
_REMEMBERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class ParentRow:
    """One source of gangs.

    Attributes:
        controller: the word of policies that turns it on; None: a row of a policy.
        kind: of the parents.
        made_by: API group and kind of the controllers of its pods; None: any.
        find: the parent and the part that such a pod names.
        qualified: the kind with its API group.
    """

    controller: GangController | None
    kind: ObjectKind
    made_by: tuple[str, str] | None
    find: Callable[[Pod], NamedParent]
    qualified: str = field(init=False)

    def __post_init__(self) -> None:
        """Writes the name of the kind once: rows are asked about each pod with a controller."""
        object.__setattr__(self, "qualified", self.kind.qualified)


def _controller_name(pod: Pod) -> str:
    return pod.controller.partition("/")[2]


def _by_controller(pod: Pod) -> NamedParent:
    return _controller_name(pod), ""


def _indexed(pod: Pod) -> NamedParent:
    return _controller_name(pod), INDEXED


def _job_set(pod: Pod) -> NamedParent:
    name = value_of(pod.labels, "jobset.sigs.k8s.io/jobset-name")
    if not name:
        return None
    role = value_of(pod.labels, "jobset.sigs.k8s.io/replicatedjob-name")
    index = value_of(pod.labels, "jobset.sigs.k8s.io/job-index")
    return (name, role) if role and _controller_name(pod) == f"{name}-{role}-{index}" else None


def _leader_worker_set(pod: Pod) -> NamedParent:
    name, group, worker = (value_of(pod.labels, label) or "" for label in _LEADER_WORKER_LABELS)
    if not name or not group:
        return None
    if worker == "0":
        return (name, f"leader {group}") if (_controller_name(pod), pod.name) == (name, f"{name}-{group}") else None
    return (name, f"workers {group}") if _controller_name(pod) == f"{name}-{group}" else None


def _launcher(pod: Pod) -> NamedParent:
    name = value_of(pod.labels, _KUBEFLOW_NAME)
    return (name, "") if name and _controller_name(pod) == f"{name}-launcher" else None


def _pod_gang(pod: Pod) -> NamedParent:
    name, group = value_of(pod.labels, "grove.io/podgang"), value_of(pod.labels, "grove.io/podclique")
    return (name, group) if name and group and _controller_name(pod) == group else None


_JOB: Final = (JOB.group, JOB.kind)
_ROWS: Final = (
    ParentRow(GangController.JOB_SET, JOB_SET, _JOB, _job_set),
    ParentRow(GangController.LEADER_WORKER_SET, LEADER_WORKER_SET, ("apps", "StatefulSet"), _leader_worker_set),
    *(ParentRow(GangController.KUBEFLOW, kind, (kind.group, kind.kind), _by_controller) for kind in KUBEFLOW),
    ParentRow(GangController.KUBEFLOW, MPI_JOB, _JOB, _launcher),
    ParentRow(GangController.RAY_CLUSTER, RAY_CLUSTER, (RAY_CLUSTER.group, RAY_CLUSTER.kind), _by_controller),
    ParentRow(GangController.POD_GANG, POD_GANG, ("grove.io", "PodClique"), _pod_gang),
    ParentRow(GangController.JOB, JOB, _JOB, _by_controller),
    ParentRow(GangController.INDEXED_JOB, JOB, _JOB, _indexed),
)
_ROWS_BY_CONTROLLER: Final[Mapping[tuple[str, str], tuple[ParentRow, ...]]] = {
    made_by: tuple(row for row in _ROWS if row.made_by == made_by)
    for made_by in {row.made_by for row in _ROWS}
    if made_by is not None
}


@lru_cache(maxsize=_REMEMBERED)
def _row_of_rule(rule: ParentRule) -> ParentRow:
    kind = kind_of_rule(rule)
    if not rule.pod_label:
        return ParentRow(None, kind, (kind.group, kind.kind), _by_controller)

    def find(pod: Pod) -> NamedParent:
        name, controller = value_of(pod.labels, rule.pod_label), _controller_name(pod)
        return (name, "") if name and (controller == name or controller.startswith(f"{name}-")) else None

    return ParentRow(None, kind, None, find)


def kind_of_rule(rule: ParentRule) -> ObjectKind:
    """The kind that a row of a policy names."""
    return ObjectKind(rule.kind.partition(".")[0], rule.plural, rule.group, (rule.version,), namespaced=True)


def may_have_parent(pod: Pod) -> bool:
    """Whether a built-in row might be about the pod, whatever its policy says."""
    return pod.owner != "" and _made_by(pod) in _ROWS_BY_CONTROLLER


def parent_gangs(pod: Pod, policy: GangPolicy, is_followed: Callable[[str], bool]) -> Iterator[GangKey]:
    """The gangs that a pod may be in by its controller; it is in the first.

    A pod that asks for it is in one whatever kinds its policy follows.

    Args:
        is_followed: whether parents of a kind (``ObjectKind.qualified``) are known.
    """
    for row in _rows(policy, _made_by(pod), asked=pod.asks_gang) if pod.owner else ():
        named = row.find(pod) if is_followed(row.qualified) else None
        if named is not None:
            yield GangKey(GangSource.CONTROLLER, pod.namespace, named[0], row.qualified, named[1])


def parents_named(pod: Pod, policy: GangPolicy) -> list[ParentKey]:
    """The parents that a pod names, whether or not their kinds are followed, for a policy or as a pod that asks."""
    rows = _rows(policy, _made_by(pod), asked=True) if pod.owner else ()
    return [ParentKey(row.qualified, pod.namespace, named[0]) for row in rows if (named := row.find(pod)) is not None]


def kinds_asked(pod: Pod) -> list[ObjectKind]:
    """Kinds of the parents that a pod may have which asks for the gang of its controller."""
    rows = _ROWS_BY_CONTROLLER.get(_made_by(pod), ()) if pod.asks_gang and pod.owner else ()
    return [row.kind for row in rows if row.find(pod) is not None]


def _made_by(pod: Pod) -> tuple[str, str]:
    """API group and kind of its controller."""
    return pod.controller_group, pod.controller.partition("/")[0]


def _rows(policy: GangPolicy, made_by: tuple[str, str], *, asked: bool) -> Iterator[ParentRow]:
    """Rows that may be about the pods of a controller; those of the policy come first."""
    for rule in policy.parents:
        row = _row_of_rule(rule)
        if row.made_by in (None, made_by):
            yield row
    for row in _ROWS_BY_CONTROLLER.get(made_by, ()):
        if asked or row.controller in policy.controllers:
            yield row


def kinds_of(policies: Iterable[GangPolicy]) -> dict[ObjectKind, ParentRule | None]:
    """The kinds of parents that policies follow, and the rule where one of them names the kind.

    Of several rules about a kind the first counts.

    Args:
        policies: by precedence.
    """
    kinds: dict[ObjectKind, ParentRule | None] = {}
    named: set[str] = set()
    for policy in policies:
        kinds.update((row.kind, None) for row in _ROWS if row.controller in policy.controllers)
        for rule in policy.parents:
            if rule.kind not in named:
                named.add(rule.kind)
                kinds[kind_of_rule(rule)] = rule
    return kinds


def rules_by_type(policies: Iterable[GangPolicy]) -> dict[tuple[str, str], tuple[ObjectKind, ParentRule]]:
    """The rows of policies, by precedence, by the apiVersion and kind of the objects that they are about."""
    rows = ((kind, rule) for kind, rule in kinds_of(policies).items() if rule is not None)
    return {(kind.api_version, kind.kind): (kind, rule) for kind, rule in rows}


def rules_in(objects: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], tuple[ObjectKind, ParentRule]]:
    """``rules_by_type`` of the policies among objects of an API server; rows that are not valid do not count."""
    policies = list[tuple[int, str, GangPolicy]]()
    for item in objects:
        if item.get("kind") == POLICY.kind:
            with suppress(msgspec.ValidationError, PolicyError):
                policy = msgspec.convert(item, _PolicyObject)
                gangs = GangPolicy(controllers=(), parents=parse_parent_rules(policy.spec.gangs.parents))
                policies.append((-policy.spec.precedence, policy.metadata.name, gangs))
    return rules_by_type(gangs for _, _, gangs in sorted(policies, key=lambda policy: policy[:2]))


class _PolicyGangs(msgspec.Struct):
    parents: list[WireParentRule] = []


class _PolicySpec(msgspec.Struct):
    precedence: int = 0
    gangs: _PolicyGangs = msgspec.field(default_factory=_PolicyGangs)


class _PolicyMeta(msgspec.Struct):
    name: str = ""


class _PolicyObject(msgspec.Struct):
    metadata: _PolicyMeta
    spec: _PolicySpec


# --- objects ---

_READERS: Final[Mapping[ObjectKind, tuple[type[parent_sizes.WireParent], Callable[[Any, str], GangParent]]]] = {
    JOB: (parent_sizes.WireJob, parent_sizes.to_job),
    JOB_SET: (parent_sizes.WireJobSet, parent_sizes.to_job_set),
    LEADER_WORKER_SET: (parent_sizes.WireLeaderWorkerSet, parent_sizes.to_leader_worker_set),
    RAY_CLUSTER: (parent_sizes.WireRayCluster, parent_sizes.to_ray_cluster),
    POD_GANG: (parent_sizes.WirePodGang, parent_sizes.to_pod_gang),
    **dict.fromkeys(KUBEFLOW, (parent_sizes.WireKubeflowJob, parent_sizes.to_kubeflow_job)),
}
#: The wire struct of each built-in kind.
PARENT_WIRES: Final = {kind: _READERS[kind][0] for kind in PARENTS}


def parent_reader(kind: ObjectKind, rule: ParentRule | None = None) -> Callable[[bytes | msgspec.Raw], GangParent]:
    """What reads objects of a kind; an object of the wrong shape is read as one with a problem.

    Args:
        rule: of the policy that names the kind; None: a built-in one.
    """
    wire: type[parent_sizes.WireParent] = parent_sizes.WireOwnParent
    if rule is None:
        wire, to_parent = _READERS[kind]
    else:
        to_parent = parent_sizes.own_parent_reader(rule)
    decode = msgspec.json.Decoder(wire).decode
    decode_outline = msgspec.json.Decoder(parent_sizes.WireParent).decode

    def read(raw: bytes | msgspec.Raw) -> GangParent:
        try:
            return to_parent(decode(raw), kind.qualified)
        except (ModelError, msgspec.ValidationError) as error:
            return parent_sizes.unreadable_parent(decode_outline(raw), kind.qualified, str(error)[:_MAX_SHOWN])

    return read


def to_gang_parent(item: Mapping[str, Any], kind: ObjectKind, rule: ParentRule | None = None) -> GangParent:
    """The parent of an object of a dump; one of the wrong shape is read as one with a problem.

    Args:
        rule: of the policy that names the kind; None: a built-in one.

    Raises:
        msgspec.ValidationError: its metadata cannot be read.
    """
    return parent_reader(kind, rule)(msgspec.json.encode(item))
