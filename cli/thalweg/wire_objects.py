"""Objects of Kubernetes with the fields that commands read of them; other fields are not decoded."""

from __future__ import annotations

from datetime import datetime

import msgspec


class OwnerReference(msgspec.Struct, frozen=True):
    """An owner of an object."""

    kind: str
    name: str
    controller: bool = False


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of an object."""

    name: str
    namespace: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class Condition(msgspec.Struct, frozen=True):
    """A condition of any object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Named(msgspec.Struct, frozen=True):
    """The name of an object or of a part of one."""

    name: str


class Resources(msgspec.Struct, frozen=True):
    """What a container asks for."""

    limits: dict[str, str | int | float] = {}


class Container(msgspec.Struct, frozen=True):
    """A container of a pod."""

    image: str = ""
    resources: Resources = Resources()
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Spec of a pod, and of a template's pods."""

    scheduler_name: str = ""
    service_account_name: str = ""
    containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduling_gates: tuple[Named, ...] = ()


class Status(msgspec.Struct, frozen=True):
    """Status of a pod or of a Job."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: Status = Status()

    @property
    def key(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def finished(self) -> bool:
        """Whether all of its containers ended."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def waiting(self) -> bool:
        """Whether the pod has no node and still wants one."""
        return not self.spec.node_name and not self.finished


class Template(msgspec.Struct, frozen=True):
    """A template of pods."""

    spec: PodSpec = PodSpec()


class JobSpec(msgspec.Struct, frozen=True):
    """Spec of a Job."""

    template: Template = Template()


class JobTemplate(msgspec.Struct, frozen=True):
    """A template of Jobs."""

    spec: JobSpec = JobSpec()


class WorkloadSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Spec of an object that makes pods, or Jobs that make pods."""

    template: Template = Template()
    job_template: JobTemplate | None = None


class Workload(msgspec.Struct, frozen=True):
    """An object that makes pods."""

    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()
    status: Status = Status()

    @property
    def scheduler(self) -> str:
        """What its pods name."""
        job = self.spec.job_template
        return (self.spec if job is None else job.spec).template.spec.scheduler_name

    @property
    def finished(self) -> bool:
        """Whether it is a Job that makes no more pods."""
        return any(each.type in ("Complete", "Failed") and each.status == "True" for each in self.status.conditions)
