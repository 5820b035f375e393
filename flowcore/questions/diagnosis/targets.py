"""The waiting pods that a question is about: a pod by itself, or those of a gang or a controller.

A pod names its controller in its owner references; a Deployment is known by the hash of its template in the name of its
ReplicaSet. The label of a Job counts too: a pod may be the Job's by way of another controller.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flowcore.model.pods import Pod
from flowcore.model.selectors import value_of
from flowcore.model.workloads import controller_of, workload_of
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.near_names import did_you_mean

#: Kinds as people write them.
_KINDS = {
    "daemonset": "DaemonSet", "deployment": "Deployment", "job": "Job", "replicaset": "ReplicaSet",
    "statefulset": "StatefulSet",
}  # fmt: skip
_JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name")


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
    belongs = _MEMBERS.get(kind, partial(_controlled, kind))
    pods = [
        pod
        for pod in (scenario.cluster.pods.values() if context.sees(namespace) else ())
        if pod.namespace == namespace and not pod.terminal and belongs(pod, name)
    ]
    if not pods and kind not in _MEMBERS:
        known = f"pod, {', '.join(sorted(_MEMBERS))} and those of other controllers"
        near = did_you_mean(kind, ("pod", *_MEMBERS, *_kinds(scenario, context)))
        near = near or _near_workload(scenario, f"{kind}/{namespace}/{name}", context)
        raise UnknownName(f"{target}", f"no pod belongs to it; kinds are {known}{near}")
    if not pods:
        near = _near_workload(scenario, f"{kind}/{namespace}/{name}", context)
        raise UnknownName(f"{kind} {namespace}/{name}", f"no pod belongs to it{near}")
    waiting = {pod.key for pod in pods if not pod.node_name}
    if not waiting:
        raise UnknownName(f"{kind} {namespace}/{name}", "none of its pods waits")
    return [pod for pod in scenario.waiting() if pod.key in waiting]


def _pod(scenario: Scenario, key: str, context: AnswerContext) -> Pod:
    pod = scenario.cluster.pods.get(key) if context.may_name(key) else None
    if pod is None:
        raise UnknownName(f"pod {key}", f"there is no such pod{_hint(scenario, key, context)}")
    if pod.terminal:
        raise UnknownName(f"pod {key}", "it has finished and needs no node")
    if pod.node_name:
        raise UnknownName(f"pod {key}", f"it does not wait: it is bound to {context.node(pod.node_name)}")
    return scenario.cluster.waiting.get(key, pod)


def _hint(scenario: Scenario, key: str, context: AnswerContext) -> str:
    """The workload of that name, as it is to be asked about, or a pod of nearly this name; "": none may be seen."""
    pods = [pod for pod in scenario.cluster.pods.values() if not pod.terminal and context.sees(pod.namespace)]
    namespace, _, name = key.partition("/")
    # Workloads of which pods wait come first.
    for pod in sorted(pods, key=lambda each: bool(each.node_name)):
        for owner in (controller_of(pod), workload_of(pod)) if pod.namespace == namespace else ():
            kind, _, own = owner.partition(f"/{namespace}/")
            if own == name:
                return f", but a {_KINDS.get(kind, kind)} has this name: why {owner}"
    return did_you_mean(key, (pod.key for pod in pods))


def _near_workload(scenario: Scenario, target: str, context: AnswerContext) -> str:
    pods = [pod for pod in scenario.cluster.pods.values() if not pod.terminal and context.sees(pod.namespace)]
    return did_you_mean(target, {owner for pod in pods for owner in (controller_of(pod), workload_of(pod)) if owner})


def _kinds(scenario: Scenario, context: AnswerContext) -> set[str]:
    pods = (pod for pod in scenario.cluster.pods.values() if context.sees(pod.namespace))
    return {workload_of(pod).partition("/")[0] for pod in pods}


def _in_gang(pod: Pod, name: str) -> bool:
    return pod.gang is not None and pod.gang.key.name == name


def _of_job(pod: Pod, name: str) -> bool:
    return _controlled("job", pod, name) or any(value_of(pod.labels, label) == name for label in _JOB_LABELS)


def _of_replica_set(pod: Pod, name: str) -> bool:
    return pod.controller == f"ReplicaSet/{name}"


def _controlled(kind: str, pod: Pod, name: str) -> bool:
    return controller_of(pod) == f"{kind}/{pod.namespace}/{name}"


_MEMBERS: dict[str, Callable[[Pod, str], bool]] = {
    "gang": _in_gang,
    "job": _of_job,
    "statefulset": partial(_controlled, "statefulset"),
    "replicaset": _of_replica_set,
    "deployment": partial(_controlled, "deployment"),
}
