"""Workloads and pods that name a scheduler of Thalweg. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from flowcore.model.amount_text import counted
from flowcore.model.policies import GATE, SCHEDULER_NAME, STEERED_NAME, Policy
from thalweg.wire_objects import Meta, OwnerReference, Pod, Workload

_TEMPLATE_HASH: Final = "pod-template-hash"
_DEFAULT_SCHEDULER: Final = "default-scheduler"
#: Of owners. The API server takes any text in a pod's owner references, line breaks too, from the creator of the pod;
#: these names stand in scripts.
_KIND: Final = re.compile(r"[A-Za-z0-9]+")
_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:]*")


@dataclass(frozen=True, slots=True)
class SchedulerUser:
    """A workload, or a pod without a controller, that names a scheduler.

    Attributes:
        kind: of the workload; ``Pod`` for a pod without a controller.
        template: whether the template of its pods is known and names the scheduler; False if only its pods do.
        running: its pods with a node.
        waiting: its pods without a node.
        gated: those of them that are behind Thalweg's scheduling gate.
        waiting_names: names of the waiting pods.
    """

    kind: str
    namespace: str
    name: str
    scheduler: str
    template: bool
    running: int = 0
    gated: int = 0
    waiting_names: tuple[str, ...] = ()

    @property
    def waiting(self) -> int:
        """Its pods without a node."""
        return len(self.waiting_names)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(slots=True)
class _Pods:
    """The pods of one workload."""

    running: int = 0
    gated: int = 0
    waiting: list[str] = field(default_factory=list)


def schedulers_of(policies: Iterable[Policy]) -> dict[str, bool]:
    """The names of schedulers that Thalweg serves; True: kube-scheduler serves the name with it (delivery Extender).

    ``default-scheduler`` is never among them: kube-scheduler serves it anyway.
    """
    names = {SCHEDULER_NAME: False, STEERED_NAME: True}
    for policy in policies:
        if not policy.selects.nothing and policy.delivery.acts:
            for name in policy.selects.scheduler_names:
                names.setdefault(name, policy.delivery.through_kube_scheduler)
    names.pop(_DEFAULT_SCHEDULER, None)
    return names


def scheduler_users(
    names: Iterable[str], workloads: Mapping[str, Iterable[Workload]], pods: Iterable[Pod]
) -> tuple[SchedulerUser, ...]:
    """The workloads and lone pods that name one of these schedulers, by namespace and name.

    Args:
        names: of the schedulers.
        workloads: by kind.
        pods: those that name one of the schedulers; finished ones do not count.
    """
    wanted = frozenset(names)
    cron_jobs = {
        (job.metadata.namespace, job.metadata.name): owner.name
        for job in workloads.get("Job", ())
        if (owner := _controller(job.metadata)) is not None and owner.kind == "CronJob"
    }
    templates = {
        (kind, workload.metadata.namespace, workload.metadata.name, workload.scheduler)
        for kind, objects in workloads.items()
        for workload in objects
        if workload.scheduler in wanted
        and not workload.finished
        and not (kind == "Job" and (workload.metadata.namespace, workload.metadata.name) in cron_jobs)
    }
    by_workload: dict[tuple[str, str, str, str], _Pods] = {key: _Pods() for key in templates}
    for pod in pods:
        if pod.spec.scheduler_name not in wanted or pod.finished:
            continue
        kind, name = _workload_of(pod, cron_jobs)
        counts = by_workload.setdefault((kind, pod.metadata.namespace, name, pod.spec.scheduler_name), _Pods())
        if pod.spec.node_name:
            counts.running += 1
        else:
            counts.waiting.append(pod.metadata.name)
            counts.gated += any(gate.name == GATE for gate in pod.spec.scheduling_gates)
    return tuple(
        SchedulerUser(*key, key in templates, counts.running, counts.gated, tuple(sorted(counts.waiting)))
        for key, counts in sorted(by_workload.items(), key=lambda entry: (entry[0][1], entry[0][0], entry[0][2:]))
    )


def _controller(metadata: Meta) -> OwnerReference | None:
    return next((each for each in metadata.owner_references if each.controller), None)


def _workload_of(pod: Pod, cron_jobs: Mapping[tuple[str, str], str]) -> tuple[str, str]:
    """Kind and name of what makes the pod: the Deployment of its ReplicaSet, the CronJob of its Job."""
    owner = _controller(pod.metadata)
    if owner is None or not _KIND.fullmatch(owner.kind) or not _NAME.fullmatch(owner.name):
        return "Pod", pod.metadata.name
    if owner.kind == "ReplicaSet":
        end = f"-{pod.metadata.labels.get(_TEMPLATE_HASH, '')}"
        if len(end) > 1 and owner.name.endswith(end):
            return "Deployment", owner.name.removesuffix(end)
    if owner.kind == "Job":
        cron_job = cron_jobs.get((pod.metadata.namespace, owner.name))
        if cron_job is not None:
            return "CronJob", cron_job
    return owner.kind, owner.name


def what_becomes(users: Iterable[SchedulerUser], served: Mapping[str, bool]) -> Iterator[str]:
    """A sentence for each scheduler that is named: what becomes of its pods when Thalweg is removed."""
    users = tuple(users)
    for name, by_kube_scheduler in served.items():
        named = [each for each in users if each.scheduler == name]
        if not named:
            continue
        running, waiting = sum(each.running for each in named), sum(each.waiting for each in named)
        said = f"{counted(len(named), 'object')} {'names' if len(named) == 1 else 'name'} the scheduler {name}, with "
        said += f"{counted(running, 'running pod')} and {counted(waiting, 'waiting pod')}. Running pods run on. "
        if by_kube_scheduler:
            said += f"Waiting, new and restarted pods need a kube-scheduler with a profile {name}. Without one they"
        else:
            said += "Without Thalweg waiting, new and restarted pods"
        yield f"{said} wait for ever, without an Event."
