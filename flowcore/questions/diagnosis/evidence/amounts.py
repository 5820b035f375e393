"""Amounts that no node has, however empty it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowcore.model.amount_text import exact_amount, requested_amount, short_amount
from flowcore.questions.diagnosis.finding import UnplacedCase
from flowcore.rules.filters import node_affinity, node_name, node_resources_fit, taint_toleration
from flowcore.rules.reasons.preemption import too_small

#: Filters that say which nodes are meant for a pod, whoever runs there.
_MEANT = (node_name.NAME, taint_toleration.NAME, node_affinity.NAME)


def amounts(pod: UnplacedCase) -> Iterator[str]:
    """A sentence for each resource of which a pod asks for more than any node has that is meant for it."""
    snapshot, pod_class = pod.plan.result.after, pod.unplaced.pod.pod_class
    left, asked = node_resources_fit.left_to_devices(pod_class, snapshot), dict(pod_class.requests)
    missing = node_resources_fit.not_offered(pod_class, snapshot)
    for resource in missing:
        yield f"It asks for {_amount(resource, asked[resource])}, and no node has {resource}."
    meant = ~pod.after.rejected_by(_MEANT)
    where = "any node has" if meant.all() else "any node has that its node selector and tolerations allow"
    told = bool(missing)
    for column, resource in enumerate(snapshot.resources):
        has = snapshot.allocatable[meant, column]
        if resource in left or not len(has) or asked.get(resource, 0) <= int(has.max()):
            continue
        told = True
        largest = int(has.max())
        most = f"the largest has {_beside(resource, largest, asked[resource])}" if largest else "none has any"
        yield f"It asks for {_amount(resource, asked[resource])}, more than {where}: {most}."
    if not told and meant.any() and bool(too_small(pod_class, snapshot)[np.flatnonzero(meant)].all()):
        yield "It asks for more than any node has of all resources at once, even when it is empty."


def _beside(resource: str, largest: int, asked: int) -> str:
    """What the largest node has: in few digits, unless they are those of what is asked for."""
    short = short_amount(resource, largest)
    return exact_amount(resource, largest) if short == short_amount(resource, asked) else short


def _amount(resource: str, amount: int) -> str:
    return f"{requested_amount(resource, amount)} {resource}"
