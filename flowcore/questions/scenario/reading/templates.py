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

    The controller makes them as soon as a pod is created, so a manifest of a pod is planned with them. One that the
    pods of a PodGroup share is made once.

    Args:
        keys: of pods.
    """
    for key in keys:
        pod = edits.scenario.cluster.as_written(key)
        if pod is not None and not pod.node_name and not pod.terminal:
            claiming = edits.scenario.cluster.pods[key].pod_class.devices  # knows its PodGroup
            if claiming is not None:
                _make_claims(edits, pod, claiming)


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
    """Claims that no controller has made, or that were made for another pod of the PodGroup, as their templates say."""
    made, claims = dict(claiming.made), edits.scenario.cluster.devices.claims
    for named in claiming.claims:
        template = edits.scenario.claim_templates.get((claiming.namespace, named.template))
        group = claiming.group if claiming.is_of_group(named) else None
        owner, uid = (claiming.name, claiming.uid) if group is None else (group.name, group.uid)
        name = f"{owner}-{named.name}"
        shown = claims.get((claiming.namespace, name))
        if template is None or named.name in made:
            continue
        if shown is None:
            of_group = "" if group is None else group.name
            yield (
                named,
                msgspec.structs.replace(template, name=name, uid=name, controller=uid, controller_group=of_group),
            )
        elif group is not None and shown.controller_group == group.name:
            yield named, shown
