"""What kube-scheduler does where nobody configures it, and what Thalweg does: the tables of two pages.

The list is kube-scheduler's own (``kube_scheduler_defaults.json``, which `python tests/record_scheduler_defaults.py`
writes): plugins, arguments and other fields of its configuration, and the feature gates that its code reads. What
Thalweg does is said here, and something of the list that is not named is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

STORED: Final = Path(__file__).parent / "kube_scheduler_defaults.json"


class Verdict(StrEnum):
    """How Thalweg's default is beside kube-scheduler's."""

    SAME = "same"
    BETTER = "better"
    DIFFERS = "differs"
    ABSENT = "absent"


SAME, BETTER, DIFFERS, ABSENT = Verdict


class Row(NamedTuple):
    """One thing of the list.

    Attributes:
        said: what Thalweg does.
        field: where it is set: a field of a policy, an option; "": nowhere.
    """

    verdict: Verdict
    said: str
    field: str = ""


_FILTER = "The same verdicts and words."
_LIMITS = "A search for devices ends after a number of steps, and an expression after a number of CEL's units."

PLUGINS: Final[Mapping[str, Row]] = {
    "SchedulingGates": Row(
        SAME, "A pod with a gate is not planned. A gate of Thalweg's own is opened by it alone.", "spec.waiting"
    ),
    "PrioritySort": Row(
        DIFFERS,
        "A higher priority goes first. Among equal ones the size of pods times how long they have waited decides: they "
        "go nearly in the order in which they came, and of those that came together those that fill the room.",
        "spec.unscheduled.per",
    ),
    "NodeUnschedulable": Row(SAME, _FILTER),
    "NodeName": Row(SAME, _FILTER),
    "TaintToleration": Row(
        SAME,
        f"{_FILTER} PreferNoSchedule counts as its score does.",
        "spec.cost.weights.taintPreference, spec.cost.preferences",
    ),
    "NodeAffinity": Row(
        SAME,
        f"{_FILTER} Preferred terms count as its score does.",
        "spec.cost.weights.nodePreference, spec.cost.preferences",
    ),
    "NodePorts": Row(SAME, _FILTER),
    "NodeResourcesFit": Row(
        DIFFERS,
        f"{_FILTER} The load of a node counts as its score does, but a node with GPUs or the like is left to pods that "
        "request them.",
        "spec.cost.weights.leastRequested, spec.cost.weights.idleResources",
    ),
    "VolumeRestrictions": Row(SAME, _FILTER),
    "NodeVolumeLimits": Row(SAME, _FILTER),
    "VolumeBinding": Row(
        SAME, f"{_FILTER} From 1.37 on free storage counts as its score does.", "spec.cost.weights.freeStorage"
    ),
    "VolumeZone": Row(SAME, _FILTER),
    "PodTopologySpread": Row(SAME, f"{_FILTER} ScheduleAnyway counts as its score does.", "spec.cost.weights.spread"),
    "InterPodAffinity": Row(
        SAME,
        f"{_FILTER} Preferred terms count as its score does.",
        "spec.cost.weights.podAffinity, spec.cost.preferences",
    ),
    "DynamicResources": Row(
        SAME,
        "The same devices on each node, and alternatives count as its score does. An allocated claim that nobody "
        "reserves is freed only if another node has devices for its pod.",
        "spec.cost.weights.deviceAlternatives",
    ),
    "DefaultPreemption": Row(
        DIFFERS,
        "The same victims, but PodDisruptionBudgets are always kept, no pod of kube-system and no static pod leaves, "
        "and a gang leaves as a whole or keeps its minimum. Pods leave by the Eviction API.",
        "spec.preemption",
    ),
    "NodeResourcesBalancedAllocation": Row(
        DIFFERS,
        "It counts as its score does, but a container without requests counts for 100m and 200 MiB here too. "
        "kube-scheduler counts so in LeastAllocated only.",
        "spec.cost.weights.balance",
    ),
    "ImageLocality": Row(SAME, "The same points.", "spec.cost.weights.imageLocality"),
    "DefaultBinder": Row(SAME, "A Binding. In delivery Extender kube-scheduler binds.", "spec.delivery"),
    "NodeDeclaredFeatures": Row(SAME, _FILTER),
}

#: By plugin and field.
ARGUMENTS: Final[Mapping[str, Row]] = {
    "DefaultPreemption.minCandidateNodesPercentage": Row(BETTER, "All nodes are candidates."),
    "DefaultPreemption.minCandidateNodesAbsolute": Row(BETTER, "All nodes are candidates."),
    "DynamicResources.filterTimeout": Row(DIFFERS, f"No time. {_LIMITS}"),
    "DynamicResources.bindingTimeout": Row(SAME, "The same time.", "--device-timeout"),
    "InterPodAffinity.hardPodAffinityWeight": Row(SAME, "The same weight. It cannot be set."),
    "InterPodAffinity.ignorePreferredTermsOfExistingPods": Row(SAME, "They count. That cannot be set."),
    "NodeAffinity.addedAffinity": Row(ABSENT, "No policy adds node affinity to its pods: give them a node selector."),
    "NodeResourcesBalancedAllocation.resources": Row(SAME, "CPU and memory. That cannot be set."),
    "NodeResourcesFit.ignoredResources": Row(ABSENT, "Every resource that a pod requests must be on its node."),
    "NodeResourcesFit.ignoredResourceGroups": Row(ABSENT, "Every resource that a pod requests must be on its node."),
    "NodeResourcesFit.scoringStrategy": Row(
        DIFFERS,
        "CPUMemory prefers the node with the least requested, as LeastAllocated; BinPacking the fullest, as "
        "MostAllocated. CPU and memory count alike.",
        "spec.cost.model",
    ),
    "PodTopologySpread.defaultConstraints": Row(SAME, "The same lists.", "spec.cost.defaultSpread"),
    "PodTopologySpread.defaultingType": Row(
        BETTER,
        "System. A pod of a controller is spread among all pods of it, also where Services leave kube-scheduler "
        "fewer to count, as a Service for each pod of a StatefulSet does.",
        "spec.cost.defaultSpread",
    ),
    "VolumeBinding.bindTimeoutSeconds": Row(SAME, "The same time. It cannot be set."),
    "VolumeBinding.shape": Row(SAME, "The shape of 1.37. It cannot be set."),
}

CONFIGURATION: Final[Mapping[str, Row]] = {
    "parallelism": Row(BETTER, "Rules are asked once for all nodes and all pods that are alike."),
    "leaderElection": Row(SAME, "A Lease of Thalweg's own.", "--lease, --replicated"),
    "clientConnection": Row(DIFFERS, "Writes are paced by the API server's answers.", "--kubeconfig, --context"),
    "percentageOfNodesToScore": Row(BETTER, "All nodes are compared, however many there are."),
    "podInitialBackoffSeconds": Row(
        BETTER, "A pod that does not fit is planned again in the next round. It pauses only if a write was refused."
    ),
    "podMaxBackoffSeconds": Row(
        DIFFERS, "A pod whose write was refused pauses for 60 seconds at most. That cannot be set."
    ),
    "profiles": Row(DIFFERS, "Policies, which select pods by scheduler, namespace and labels.", "spec.selects"),
    "extenders": Row(
        ABSENT,
        "No extender is asked. Where you need one, take delivery Extender: kube-scheduler asks it then.",
    ),
    "delayCacheUntilActive": Row(SAME, "A standby knows the cluster before it leads. That cannot be set."),
}

_NO_GATE = "Not followed."
_DEVICES = "Followed, on and off."

GATES: Final[Mapping[str, Row]] = {
    "CompositePodGroup": Row(ABSENT, "Pods below a CompositePodGroup wait and say so, and are not evicted."),
    "DRAAdminAccess": Row(SAME, _DEVICES, "--feature-gates"),
    "DRAConsumableCapacity": Row(SAME, _DEVICES, "--feature-gates"),
    "DRADerivedAttributes": Row(ABSENT, _NO_GATE),
    "DRADeviceBindingConditions": Row(SAME, _DEVICES, "--feature-gates"),
    "DRADeviceCompatibilityGroups": Row(ABSENT, _NO_GATE),
    "DRADeviceTaintRules": Row(SAME, _DEVICES, "--feature-gates"),
    "DRADeviceTaints": Row(SAME, _DEVICES, "--feature-gates"),
    "DRAExtendedResource": Row(SAME, _DEVICES, "--feature-gates"),
    "DRAFractionalCapacityRange": Row(SAME, _DEVICES, "--feature-gates"),
    "DRAListTypeAttributes": Row(ABSENT, "Attributes that are lists are not read."),
    "DRANodeAllocatableResources": Row(ABSENT, _NO_GATE),
    "DRAOptionalNodeOperations": Row(ABSENT, _NO_GATE),
    "DRAPartitionableDevices": Row(SAME, _DEVICES, "--feature-gates"),
    "DRAPrioritizedList": Row(SAME, _DEVICES, "--feature-gates"),
    "DRAResourceClaimDeviceStatus": Row(SAME, _DEVICES, "--feature-gates"),
    "DRASchedulerFilterTimeout": Row(DIFFERS, f"No time. {_LIMITS}"),
    "DRAWorkloadResourceClaims": Row(SAME, _DEVICES, "--feature-gates"),
    "DynamicResourceAllocation": Row(SAME, "Claims are planned."),
    "GangScheduling": Row(BETTER, "Gangs are placed whole, with the gate and without."),
    "GenericWorkload": Row(BETTER, "PodGroups are kept whole wherever the API server serves them."),
    "InPlacePodLevelResourcesVerticalScaling": Row(SAME, "A pod that is resized holds what kube-scheduler counts."),
    "InPlacePodVerticalScaling": Row(SAME, "A pod that is resized holds what kube-scheduler counts."),
    "InPlacePodVerticalScalingSchedulerPreemption": Row(
        BETTER,
        "Others leave or move for a pod that grows where it runs, whatever the gate; a node's `podPreemptionPolicy` is "
        "not read.",
        "spec.preemption.mode",
    ),
    "InterPodAffinityHostnameFastPath": Row(SAME, "It is about speed."),
    "MatchLabelKeysInPodTopologySpread": Row(SAME, "The keys are read."),
    "NodeDeclaredFeatures": Row(SAME, "Followed, from 1.36 on."),
    "NodeInclusionPolicyInPodTopologySpread": Row(SAME, "The policies are read."),
    "NominatedNodeNameForExpectation": Row(
        SAME,
        "A node that others name is tried first. Thalweg names the node where volumes and devices take longer than a "
        "moment.",
    ),
    "OpportunisticBatching": Row(BETTER, "All pods of a round that are alike are looked at once."),
    "PodGroupPreemptionPolicy": Row(BETTER, "A PodGroup's preemptionPolicy is read wherever the API server serves it."),
    "PodLevelResources": Row(
        BETTER,
        "The pod's own resources count in place of those of its containers. kube-scheduler's LeastAllocated counts "
        "those of the containers for the pod that it places.",
    ),
    "SchedulerAsyncAPICalls": Row(BETTER, "No plan waits for a write."),
    "SchedulerAsyncPreemption": Row(BETTER, "No plan waits for an eviction."),
    "SchedulerPopFromBackoffQ": Row(BETTER, "A pod that does not fit does not pause."),
    "SchedulerPreQueueingHints": Row(SAME, "It is about speed."),
    "SchedulerQueueingHints": Row(BETTER, "Verdicts that a change makes stale are asked again, for all pods at once."),
    "SidecarContainers": Row(SAME, "Init containers that go on running hold their room."),
    "StorageCapacityScoring": Row(SAME, "Followed, from 1.37 on.", "spec.cost.weights.freeStorage"),
    "TaintTolerationComparisonOperators": Row(ABSENT, "A toleration with Lt or Gt tolerates nothing."),
    "TopologyAwareWorkloadScheduling": Row(BETTER, "A PodGroup's topology is kept, with the gate and without."),
    "VolumeAttributesClass": Row(SAME, "The class of a volume is compared with its claim's."),
    "VolumeLimitScaling": Row(SAME, "Followed, from 1.37 on."),
    "WorkloadAwarePreemption": Row(BETTER, "A gang preempts and is preempted as a whole, with the gate and without."),
}


class Thing(NamedTuple):
    """A thing of kube-scheduler's list with what Thalweg does.

    Attributes:
        default: kube-scheduler's, in a few words; "": none that could be said so.
        on: whether it does something by default, in the newest version.
    """

    name: str
    default: str
    on: bool
    row: Row


def stored() -> dict[str, Any]:
    """kube-scheduler's list by version, the oldest first."""
    versions: dict[str, Any] = json.loads(STORED.read_text())
    return versions


