"""What a pod itself says of the topology of its gang, and its rank in it.

Sources: keps/2724-topology-aware-scheduling of Kueue, its api/kueue topology_types.go and
pkg/controller/tas/topology_ungater.go (ranks of JobSets).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

import msgspec

from flowcore.model.hyper_nodes import TierLimit
from flowcore.model.selectors import Labels, value_of

#: Annotations of ours, on pods and on PodGroup objects.
GANG_PREFERRED_TOPOLOGY = "scheduling.thalweg/gang-preferred-topology"
GANG_SLICE_TOPOLOGY = "scheduling.thalweg/gang-slice-topology"
GANG_SLICE_SIZE = "scheduling.thalweg/gang-slice-size"

_KUEUE = "kueue.x-k8s.io/"
KUEUE_REQUIRED_TOPOLOGY = _KUEUE + "podset-required-topology"
KUEUE_PREFERRED_TOPOLOGY = _KUEUE + "podset-preferred-topology"
KUEUE_SLICE_TOPOLOGY = _KUEUE + "podset-slice-required-topology"
KUEUE_SLICE_SIZE = _KUEUE + "podset-slice-size"

#: Labels of pods that Kueue has let in: it has chosen their domains itself, by these annotations.
ADMITTED_BY_KUEUE: Final = (_KUEUE + "tas", _KUEUE + "podset", _KUEUE + "managed")

#: Most slices of a gang: each is looked at by itself.
MAX_SLICES = 128

_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
#: Of which type a pod of Kubeflow's controllers is, and the types in the order of ranks: each counts its own from 0.
_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
_REPLICA_TYPES: Final = ("launcher", "master", "chief", "ps", "worker", "evaluator")
_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
#: Labels with a pod's rank; the first one that a pod has counts. Pods of LeaderWorkerSets have the last one too.
RANK_LABELS: Final = (
    "scheduling.thalweg/gang-rank",
    _KUEUE + "pod-group-pod-index",
    "batch.kubernetes.io/job-completion-index",
    _WORKER_INDEX,
    _REPLICA_INDEX,
    "volcano.sh/task-index",
    "apps.kubernetes.io/pod-index",
)
#: Of the Jobs of a replicated job: which of them a pod is of, and how many there are. Each counts its ranks from 0.
_JOB_INDEX, _JOB_COUNT = "jobset.sigs.k8s.io/job-index", "jobset.sigs.k8s.io/replicatedjob-replicas"
#: Digits of the largest number that is read.
_MAX_DIGITS = 9
_NONE_BEFORE: Final[Mapping[int, int]] = {}


class GangTopology(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What the annotations of a pod say of its gang's topology.

    Attributes:
        required: as ``GangSpec.topology_key``, and so are these.
        preferred, slice_key, slice_size, limit: as in ``GangSpec``.
        bad_annotation: the first annotation that cannot be read; "": all can.
        problem: why it cannot be read.
    """

    required: str = ""
    preferred: tuple[str, ...] = ()
    slice_key: str = ""
    slice_size: int = 0
    limit: TierLimit | None = None
    bad_annotation: str = ""
    problem: str = ""

    @property
    def unreadable(self) -> str:
        """Which annotation cannot be read, and why; "": all can."""
        return f"{self.bad_annotation}: {self.problem}" if self.bad_annotation else ""


def job_and_rank(labels: Labels) -> tuple[int, int] | None:
    """Which Job of its gang a pod is of, and its rank there, each from 0 on; None: its labels do not say it.

    Only gangs of a JobSet have more than one Job. In those of Kubeflow the type of a replica stands for it.
    """
    label = next((key for key in RANK_LABELS if value_of(labels, key) is not None), "")
    index = _number(labels, label)
    if index is None:
        return None
    if label == _WORKER_INDEX:  # the leader, 0, is a gang of its own
        return 0, max(0, index - 1)
    if label == _REPLICA_INDEX:
        return _replica_type(labels), index
    return _number(labels, _JOB_INDEX) or 0, index


def rank_of(labels: Labels, size: int, before: Mapping[int, int] = _NONE_BEFORE) -> int | None:
    """The rank of a pod in its gang, from 0 on; None: its labels do not say it.

    Args:
        size: how many pods its gang has. A rank of a JobSet counts the pods of the Jobs before its own.
        before: how many ranks come before those of a type (``ranks_before``).
    """
    job, jobs = job_and_rank(labels), _number(labels, _JOB_COUNT)
    if job is None:
        return None
    return job[1] + (job[0] * (size // jobs) if jobs else before.get(job[0], 0))


def ranks_before(pods: Iterable[Labels]) -> dict[int, int]:
    """How many ranks of a gang of Kubeflow come before those of each type; empty for other gangs.

    A master ranks before all workers: training-operator pkg/controller.v1/pytorch/envvar.go.

    Args:
        pods: labels of all of its pods.
    """
    counts: dict[int, int] = {}
    for labels in pods:
        job = job_and_rank(labels) if value_of(labels, _REPLICA_TYPE) is not None else None
        if job is not None:
            counts[job[0]] = max(counts.get(job[0], 0), job[1] + 1)
    order = sorted(counts)
    return dict(zip(order, accumulate((counts[kind] for kind in order), initial=0), strict=False))


def least_size(labels: Labels) -> int:
    """How many pods a gang of a JobSet has at least, by the labels of one of them: its Jobs are equal. 0 for others."""
    job, jobs = job_and_rank(labels), _number(labels, _JOB_COUNT)
    return (job[1] + 1) * jobs if job is not None and jobs else 0


def _replica_type(labels: Labels) -> int:
    """The place of a pod's type in the order of ranks."""
    name = (value_of(labels, _REPLICA_TYPE) or "").lower()
    return _REPLICA_TYPES.index(name) if name in _REPLICA_TYPES else len(_REPLICA_TYPES)


def _number(labels: Labels, label: str) -> int | None:
    text = value_of(labels, label)
    return int(text) if text and len(text) <= _MAX_DIGITS and text.isascii() and text.isdecimal() else None
