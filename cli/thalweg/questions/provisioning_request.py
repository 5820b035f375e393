"""``thalweg headroom --write ProvisioningRequest``: asks cluster-autoscaler for nodes for a gang, all or none.

Source: kubernetes/autoscaler, cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1/types.go.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from flowcore.model.amount_text import counted
from flowcore.model.errors import ModelError
from flowcore.model.selectors import is_dns_subdomain
from flowcore.questions.scenario.alternatives.headroom import HeadroomQuery
from flowcore.questions.scenario.alternatives.new_nodes.gang import GangNodes
from thalweg.questions.headroom import QUESTION
from thalweg.sources.asking import opened, run
from thalweg.sources.source import SourceOptions
from thalweg.terminal.documents import print_document, yaml_of
from thalweg.terminal.telling import tell_note

#: Its own controller makes nodes for all pods of a request, or for none.
CLASS: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
_ANNOTATIONS: Final = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "autoscaling.x-k8s.io/provisioning-class-name",
)
#: Most sets of pods of one request, by its CRD.
MAX_POD_SETS: Final = 32
#: Longest name of a PodTemplate and of a request.
_LONGEST_NAME: Final = 253
#: Labels that tell a pod from others of its controller. No rule of its scheduling reads them.
_OF_ONE_POD: Final = frozenset(
    (
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "leaderworkerset.sigs.k8s.io/worker-index",
        "statefulset.kubernetes.io/pod-name",
        "training.kubeflow.org/replica-index",
        "volcano.sh/task-index",
    )
)
#: What the API server or others write into the spec of one pod, and schedulers of the template's pods must not read.
_NOT_OF_TEMPLATE: Final = ("nodeName", "schedulingGates", "schedulingGroup", "hostname", "ephemeralContainers")
#: Fields of a container that decide where its pod fits.
_OF_CONTAINER: Final = ("name", "image", "resources", "ports", "restartPolicy")
#: Volumes that fit on every node.
_EVERYWHERE: Final = frozenset(
    ("configMap", "secret", "emptyDir", "projected", "downwardAPI", "hostPath", "image", "gitRepo")
)


def run_provisioning_request(options: SourceOptions, gang: str, output: str) -> None:
    """Prints the request and its PodTemplates. Where none helps: one line of error, and exit code 2.

    Args:
        gang: ``namespace/name``, or a name without its namespace.
    """

    async def ask() -> None:
        async with opened(options) as source:
            name = gang if "/" in gang else f"{source.namespace}/{gang}"
            answer = await source.ask(QUESTION, HeadroomQuery(gang=name, scale_ups=0))
            if answer.gang is None:
                raise ModelError(f"gang {name}", "the operator is older than this command, and knows no gang")
            objects = request_objects(name.partition("/")[2], answer.gang, await source.pods(answer.gang.pods))
        if output == "json":
            print_document({"apiVersion": "v1", "kind": "List", "items": objects}, output)
        else:
            click.echo(yaml_of(objects), nl=False)
        for note in _notes(answer.gang, objects[-1]["metadata"]["name"]):
            tell_note(note)

    run(ask())


def request_objects(name: str, gang: GangNodes, pods: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A PodTemplate for each kind of the pods, and last the ProvisioningRequest for all of them.

    Args:
        name: of the gang.
        pods: as the API server has them.

    Raises:
        ModelError: the pods are of more kinds than a request may have.
    """
    kinds: dict[str, tuple[dict[str, Any], int]] = {}
    for pod in pods:
        template = _template(pod)
        key = json.dumps(template, sort_keys=True)
        kinds[key] = template, kinds.get(key, (template, 0))[1] + 1
    if len(kinds) > MAX_POD_SETS:
        problem = f"its pods are of {len(kinds)} kinds, and a ProvisioningRequest has {MAX_POD_SETS} at most"
        raise ModelError(gang.gang, problem)
    namespace = gang.pods[0].partition("/")[0]
    short = _object_name(name)
    names = [f"{short}-{number}" for number in range(len(kinds))]
    templates = [
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": of, "namespace": namespace}, "template": each}
        for of, (each, _) in zip(names, kinds.values(), strict=True)
    ]
    sets = [
        {"podTemplateRef": {"name": of}, "count": count} for of, (_, count) in zip(names, kinds.values(), strict=True)
    ]
    request = {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": short, "namespace": namespace},
        "spec": {"provisioningClassName": CLASS, "podSets": sets},
    }
    return [*templates, request]


def _notes(gang: GangNodes, name: str) -> tuple[str, ...]:
    nodes, pods = counted(gang.count, "new node"), counted(len(gang.pods), "pod")
    witness = f"with {nodes} like {gang.like} a plan places all {pods} of {gang.gang}"
    consume = f"{_ANNOTATIONS[0]}={name} {_ANNOTATIONS[1]}={CLASS}"
    return f"{witness}; cluster-autoscaler chooses the nodes itself", f"annotate these pods: {consume}"


def _object_name(gang: str) -> str:
    """A name for the request, with room for the number of a template.

    Gangs that annotations name may be called as no object may.
    """
    longest = _LONGEST_NAME - len(f"-{MAX_POD_SETS}")
    if len(gang) <= longest and is_dns_subdomain(gang):
        return gang
    digest = hashlib.sha256(gang.encode()).hexdigest()[:8]
    legal = re.sub("[^a-z0-9]+", "-", gang.lower())[: longest - len(digest) - 1]
    return f"{legal.strip('-')}-{digest}".lstrip("-")


def _template(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What of a pod decides which nodes it fits on, as the template of its kind."""
    spec = {key: value for key, value in copy.deepcopy(dict(pod["spec"])).items() if key not in _NOT_OF_TEMPLATE}
    for containers in ("containers", "initContainers"):
        if containers in spec:
            spec[containers] = [
                {key: each[key] for key in _OF_CONTAINER if key in each} for each in spec[containers] or ()
            ]
    volumes = [each for each in spec.pop("volumes", None) or () if _EVERYWHERE.isdisjoint(each)]
    if volumes:
        spec["volumes"] = volumes
    labels = pod.get("metadata", {}).get("labels") or {}
    kept = {key: value for key, value in labels.items() if key not in _OF_ONE_POD}
    return {"metadata": {"labels": kept}, "spec": spec}
