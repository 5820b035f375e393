"""Storage objects that a pod's claims name and that do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from flowcore.model.pods import Pod
from flowcore.model.volumes import Claim, ClaimVolume, PersistentVolume, StorageClass
from flowcore.questions.diagnosis.lists import listed
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext


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
    return list(_missing(scenario, pod, context))


def _missing(scenario: Scenario, pod: Pod, context: AnswerContext) -> Iterator[MissingObject]:
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
            if PersistentVolume in kinds and ("PersistentVolume", "", claim.volume_name) not in objects:
                text = f"PersistentVolume {claim.volume_name}, which {shown} is bound to, does not exist."
                yield MissingObject(text, "Restore the volume, or create the claim anew.")
        elif claim.storage_class and StorageClass in kinds and claim.storage_class not in classes:
            text = f"StorageClass {claim.storage_class}, which {shown} names, does not exist"
            # A caller who may not read nodes may not read StorageClasses either, perhaps.
            text += f"; there {_are(classes)}." if context.nodes else "."
            yield MissingObject(text, f"Create StorageClass {claim.storage_class}, or name another one in the claim.")


def _are(names: list[str]) -> str:
    return f"{'is' if len(names) == 1 else 'are'} {listed(names)}" if names else "is none"
