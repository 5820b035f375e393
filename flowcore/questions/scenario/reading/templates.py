"""Claims that Kubernetes' controller will make from templates for pods of a dump that have none yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from flowcore.cluster.kinds import RESOURCE_CLAIMS
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import ClaimingPod, PodClaim, ResourceClaim
from flowcore.questions.scenario.reading.edits import Edits


def make_claims(edits: Edits, keys: Iterable[str]) -> None:
    """Gives pods without a node the claims of templates that are there.

    The controller makes them as soon as a pod is created, so a manifest of a pod is planned with them.

    Args:
        keys: of pods.
    """
    for key in keys:
        pod = edits.scenario.cluster.as_written(key)
        if pod is not None and not pod.node_name and not pod.terminal and pod.pod_class.devices is not None:
            _make_claims(edits, pod, pod.pod_class.devices)


def _make_claims(edits: Edits, pod: Pod, claiming: ClaimingPod) -> None:
    made = dict(claiming.made)
    for named, claim in _missing(edits, claiming):
        edits.put_object(RESOURCE_CLAIMS, claim)
        made[named.name] = claim.name
    if len(made) > len(claiming.made):
        with_claims = msgspec.structs.replace(claiming, made=tuple(made.items()))
        pod_class = msgspec.structs.replace(pod.pod_class, devices=with_claims)
        edits.put_pod(msgspec.structs.replace(pod, pod_class=pod_class))


def _missing(edits: Edits, claiming: ClaimingPod) -> Iterator[tuple[PodClaim, ResourceClaim]]:
    """Claims that no controller has made, as their templates say."""
    made = dict(claiming.made)
    for named in claiming.claims:
        template = edits.scenario.claim_templates.get((claiming.namespace, named.template))
        name = f"{claiming.name}-{named.name}"
        is_there = (claiming.namespace, name) in edits.scenario.cluster.devices.claims
        if template is not None and named.name not in made and not is_there:
            yield named, msgspec.structs.replace(template, name=name, uid=name, controller=claiming.uid)
