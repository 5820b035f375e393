"""Objects that a pod depends on and that do not exist: storage of its claims, and what it names itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from flowcore.api.kinds import PRIORITY_CLASS
from flowcore.model.pods import Pod
from flowcore.model.volumes import Claim, ClaimVolume, PersistentVolume, StorageClass
from flowcore.questions.diagnosis.lists import listed
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.rules.devices.pod_claims import named_claims


class MissingObject(NamedTuple):
    """An object that does not exist.

    Attributes:
        text: a sentence that says so.
        step: what to do about it.
    """

    text: str
    step: str


def missing_storage(scenario: Scenario, pod: Pod, context: AnswerContext) -> list[MissingObject]:
    """Claims, volumes and StorageClasses that a pod needs and that are not there; a kind without objects is unknown."""
    return list(_missing_storage(scenario, pod, context))


def _missing_storage(scenario: Scenario, pod: Pod, context: AnswerContext) -> Iterator[MissingObject]:
    objects = scenario.cluster.storage.objects
    kinds = {type(each) for each in objects.values()}
    if scenario.complete:
        kinds |= {Claim, StorageClass, PersistentVolume}
    classes = sorted(each.name for each in objects.values() if isinstance(each, StorageClass))
    for volume in pod.pod_class.volumes:
        if not isinstance(volume, ClaimVolume) or Claim not in kinds:
            continue
        shown = f"PersistentVolumeClaim {volume.namespace}/{volume.name}"
        claim = objects.get(("PersistentVolumeClaim", volume.namespace, volume.name))
        if not isinstance(claim, Claim):
            step = f"Create PersistentVolumeClaim {volume.name} in namespace {volume.namespace}."
            yield MissingObject(f"{shown} does not exist.", step)
        elif claim.volume_name:
            # Where no volume is known, the claim's phase says it.
            known = PersistentVolume in kinds and ("PersistentVolume", "", claim.volume_name) not in objects
            if claim.lost or known:
                text = f"PersistentVolume {claim.volume_name}, which {shown} is bound to, does not exist."
                yield MissingObject(text, "Restore the volume, or create the claim anew.")
        elif claim.storage_class and StorageClass in kinds and claim.storage_class not in classes:
            text = f"StorageClass {claim.storage_class}, which {shown} names, does not exist"
            # A caller who may not read nodes may not read StorageClasses either, perhaps.
            text += f"; there {_are(classes)}." if context.nodes else "."
            yield MissingObject(text, f"Create StorageClass {claim.storage_class}, or name another one in the claim.")


def missing_device_classes(scenario: Scenario, pod: Pod, context: AnswerContext) -> list[MissingObject]:
    """DeviceClasses that the pod's claims without devices name and that are not there, each once."""
    claiming, devices = pod.pod_class.devices, scenario.cluster.devices
    claims = {} if claiming is None else named_claims(claiming, devices.claims)
    asked = dict.fromkeys(
        (name, alternative.device_class)
        for name, claim in claims.items()
        if claim.allocation is None
        for request in claim.requests
        for alternative in request.alternatives
    )
    # As with StorageClasses, names of others are for callers who may read nodes.
    others = f"; there {_are(sorted(devices.classes))}." if context.nodes else "."
    return [
        MissingObject(
            f"DeviceClass {device_class}, which claim {name} asks for, does not exist{others}",
            f"Create DeviceClass {device_class}, or ask for another one in the claim.",
        )
        for name, device_class in asked
        if device_class and device_class not in devices.classes
    ]


def _are(names: list[str]) -> str:
    return f"{'is' if len(names) == 1 else 'are'} {listed(names)}" if names else "is none"


def missing_names(scenario: Scenario, pod: Pod) -> list[MissingObject]:
    """What a pod names and what is not there; of a kind without objects nothing is known."""
    return list(_missing_names(scenario, pod))


def _missing_names(scenario: Scenario, pod: Pod) -> Iterator[MissingObject]:
    known = {kind for kind, *_ in scenario.named}
    for kind, namespace, name in scenario.names.get(pod.key, ()):
        if kind == PRIORITY_CLASS.kind:
            if classes := sorted(scenario.priority_classes):
                yield MissingObject(
                    f"PriorityClass {name} does not exist, so its priority counts as 0; there "
                    f"{'is' if len(classes) == 1 else 'are'} {listed(classes)}.",
                    f"Create PriorityClass {name}, or name another one: the API server refuses new pods that name it.",
                )
        elif kind in known and (kind, namespace, name) not in scenario.named:
            yield MissingObject(
                f"{kind} {namespace}/{name} does not exist.", f"Create {kind} {name} in namespace {namespace}."
            )
