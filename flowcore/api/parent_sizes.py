"""Parents of gangs, from their objects: what each kind says of the pods that it makes.

A size is what the controller makes at once and makes again. Whatever a controller makes only once others of its pods
run is a gang of its own, or none: else pods would wait for pods that nobody makes. Sources: kubernetes
pkg/controller/job, sigs.k8s.io/jobset api/jobset/v1alpha2, sigs.k8s.io/lws api/leaderworkerset/v1, kubeflow
training-operator pkg/apis/kubeflow.org/v1 and mpi-operator v2beta1, kuberay apis/ray/v1 and utils.go
(GetWorkerGroupDesiredReplicas), grove scheduler api v1alpha1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from flowcore.api.base import Wire, WireMeta, to_labels
from flowcore.api.pod_objects import WirePodSpec
from flowcore.model.errors import ModelError
from flowcore.model.gang_parents import GangParent, ParentKey, ParentRule, PartSize, VolcanoJob, VolcanoTask
from flowcore.model.gang_spec import MAX_GANGS_IN_GROUP

_MAX_INT32: Final = 2**31 - 1
_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NODE_SELECTORS: Final = "alpha.jobset.sigs.k8s.io/node-selector"
_LEADER_FIRST: Final = (
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)
#: Of so many replicated jobs is known which come after which.
_MAX_ORDERED: Final = 64
_NOTHING_AFTER: Final[Mapping[str, tuple[str, ...]]] = {}
#: The most steps of a path, and the most elements of the lists on it.
_MAX_ELEMENTS: Final = 10_000


class _Exclusion(Wire):
    """The annotations with which controllers make some pods only once others have a node."""

    jobset: str | None = msgspec.field(default=None, name=_EXCLUSIVE)
    jobset_by_selector: str | None = msgspec.field(default=None, name=_NODE_SELECTORS)
    leaders: str | None = msgspec.field(default=None, name=_LEADER_FIRST[0])
    subgroups: str | None = msgspec.field(default=None, name=_LEADER_FIRST[1])


class WireParentMeta(WireMeta):
    annotations: _Exclusion | None = None


class _PodTemplate(Wire):
    """What is read of the template of pods that come after others."""

    spec: WirePodSpec | None = None

    @property
    def text(self) -> str:
        """Its spec as JSON; "": it has none."""
        return "" if self.spec is None else msgspec.json.encode(self.spec).decode()


class WireParent(Wire):
    """What is read of every parent."""

    metadata: WireParentMeta


def parent_of(
    wire: WireParent,
    kind: str,
    roles: Sequence[tuple[str, PartSize]],
    *,
    together: bool = False,
    owns_pods: bool = True,
    after: Mapping[str, tuple[str, ...]] = _NOTHING_AFTER,
) -> GangParent:
    """A parent with these parts; more than ``MAX_GANGS_IN_GROUP`` roles with pods are not placed together."""
    meta = wire.metadata
    together = together and sum(size.is_open for _, size in roles) <= MAX_GANGS_IN_GROUP
    return GangParent(
        ParentKey(kind, meta.namespace or "default", meta.name),
        meta.uid or "",
        dict(roles),
        together,
        owns_pods,
        deleting=meta.deletion_timestamp is not None,
        after=dict(after),
    )


def unreadable_parent(wire: WireParent, kind: str, problem: str) -> GangParent:
    """A parent whose size cannot be read. Its pods wait, with the problem as the reason."""
    return msgspec.structs.replace(parent_of(wire, kind, ()), problem=problem)


def _count(value: int | None, field: str, default: int = 1) -> int:
    if value is None:
        return default
    if not 0 <= value <= _MAX_INT32:
        raise ModelError(field, f"{value} is no number of pods")
    return value


def _size(total: int) -> int:
    return min(total, _MAX_INT32)


# --- Job ---


class _JobSpec(Wire):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    backoff_limit_per_index: int | None = None


class _JobStatus(Wire):
    succeeded: int | None = None
    failed_indexes: str | None = None


class WireJob(WireParent):
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)
    status: _JobStatus | None = None


def to_job(wire: WireJob, kind: str) -> GangParent:
    """A Job: part "" is what it runs at once, part "Indexed" the same where these are all of its indexes.

    Indexes that failed for good are not made again. Without completions nothing is made again once a pod succeeded.

    Raises:
        ModelError: parallelism or completions is no number of pods.
    """
    spec, status = wire.spec, wire.status or _JobStatus()
    parallelism = _count(spec.parallelism, "spec.parallelism")
    succeeded = max(0, status.succeeded or 0)
    if spec.completions is None and spec.parallelism is not None:
        size = PartSize(0 if succeeded else parallelism)
        return parent_of(wire, kind, (("", size), ("Indexed", PartSize(0))))
    completions = _count(spec.completions, "spec.completions")
    size = PartSize(min(parallelism, completions), succeeded + _count_indexes(status.failed_indexes or ""))
    is_whole = spec.completion_mode == "Indexed" and parallelism == completions
    return parent_of(wire, kind, (("", size), ("Indexed", size if is_whole else PartSize(0))))


def _count_indexes(text: str) -> int:
    """How many indexes a text such as "1,3-5,7" names."""
    count = 0
    for interval in text.split(","):
        bounds = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", interval)
        if bounds is not None:
            count += max(1, int(bounds[2] or bounds[1]) - int(bounds[1]) + 1)
    return count


# --- JobSet ---


class _TemplateSpec(_JobSpec):
    template: _PodTemplate | None = None


class _JobTemplate(Wire):
    metadata: WireParentMeta = msgspec.field(default_factory=WireParentMeta)
    spec: _TemplateSpec = msgspec.field(default_factory=_TemplateSpec)


class _DependsOn(Wire):
    name: str = ""
    status: str = ""


class _ReplicatedJob(Wire):
    name: str = ""
    replicas: int | None = None
    template: _JobTemplate = msgspec.field(default_factory=_JobTemplate)
    depends_on: list[_DependsOn] | None = None


class _StartupPolicy(Wire):
    startup_policy_order: str | None = None


class _JobSetSpec(Wire):
    replicated_jobs: list[_ReplicatedJob] | None = None
    startup_policy: _StartupPolicy | None = None


class _ReplicatedJobStatus(Wire):
    name: str = ""
    succeeded: int | None = None
    failed: int | None = None


class _JobSetStatus(Wire):
    replicated_jobs_status: list[_ReplicatedJobStatus] | None = None


class WireJobSet(WireParent):
    spec: _JobSetSpec = msgspec.field(default_factory=_JobSetSpec)
    status: _JobSetStatus | None = None


def to_job_set(wire: WireJobSet, kind: str) -> GangParent:
    """A JobSet: a part for each of its replicated jobs, all together unless some start after others.

    With exclusive topology by annotation its webhook refuses all pods of a Job but the first until that has a node:
    then its pods are placed one by one. So are those of a Job whose indexes may fail each by itself: the JobSet does
    not say which are not made again.

    Raises:
        ModelError: a number of replicas, parallelism or completions is no number of pods.
    """
    statuses = {each.name: each for each in (wire.status or _JobSetStatus()).replicated_jobs_status or ()}
    order = wire.spec.startup_policy.startup_policy_order if wire.spec.startup_policy is not None else None
    jobs = wire.spec.replicated_jobs or []
    in_order = order == "InOrder" or any(job.depends_on for job in jobs)
    roles = []
    for index, job in enumerate(jobs):
        field = f"spec.replicatedJobs[{index}]"
        replicas = _count(job.replicas, f"{field}.replicas")
        template = f"{field}.template.spec"
        pods = _count(job.template.spec.parallelism, f"{template}.parallelism")
        if job.template.spec.completions is not None:
            pods = min(pods, _count(job.template.spec.completions, f"{template}.completions"))
        status = statuses.get(job.name, _ReplicatedJobStatus())
        ended = (max(0, status.succeeded or 0) + max(0, status.failed or 0)) * pods
        come_late = _pods_come_late(wire.metadata) or _pods_come_late(job.template.metadata)
        if come_late or job.template.spec.backoff_limit_per_index is not None:
            pods = 0
        late = job.template.spec.template if in_order and index else None
        text = "" if late is None else late.text
        roles.append((job.name, PartSize(_size(replicas * pods), ended, jobs=replicas, template=text)))
    after = _after(jobs, by_order=order == "InOrder")
    return parent_of(wire, kind, roles, together=not in_order, owns_pods=False, after=after)


def _after(jobs: Sequence[_ReplicatedJob], *, by_order: bool) -> dict[str, tuple[str, ...]]:
    """For each replicated job those that start once it is ready, and run beside it.

    A job depends on earlier ones only (the webhook of JobSets). One that waits until another is complete needs its room
    when that has left.
    """
    names = [job.name for job in jobs[:_MAX_ORDERED]]
    if by_order:
        return {name: tuple(names[index + 1 :]) for index, name in enumerate(names[:-1])}
    after: dict[str, list[str]] = {name: [] for name in names}
    for job in jobs[:_MAX_ORDERED]:
        awaited = {each.name for each in job.depends_on or () if each.status == "Ready"}
        for name in names:
            if name in awaited or awaited.intersection(after[name]):
                after[name].append(job.name)
    return {name: tuple(later) for name, later in after.items() if later}


def _pods_come_late(meta: WireParentMeta) -> bool:
    annotations = meta.annotations
    return annotations is not None and annotations.jobset is not None and annotations.jobset_by_selector is None


# --- LeaderWorkerSet ---


class _LeaderWorkerTemplate(Wire):
    size: int | None = None
    worker_template: _PodTemplate | None = None


class _LeaderWorkerSpec(Wire):
    leader_worker_template: _LeaderWorkerTemplate = msgspec.field(default_factory=_LeaderWorkerTemplate)
    startup_policy: str | None = None


class WireLeaderWorkerSet(WireParent):
    spec: _LeaderWorkerSpec = msgspec.field(default_factory=_LeaderWorkerSpec)


def to_leader_worker_set(wire: WireLeaderWorkerSet, kind: str) -> GangParent:
    """A LeaderWorkerSet: in each of its groups a leader and the workers.

    Workers are made after the leader exists, or, by startup policy or exclusive topology, only once it is ready or has
    a node: then these two are not placed together.

    Raises:
        ModelError: the size is no number of pods.
    """
    size = _count(wire.spec.leader_worker_template.size, "spec.leaderWorkerTemplate.size")
    annotations = wire.metadata.annotations
    is_exclusive = annotations is not None and (annotations.leaders or annotations.subgroups) is not None
    leader_first = wire.spec.startup_policy == "LeaderReady"
    worker = wire.spec.leader_worker_template.worker_template
    template = worker.text if leader_first and worker is not None else ""
    roles = (("leader", PartSize(1)), ("workers", PartSize(max(0, size - 1), elsewhere=1, template=template)))
    after = {"leader": ("workers",)} if leader_first else _NOTHING_AFTER
    together = not (leader_first or is_exclusive)
    return parent_of(wire, kind, roles, together=together, owns_pods=False, after=after)


# --- Kubeflow ---


class _ReplicaSpec(Wire):
    replicas: int | None = None


class _SchedulingPolicy(Wire):
    min_available: int | None = None


class _RunPolicy(Wire):
    scheduling_policy: _SchedulingPolicy | None = None


class _ElasticPolicy(Wire):
    min_replicas: int | None = None


_ReplicaSpecs = dict[str, _ReplicaSpec]


class _KubeflowSpec(Wire):
    pytorch_replica_specs: _ReplicaSpecs | None = None
    tf_replica_specs: _ReplicaSpecs | None = None
    mpi_replica_specs: _ReplicaSpecs | None = None
    xgb_replica_specs: _ReplicaSpecs | None = None
    paddle_replica_specs: _ReplicaSpecs | None = None
    jax_replica_specs: _ReplicaSpecs | None = None
    run_policy: _RunPolicy | None = None
    elastic_policy: _ElasticPolicy | None = None
    launcher_creation_policy: str | None = None

    @property
    def replica_specs(self) -> tuple[str, _ReplicaSpecs]:
        """The name of the field that gives specs of replicas, and these specs."""
        given = {
            "pytorchReplicaSpecs": self.pytorch_replica_specs,
            "tfReplicaSpecs": self.tf_replica_specs,
            "mpiReplicaSpecs": self.mpi_replica_specs,
            "xgbReplicaSpecs": self.xgb_replica_specs,
            "paddleReplicaSpecs": self.paddle_replica_specs,
            "jaxReplicaSpecs": self.jax_replica_specs,
        }
        return next(((name, specs) for name, specs in given.items() if specs), ("", {}))


class _ReplicaStatus(Wire):
    succeeded: int | None = None
    failed: int | None = None


class _KubeflowStatus(Wire):
    replica_statuses: dict[str, _ReplicaStatus] | None = None


class WireKubeflowJob(WireParent):
    spec: _KubeflowSpec = msgspec.field(default_factory=_KubeflowSpec)
    status: _KubeflowStatus | None = None


def to_kubeflow_job(wire: WireKubeflowJob, kind: str) -> GangParent:
    """A job of Kubeflow: all of its replicas, or as many as its scheduling policy or its elasticity needs at least.

    Raises:
        ModelError: a number of replicas is no number of pods.
    """
    spec = wire.spec
    field, replica_specs = spec.replica_specs
    elastic = None if spec.elastic_policy is None else spec.elastic_policy.min_replicas
    total = 0
    for role, replica in replica_specs.items():
        replicas = _count(replica.replicas, f"spec.{field}.{role}.replicas")
        if role == "Worker" and elastic is not None:
            replicas = min(replicas, _count(elastic, "spec.elasticPolicy.minReplicas"))
        # That launcher is made once all workers are ready.
        if role != "Launcher" or spec.launcher_creation_policy != "WaitForWorkersReady":
            total += replicas
    policy = None if spec.run_policy is None else spec.run_policy.scheduling_policy
    if policy is not None and policy.min_available is not None:
        total = min(total, _count(policy.min_available, "spec.runPolicy.schedulingPolicy.minAvailable"))
    statuses = (wire.status or _KubeflowStatus()).replica_statuses or {}
    ended = sum(max(0, status.succeeded or 0) for status in statuses.values())
    if field == "mpiReplicaSpecs" and "Worker" in statuses:
        ended += max(0, statuses["Worker"].failed or 0)  # such a worker is not made again, and its launcher may be
    return parent_of(wire, kind, (("", PartSize(_size(total), ended)),))


# --- RayCluster ---


class _WorkerGroup(Wire):
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None


class _RaySpec(Wire):
    worker_group_specs: list[_WorkerGroup] | None = None
    enable_in_tree_autoscaling: bool | None = None


class WireRayCluster(WireParent):
    spec: _RaySpec = msgspec.field(default_factory=_RaySpec)


def to_ray_cluster(wire: WireRayCluster, kind: str) -> GangParent:
    """A RayCluster: its head and its workers, with autoscaling the fewest of these.

    Raises:
        ModelError: a number of replicas or hosts is no number of pods.
    """
    total = 1
    for index, group in enumerate(wire.spec.worker_group_specs or ()):
        field = f"spec.workerGroupSpecs[{index}]"
        least = _count(group.min_replicas, f"{field}.minReplicas", 0)
        most = _count(group.max_replicas, f"{field}.maxReplicas", _MAX_INT32)
        wanted = _count(group.replicas, f"{field}.replicas", least)
        replicas = min(least if wire.spec.enable_in_tree_autoscaling else max(least, wanted), most)
        if not group.suspend:
            total += replicas * _count(group.num_of_hosts, f"{field}.numOfHosts")
    return parent_of(wire, kind, (("", PartSize(_size(total))),))


# --- PodGang ---


class _PodReference(Wire):
    name: str = ""


class _PodGangGroup(Wire):
    name: str = ""
    min_replicas: int | None = None
    pod_references: list[_PodReference] | None = None


class _PodGangSpec(Wire):
    pod_groups: list[_PodGangGroup] | None = msgspec.field(default=None, name="podgroups")


class WirePodGang(WireParent):
    spec: _PodGangSpec = msgspec.field(default_factory=_PodGangSpec)


def to_pod_gang(wire: WirePodGang, kind: str) -> GangParent:
    """A PodGang of Grove: a part for each of its groups, all together. It names the pods itself.

    Raises:
        ModelError: a number of replicas is no number of pods.
    """
    roles = []
    for index, group in enumerate(wire.spec.pod_groups or ()):
        pods = frozenset(each.name for each in group.pod_references or ())
        least = _count(group.min_replicas, f"spec.podgroups[{index}].minReplicas")
        roles.append((group.name, PartSize(least, pods=pods)))
    return parent_of(wire, kind, roles, together=True, owns_pods=False)


# --- rows of policies ---


class WireOwnParent(WireParent):
    """An object of a kind that a policy names: its spec and status are read by paths."""

    spec: Any = None
    status: Any = None


def own_parent_reader(rule: ParentRule) -> Callable[[WireOwnParent, str], GangParent]:
    """What reads the parents of a rule; it raises ModelError where a path leads to no number of pods."""

    def read(wire: WireOwnParent, kind: str) -> GangParent:
        total = sum(_sum_at({"spec": wire.spec, "status": wire.status}, path) for path in rule.sizes)
        return parent_of(wire, kind, (("", PartSize(_size(total))),), owns_pods=not rule.pod_label)

    return read


def _sum_at(value: Mapping[str, Any], path: str) -> int:
    """The number at a path, or the sum over the lists on it; a list that is not there is empty."""
    values: list[Any] = [value]
    for step in path.split("."):
        name = step.removesuffix("[]")
        inner = [each.get(name) if isinstance(each, dict) else None for each in values]
        if step.endswith("[]"):
            inner = [element for each in inner if isinstance(each, list) for element in each]
        values = inner[:_MAX_ELEMENTS]
    total = 0
    for number in values:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MAX_INT32:
            shown = "nothing" if number is None else f'"{str(number)[:100]}"'
            raise ModelError(path, f"{shown} is no number of pods")
        total += number
    return total


# --- Volcano Job ---


class _TaskMeta(Wire):
    labels: dict[str, str] | None = None


class _TaskSpec(Wire):
    scheduler_name: str | None = None


class _TaskTemplate(Wire):
    metadata: _TaskMeta = msgspec.field(default_factory=_TaskMeta)
    spec: _TaskSpec = msgspec.field(default_factory=_TaskSpec)


class _Task(Wire):
    name: str = ""
    template: _TaskTemplate = msgspec.field(default_factory=_TaskTemplate)


class _VolcanoSpec(Wire):
    scheduler_name: str | None = None
    queue: str | None = None
    tasks: list[_Task] | None = None


class WireVolcanoJob(WireParent):
    spec: _VolcanoSpec = msgspec.field(default_factory=_VolcanoSpec)


def to_volcano_job(wire: WireVolcanoJob) -> VolcanoJob:
    """A Job of Volcano, with the labels that its controller gives the pods (pkg/controllers/job, createJobPod)."""
    meta, spec = wire.metadata, wire.spec
    namespace = meta.namespace or "default"
    tasks = []
    for task in spec.tasks or ():
        labels = (task.template.metadata.labels or {}) | {
            "volcano.sh/job-name": meta.name,
            "volcano.sh/job-namespace": namespace,
            "volcano.sh/queue-name": spec.queue or "default",
            "volcano.sh/task-spec": task.name,
        }
        name = task.template.spec.scheduler_name or spec.scheduler_name or "volcano"
        tasks.append(VolcanoTask(name, to_labels(labels)))
    return VolcanoJob(namespace, meta.name, meta.uid or "", tuple(tasks), meta.deletion_timestamp is not None)
