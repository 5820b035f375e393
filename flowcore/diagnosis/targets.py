"""The waiting pods that a question is about: a pod by itself, or those of a gang or a controller.

A scenario knows a pod's labels and the uid of its controller, not the controller. So pods are found by what controllers
write: the label of a Job, the label and the ordinal of a StatefulSet, the name of a ReplicaSet before five random
characters, the hash of a Deployment's template.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from flowcore.model.pods import Pod
from flowcore.model.selectors import value_of
from flowcore.scenario import Scenario
from flowcore.scenario.context import AnswerContext, UnknownName

_JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name")
_TEMPLATE_HASH = "pod-template-hash"
_STATEFUL_POD = "statefulset.kubernetes.io/pod-name"
#: A generated name: at most so many characters of the prefix, then five random ones
#: (apiserver/pkg/storage/names/generate.go).
_MAX_PREFIX, _RANDOM = 58, re.compile(r"[a-z0-9]{5}")


def waiting_pods(scenario: Scenario, target: str, context: AnswerContext) -> list[Pod]:
    """The waiting pods of a target, in the order in which they came.

    Args:
        target: ``namespace/pod`` or ``kind/namespace/name``.

    Raises:
        UnknownName: there is no such target that the asker may see, or none of its pods waits.
    """
    parts = target.split("/")
    if len(parts) == 2:
        parts = ["pod", *parts]
    if len(parts) != 3 or not all(parts):
        raise UnknownName(f"{target}", "expected NAMESPACE/POD or KIND/NAMESPACE/NAME")
    kind, namespace, name = parts[0].lower(), parts[1], parts[2]
    if kind == "pod":
        return [_pod(scenario, f"{namespace}/{name}", context)]
    belongs = _MEMBERS.get(kind)
    if belongs is None:
        raise UnknownName(f"{target}", f"unknown kind {parts[0]}; known are pod, {', '.join(sorted(_MEMBERS))}")
    pods = [
        pod
        for pod in (scenario.cluster.pods.values() if context.sees(namespace) else ())
        if pod.namespace == namespace and not pod.terminal and belongs(pod, name)
    ]
    if not pods:
        raise UnknownName(f"{kind} {namespace}/{name}", "no pod belongs to it")
    waiting = {pod.key for pod in pods if not pod.node_name}
    if not waiting:
        raise UnknownName(f"{kind} {namespace}/{name}", "none of its pods waits")
    return [pod for pod in scenario.waiting() if pod.key in waiting]


def _pod(scenario: Scenario, key: str, context: AnswerContext) -> Pod:
    pod = scenario.cluster.pods.get(key) if context.may_name(key) else None
    if pod is None:
        raise UnknownName(f"pod {key}", "there is no such pod")
    if pod.terminal:
        raise UnknownName(f"pod {key}", "it has finished and needs no node")
    if pod.node_name:
        raise UnknownName(f"pod {key}", f"it does not wait: it is bound to {context.node(pod.node_name)}")
    return scenario.cluster.waiting.get(key, pod)


def _in_gang(pod: Pod, name: str) -> bool:
    return pod.gang is not None and pod.gang.key.name == name


def _of_job(pod: Pod, name: str) -> bool:
    return any(value_of(pod.labels, label) == name for label in _JOB_LABELS)


def _of_stateful_set(pod: Pod, name: str) -> bool:
    return (
        value_of(pod.labels, _STATEFUL_POD) == pod.name
        and re.fullmatch(rf"{re.escape(name)}-\d+", pod.name) is not None
    )


def _of_replica_set(pod: Pod, name: str) -> bool:
    prefix = f"{name}-"[:_MAX_PREFIX]
    return bool(pod.owner) and pod.name.startswith(prefix) and bool(_RANDOM.fullmatch(pod.name.removeprefix(prefix)))


def _of_deployment(pod: Pod, name: str) -> bool:
    template = value_of(pod.labels, _TEMPLATE_HASH)
    return bool(template) and _of_replica_set(pod, f"{name}-{template}")


_MEMBERS: dict[str, Callable[[Pod, str], bool]] = {
    "gang": _in_gang,
    "job": _of_job,
    "statefulset": _of_stateful_set,
    "replicaset": _of_replica_set,
    "deployment": _of_deployment,
}
