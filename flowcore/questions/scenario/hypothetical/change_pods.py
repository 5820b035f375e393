"""Hypothetical changes of pods."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flowcore.cluster.kinds import RESOURCE_CLAIMS
from flowcore.model.pods import Pod
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.hypothetical.changed_specs import SpecChange, with_changed_spec
from flowcore.questions.scenario.hypothetical.changes import MovePod
from flowcore.questions.scenario.near_names import did_you_mean
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.rules.devices.pod_claims import own_claims


def find_pod(edits: Edits, key: str, context: AnswerContext) -> Pod:
    """A pod by its key.

    Raises:
        UnknownName: there is none that the asker may see.
    """
    pod = edits.scenario.cluster.pods.get(key)
    if pod is None or not context.may_name(key):
        raise UnknownName("", f"there is no pod {key}{did_you_mean(key, context.visible(edits.scenario.cluster.pods))}")
    return pod


def to_waiting(pod: Pod, now: float) -> Pod:
    """A running pod as its controller creates it anew: it waits from now on.

    Args:
        now: seconds since the epoch.
    """
    pod_class, claiming = pod.pod_class, pod.pod_class.devices
    if claiming is not None and claiming.has_extended_claim:
        own = claiming.without_extended_claim
        pod_class = msgspec.structs.replace(pod_class, devices=own if own.claims else None)
    return msgspec.structs.replace(
        pod,
        pod_class=pod_class,
        node_name="",
        created=now,
        usage=pod.pod_class.requests,
        nominated_node="",
        planned_node="",
        unschedulable_message="",
        unschedulable_reason="",
        unschedulable_since=0.0,
        started=0.0,
        immovable_reason="",
    )


def evict(edits: Edits, pods: Iterable[Pod], now: float) -> None:
    """Takes pods off their nodes: they wait, and claims that only they use lose their devices.

    Pods that are being deleted are gone instead.

    Args:
        now: seconds since the epoch.
    """
    for pod in pods:
        _release_devices(edits, pod)
        if pod.deleting:
            edits.remove_pod(pod.key)
        else:
            edits.put_pod(to_waiting(pod, now), as_given=True)


def _release_devices(edits: Edits, pod: Pod) -> None:
    claiming = pod.pod_class.devices
    for claim in () if claiming is None else own_claims(claiming, edits.scenario.cluster.devices.claims):
        edits.put_object(RESOURCE_CLAIMS, msgspec.structs.replace(claim, allocation=None, reserved_for=()))


def running(edits: Edits, keys: Iterable[str], context: AnswerContext) -> list[Pod]:
    """The running pods of these keys.

    Raises:
        UnknownName: there is no such pod, or it does not run.
    """
    pods = [find_pod(edits, key, context) for key in keys]
    for pod in pods:
        if not pod.node_name or pod.terminal:
            raise UnknownName("", f"pod {pod.key} does not run, so it cannot be evicted")
    return pods


def move(edits: Edits, change: MovePod, context: AnswerContext) -> None:
    """Puts a pod on a node."""
    pod = find_pod(edits, change.pod, context)
    if change.node not in edits.scenario.cluster.nodes:
        near = did_you_mean(change.node, edits.scenario.cluster.nodes)
        raise UnknownName("", f"there is no node {change.node}{near}")
    moved = msgspec.structs.replace(pod, node_name=change.node, nominated_node="", planned_node="")
    edits.put_pod(moved, as_given=True)


def change_spec(edits: Edits, change: SpecChange, context: AnswerContext) -> None:
    """Changes what a pod asks for.

    Raises:
        ModelError: there is no such pod, or it may not have a value that the change gives it.
    """
    edits.put_pod(with_changed_spec(find_pod(edits, change.pod, context), change), as_given=True)
