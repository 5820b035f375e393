"""What a scenario says of measured usage: the load of its nodes, and what its waiting pods are foreseen to use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from flowcore.cluster.usage_samples import STALE_AFTER, PodOnNode, UsageStore
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.model.usage import MeasuredLoad
from flowcore.planning.round_input import counts_measured, pod_on_node
from flowcore.questions.scenario.reading.dump_commands import METRICS_COMMAND
from flowcore.questions.scenario.scenario import Scenario

_NOTHING_IN_FILES = (
    "a policy counts measured load, and the files contain no NodeMetrics, so requests count. Add what was measured: "
    f"{METRICS_COMMAND}"
)
_NOTHING_LISTED = "a policy counts measured load, and the API server lists no NodeMetrics, so requests count"


@dataclass(frozen=True, slots=True)
class MeasuredUsage:
    """Measured usage for the policies that ask for it.

    Attributes:
        loads: of the nodes.
        foreseen: cpu (milli-cores) and memory (bytes), by key of a waiting pod.
        warnings: sentences about what is not measured.
    """

    loads: tuple[MeasuredLoad, ...] = ()
    foreseen: Mapping[str, tuple[int, int]] | None = None
    warnings: tuple[str, ...] = ()

    def of(self, pod: Pod) -> tuple[int, int] | None:
        """What a waiting pod is foreseen to use; None: unknown, or of no interest."""
        return None if self.foreseen is None else self.foreseen.get(pod.key)


def measured_usage(scenario: Scenario, policies: Mapping[str, Policy]) -> MeasuredUsage:
    """What counts by measurement; nothing where no policy asks for it.

    Samples are as old as they were when the dump was made: ages are counted up to the newest sample.

    Args:
        policies: by key, of the waiting pods.
    """
    asking = {key for key, policy in policies.items() if counts_measured(policy)}
    if not asking:
        return MeasuredUsage()
    if scenario.loads:
        foreseen = {key: scenario.foreseen[key] for key in asking if key in scenario.foreseen}
        return MeasuredUsage(tuple(scenario.loads.values()), foreseen)
    if not scenario.node_samples:
        return MeasuredUsage(warnings=(_NOTHING_IN_FILES if scenario.unread is None else _NOTHING_LISTED,))
    cluster, store = scenario.cluster, UsageStore(samples=1)
    refused = store.put_nodes(scenario.node_samples, cluster.nodes)
    store.put_pods(
        scenario.pod_samples, lambda key: None if (pod := cluster.pods.get(key)) is None else pod.usage_class
    )
    now = max(sample.timestamp for sample in scenario.node_samples.values())
    arrivals: dict[str, list[PodOnNode]] = defaultdict(list)
    for pod in scenario.running():
        if not pod.started and not pod.created:
            continue  # manifests by hand often say nothing of time: the sample is taken to contain the pod
        arrivals[pod.node_name].append(pod_on_node(store, pod, pod.started))
    waiting = ((key, store.foreseen(cluster.pods[key].usage_class)) for key in asking)
    missing = [name for name in cluster.nodes if not store.is_measured(name, now)]
    if missing:
        which = f"{len(missing)} of {len(cluster.nodes)} nodes, such as {missing[0]},"
        refused.append(
            f"{which} have no sample of the last {STALE_AFTER:.0f} seconds before the newest; their requests count"
        )
    return MeasuredUsage(
        tuple(store.measured_load(name, arrivals[name], now) for name in cluster.nodes),
        {key: usage for key, usage in waiting if usage is not None},
        tuple(refused),
    )