def things(versions: Mapping[str, Any]) -> dict[str, list[Thing]]:
    """All of the list, by its four parts. Raises KeyError for what has no row, ValueError for rows of nothing."""
    parts = {
        "Plugins": (PLUGINS, lambda of: {each["name"]: each["weight"] for each in of["plugins"]}, _weight),
        "Arguments of plugins": (ARGUMENTS, lambda of: dict(_arguments(of)), _value),
        "Other fields of its configuration": (CONFIGURATION, lambda of: of["configuration"], _value),
        "Feature gates": (GATES, lambda of: of["gates"], _switch),
    }
    found = {}
    for part, (rows, read, words) in parts.items():
        defaults = {version: read(of) for version, of in versions.items()}
        names = sorted({name for of in defaults.values() for name in of})
        if left := rows.keys() - set(names):
            message = f"kube-scheduler has no {', '.join(sorted(left))}: remove the rows"
            raise ValueError(message)
        newest = list(defaults.values())[-1]
        found[part] = [
            Thing(
                name,
                words({version: of[name] for version, of in defaults.items() if name in of}),
                name in newest and (words is not _switch or newest[name]["enabled"]),
                rows[name],
            )
            for name in names
        ]
    return found


def _arguments(of: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for plugin, fields in of["arguments"].items():
        yield from ((f"{plugin}.{field}", value) for field, value in fields.items())


def _weight(by_version: Mapping[str, int]) -> str:
    return _told({version: f"weight {weight}" if weight else "" for version, weight in by_version.items()})


def _value(by_version: Mapping[str, Any]) -> str:
    shown = {version: value if isinstance(value, str) else json.dumps(value) for version, value in by_version.items()}
    if any(value in (None, [], {}) for value in by_version.values()) or max(map(len, shown.values())) > _LONG:
        return ""
    return _told({version: f"`{words}`" for version, words in shown.items()})


def _switch(by_version: Mapping[str, Mapping[str, Any]]) -> str:
    return _told({version: "on" if gate["enabled"] else "off" for version, gate in by_version.items()})


#: Characters of a default that is shown.
_LONG = 30


def _told(by_version: Mapping[str, str]) -> str:
    """Words that hold for each version, or what each version has."""
    words = set(by_version.values())
    if len(words) == 1 and len(by_version) == len(stored()):
        return words.pop()
    return ", ".join(f"{version}: {said or 'none'}" for version, said in by_version.items())


def whole_table() -> str:
    """Everything, part by part."""
    lines = []
    for part, found in things(stored()).items():
        lines += [
            f"### {part}",
            "",
            "| kube-scheduler | its default | Thalweg | what it does | set by |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| `{each.name}` | {each.default} | {each.row.verdict} | {each.row.said} | {_fields(each.row)} |"
            for each in found
        ]
        lines.append("")
    return "\n".join(lines[:-1])


def what_differs() -> str:
    """What is on in kube-scheduler by default, and is not the same or better here."""
    lines = ["| kube-scheduler | Thalweg | what it does | set by |", "|---|---|---|---|"]
    for found in things(stored()).values():
        lines += [
            f"| `{each.name}` | {each.row.verdict} | {each.row.said} | {_fields(each.row)} |"
            for each in found
            if each.on and each.row.verdict in (DIFFERS, ABSENT)
        ]
    return "\n".join(lines)


def _fields(row: Row) -> str:
    return ", ".join(f"`{name}`" for name in row.field.split(", ")) if row.field else ""
