"""The samples of a cluster, and what they say: what a node's use is now, and what a pod will use.

Sources: the seed "utilisation" (the last N samples), and Koordinator's load-aware plug-in: a pod that no sample of its
node contains yet counts by an estimate, and a sample that is too old does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.usage_samples.sample_table import SampleTable
from flowcore.model.usage import MeasuredLoad, SavedClass, UsageClass, UsageSample

#: Seconds; a node whose newest sample ended longer ago is not measured. Koordinator's nodeMetricExpirationSeconds.
#: Samples of metrics-server end 15 to 60 seconds apart: one or more may be missing before requests count.
STALE_AFTER = 180.0
#: Fewer samples say nothing of a class.
LEAST_SAMPLES = 5
#: Samples of pods that are gone, kept of each class.
_OF_PODS_GONE = 100
#: Most classes without pods that are kept: the ones with the newest samples.
_MOST_IDLE_CLASSES = 10_000
#: Of a class with more samples about this number is read. A prime: pods have equally many samples, and of each
#: another one is to be chosen.
_MOST_SAMPLES = 1999
#: Of each class about this number is saved.
_SAVED_SAMPLES = 20
#: Of all samples of a class: what its pods are expected to use.
_PERCENTILE = 95.0
#: Digits to which foreseen usage is rounded up: pods whose classes hardly differ stay interchangeable.
_DIGITS = 2


class PodOnNode(NamedTuple):
    """A pod on a node, or on its way there.

    Attributes:
        key: ``namespace/name``.
        since: when it started there (status.startTime), seconds since the epoch; 0: it has not.
        estimate: cpu (milli-cores) and memory (bytes) that it will use: what is foreseen, or else its requests.
    """

    key: str
    since: float
    estimate: tuple[int, int]


class UsageStore:
    """The last samples of nodes, pods and classes of pods.

    Args:
        samples: how many are kept of each node and pod, at least 1.
    """

    def __init__(self, samples: int) -> None:
        self._nodes: SampleTable[str] = SampleTable(samples)
        #: Tagged with the row of their class.
        self._pods: SampleTable[str] = SampleTable(samples)
        #: Samples of pods that are gone.
        self._classes: SampleTable[UsageClass] = SampleTable(_OF_PODS_GONE)
        self._class_at: dict[int, UsageClass] = {}
        #: Of each node: when, and bits per second.
        self._bandwidth: dict[str, tuple[float, int]] = {}
        #: Both hold until ``refresh``.
        self._foreseen: dict[UsageClass, tuple[int, int] | None] = {}
        self._rows_by_class: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the samples, without the names."""
        return self._nodes.nbytes + self._pods.nbytes + self._classes.nbytes

    # --- what comes in ---

    def put_nodes(self, samples: Mapping[str, UsageSample], known: Container[str]) -> list[str]:
        """Takes samples of nodes by name; returns a sentence for each that is refused.

        Args:
            known: names of all nodes.
        """
        self._nodes.put({name: sample for name, sample in samples.items() if name in known})
        return [_unknown(name) for name in samples if name not in known]

    def put_bandwidth(self, measured: Mapping[str, int], timestamp: float, known: Container[str]) -> list[str]:
        """Takes the bandwidth in use on nodes, in bits per second; otherwise like ``put_nodes``."""
        self._bandwidth.update((name, (timestamp, bits)) for name, bits in measured.items() if name in known)
        return [_unknown(name) for name in measured if name not in known]

    def put_pods(self, samples: Mapping[str, UsageSample], class_of: Callable[[str], UsageClass | None]) -> None:
        """Takes samples of pods by key; ``refresh`` makes them count in what is foreseen.

        Args:
            class_of: the class of a pod; None: no such pod is known, so the sample is left out.
        """
        classes = {key: class_of(key) for key in samples}
        known = {key: sample for key, sample in samples.items() if classes[key] is not None}
        self._pods.put(
            known, [self._class_row(usage_class) for key in known if (usage_class := classes[key]) is not None]
        )

    def drop_node(self, name: str) -> None:
        """The node is gone."""
        self._nodes.drop(name)
        self._bandwidth.pop(name, None)

    def drop_pod(self, key: str) -> None:
        """The pod has ended or is gone; what it used stays with its class."""
        if key in self._pods:
            self._classes.copy(self._class_at[self._pods.tag(key)], self._pods, key)
            self._pods.drop(key)

    def refresh(self) -> None:
        """Makes all samples count in what is foreseen, and forgets classes without pods if there are too many.

        It costs much in a large cluster: call it once after all samples of a poll.
        """
        self._foreseen, self._rows_by_class = {}, None
        if len(self._classes) > _MOST_IDLE_CLASSES:
            self._forget_classes()

    # --- what outlives the process ---

    @property
    def classes(self) -> list[UsageClass]:
        """All classes that pods are or were of."""
        return list(self._classes)

    def saved_class(self, usage_class: UsageClass) -> SavedClass:
        """Some samples of one of the ``classes``, at equal distances among those of its pods."""
        pods, gone = self._rows_of(usage_class)
        newest = max(self._pods.last_timestamp(pods), self._classes.last_timestamp(gone))
        samples = self._samples_of(usage_class, _SAVED_SAMPLES).tolist()
        return SavedClass(usage_class, newest, tuple((cpu, memory) for cpu, memory in samples))

    def restore(self, saved: Iterable[SavedClass]) -> None:
        """Takes over what another process knew of classes: as samples of pods that are gone."""
        samples: dict[UsageClass, list[UsageSample]] = {}
        for known in saved:
            self._class_row(known.usage_class)
            own = samples.setdefault(known.usage_class, [])
            own += [UsageSample(known.newest, 0.0, *amounts) for amounts in known.amounts]
        self._classes.add(samples)
        self.refresh()

    # --- what is known ---

    @property
    def nodes(self) -> list[str]:
        """Names of all nodes with samples."""
        return list({**dict.fromkeys(self._nodes), **self._bandwidth})

    @property
    def pods(self) -> list[str]:
        """Keys of all pods with samples."""
        return list(self._pods)

    @property
    def measures_nodes(self) -> bool:
        """Whether there is a sample of any node, however old; bandwidth is none."""
        return len(self._nodes) > 0

    def node_sample(self, name: str) -> UsageSample | None:
        """The newest sample of a node, however old."""
        return self._nodes.newest(name)

    def pod_sample(self, key: str) -> UsageSample | None:
        """The newest sample of a pod, however old."""
        return self._pods.newest(key)

    def is_measured(self, name: str, now: float) -> bool:
        """Whether a node's newest sample is young enough to count."""
        sample = self._nodes.newest(name)
        return sample is not None and self._is_fresh(sample.timestamp, now)

    def foreseen(self, usage_class: UsageClass) -> tuple[int, int] | None:
        """Cpu (milli-cores) and memory (bytes) that a pod of a class is expected to use; None: too few samples.

        The percentile of the samples of the class's pods, those that are gone included.
        """
        if usage_class not in self._foreseen:
            self._foreseen[usage_class] = self._foresee(usage_class)
        return self._foreseen[usage_class]

    def measured_load(self, name: str, arrivals: Iterable[PodOnNode], now: float) -> MeasuredLoad:
        """What counts as used on a node: its newest sample, and what that cannot contain yet.

        ``used = sample + sum over pods that started after the sample began of max(0, estimate - their own sample)``

        Args:
            arrivals: the pods on the node and on their way there. Those that have long run there may be left out.
            now: seconds since the epoch.
        """
        when, bits = self._bandwidth.get(name, (0.0, 0))
        bandwidth = bits if self._is_fresh(when, now) else None
        sample = self._nodes.newest(name)
        if sample is None or not self._is_fresh(sample.timestamp, now):
            return MeasuredLoad(name, bandwidth_bits=bandwidth)
        cpu, memory = sample.cpu_milli, sample.memory_bytes
        for arrival in arrivals:
            if 0 < arrival.since <= sample.begin:
                continue
            own = self._pods.newest(arrival.key) if arrival.since else None
            more_cpu, more_memory = arrival.estimate
            cpu += max(0, more_cpu - (0 if own is None else own.cpu_milli))
            memory += max(0, more_memory - (0 if own is None else own.memory_bytes))
        return MeasuredLoad(name, cpu, memory, bandwidth)

    def _is_fresh(self, timestamp: float, now: float) -> bool:
        return now - timestamp <= STALE_AFTER

    def _class_row(self, usage_class: UsageClass) -> int:
        row = self._classes.row(usage_class)
        self._class_at[row] = usage_class
        return row

    def _rows_of(self, usage_class: UsageClass) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the pods of a known class, and of those that are gone."""
        if self._rows_by_class is None:
            self._rows_by_class = self._pods.rows_by_tag()
        row = self._classes.row(usage_class)
        rows, tags = self._rows_by_class
        tag = np.int32(row)  # of another type numpy would first copy all tags
        own_rows = slice(np.searchsorted(tags, tag, "left"), np.searchsorted(tags, tag, "right"))
        return rows[own_rows], np.array([row])

    def _samples_of(self, usage_class: UsageClass, most: int) -> NDArray[np.int64]:
        """int64[M, 2]: cpu and memory of about so many samples of a known class."""
        pods, gone = self._rows_of(usage_class)
        count = int(self._pods.counts(pods).sum() + self._classes.counts(gone).sum())
        every = max(1.0, count / most)
        return np.concatenate([self._pods.amounts(pods, every), self._classes.amounts(gone, every)])

    def _foresee(self, usage_class: UsageClass) -> tuple[int, int] | None:
        if usage_class not in self._classes:
            return None
        samples = self._samples_of(usage_class, _MOST_SAMPLES)
        if len(samples) < LEAST_SAMPLES:
            return None
        cpu, memory = np.percentile(samples, _PERCENTILE, axis=0, method="inverted_cdf").tolist()
        return max(1, _rounded_up(int(cpu))), max(1, _rounded_up(int(memory)))

    def _forget_classes(self) -> None:
        in_use = set(np.unique(self._pods.rows_by_tag()[1]).tolist())
        idle = [each for each in self._classes.oldest_first() if self._classes.row(each) not in in_use]
        for usage_class in idle[: max(0, len(idle) - _MOST_IDLE_CLASSES)]:
            del self._class_at[self._classes.row(usage_class)]
            self._classes.drop(usage_class)


def _unknown(node: str) -> str:
    return f"NodeMetrics {node}: there is no such node"


def _rounded_up(amount: int) -> int:
    """To _DIGITS digits."""
    unit: int = 10 ** max(0, len(str(amount)) - _DIGITS)
    return -(-amount // unit) * unit
