"""Gangs that their controller makes: a Job, a JobSet, a RayCluster. Its object, the parent, says how large they are.

A parent may have several gangs, its parts. A part is a role ("workers"), or a role and a number ("workers 3").
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class GangController(StrEnum):
    """A source of gangs that needs no annotation, as policies name it."""

    #: Jobs of batch: as many pods as run at once.
    JOB = "Job"
    #: Of these only Indexed ones that run all of their indexes at once.
    INDEXED_JOB = "IndexedJob"
    JOB_SET = "JobSet"
    LEADER_WORKER_SET = "LeaderWorkerSet"
    #: PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob. A TrainJob makes a JobSet.
    KUBEFLOW = "Kubeflow"
    #: Those of RayJobs and RayServices too.
    RAY_CLUSTER = "RayCluster"
    #: Of Grove.
    POD_GANG = "PodGang"
    #: Jobs of Volcano: their PodGroup says what the gang is, and the pods are made once its phase is Inqueue.
    VOLCANO_JOB = "VolcanoJob"


#: Sources that count where a policy says nothing: each of these workloads needs all of its pods at once.
DEFAULT_CONTROLLERS = (
    GangController.JOB_SET,
    GangController.LEADER_WORKER_SET,
    GangController.KUBEFLOW,
    GangController.POD_GANG,
    GangController.VOLCANO_JOB,
)

#: API groups of the built-in kinds of parents.
BUILT_IN_GROUPS = frozenset(
    (
        "batch",
        "batch.volcano.sh",
        "jobset.x-k8s.io",
        "leaderworkerset.x-k8s.io",
        "kubeflow.org",
        "ray.io",
        "scheduler.grove.io",
    )
)


class ParentKey(msgspec.Struct, frozen=True, gc=False, order=True, cache_hash=True):
    """What tells a parent from all others.

    Attributes:
        kind: with its API group, as in "JobSet.jobset.x-k8s.io".
    """

    kind: str
    namespace: str
    name: str

    @property
    def display_name(self) -> str:
        """As users know it, and no two alike: "JobSet ml/train"; with the group where a policy names the kind."""
        kind, _, group = self.kind.partition(".")
        return f"{kind if group in BUILT_IN_GROUPS else self.kind} {self.namespace}/{self.name}"


class ParentRule(msgspec.Struct, frozen=True):
    """A row that a policy adds: a kind whose objects are parents.

    Attributes:
        kind: with its API group, as in ParentKey.
        version, plural: where the API server lists the objects.
        pod_label: the label with which a pod names its parent; "": the parent is the pod's controller.
        sizes: paths of numbers that together are the size, such as ``spec.tasks[].replicas``.
    """

    kind: str
    version: str
    plural: str
    pod_label: str
    sizes: tuple[str, ...]

    @property
    def group(self) -> str:
        """The API group; "" for the core group."""
        return self.kind.partition(".")[2]


class PartSize(msgspec.Struct, frozen=True, gc=False):
    """How large a gang of a parent is.

    Attributes:
        size: pods that run at once. 0: its pods are placed one by one.
        ended: how many of these ended and are not made again, as far as the parent says.
        elsewhere: where pods say the size of their group themselves, how many of it are in other parts; None: they do
            not.
        jobs: how many Jobs make the pods, numbered from 0; None: not by numbered Jobs.
        pods: names of the pods, where the parent names them; None: it does not.
        template: the spec of its pods as JSON, where they are made only after those of others; "": it is not known.
    """

    size: int
    ended: int = 0
    elsewhere: int | None = None
    jobs: int | None = None
    pods: frozenset[str] | None = None
    template: str = ""

    @property
    def is_open(self) -> bool:
        """Whether some of its pods are still to run."""
        return self.size > self.ended


class GangParent(msgspec.Struct, frozen=True, gc=False):
    """An object that makes the pods of gangs.

    Attributes:
        uid: "" where it is not known.
        roles: of its parts, and how large each is.
        together: whether parts of one number are placed all or none of them.
        owns_pods: whether it is itself the controller of its pods.
        deleting: it makes no pods any more, so its pods do not wait for others.
        problem: why its size cannot be read; "" when it can.
        after: for a role the roles whose pods it makes once the pods of that role run.
    """

    key: ParentKey
    uid: str = ""
    roles: dict[str, PartSize] = {}
    together: bool = False
    owns_pods: bool = True
    deleting: bool = False
    problem: str = ""
    after: dict[str, tuple[str, ...]] = {}

    def part(self, name: str) -> PartSize | None:
        """How large a part is; None: it has no such part."""
        return self.roles.get(name.partition(" ")[0])

    def beside(self, name: str) -> tuple[str, ...]:
        """The parts, this one among them, that are placed together and have pods still to run."""
        if not self.together:
            return ()
        _, space, number = name.partition(" ")
        parts = tuple(known + space + number for known, size in self.roles.items() if size.is_open)
        return parts if name in parts and len(parts) > 1 else ()


class VolcanoTask(msgspec.Struct, frozen=True, gc=False):
    """What policies read of the pods that a task of a Volcano Job makes."""

    scheduler_name: str
    labels: tuple[tuple[str, str], ...]


class VolcanoJob(msgspec.Struct, frozen=True, gc=False):
    """A Job of Volcano, before it has pods."""

    namespace: str
    name: str
    uid: str
    tasks: tuple[VolcanoTask, ...]
    deleting: bool = False
