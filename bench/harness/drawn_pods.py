"""Pods of drawn clusters, which wait or run."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from flowcore.model.gang_spec import GangRef
from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.pods import Pod, PodClass

#: Seconds since the epoch.
NOW = 1_795_478_400.0


def drawn_pod(
    draw: random.Random,
    name: str,
    pod_class: PodClass,
    apps: Sequence[str],
    *,
    constraints: InterPodConstraints | None = None,
    gang: GangRef | None = None,
) -> Pod:
    """A pod that waits: of one of the apps, and up to five minutes old."""
    return Pod(
        "default",
        name,
        name,
        pod_class,
        labels=(("app", draw.choice(apps)),),
        scheduler_name="thalweg",
        created=NOW - draw.randint(0, 300),
        usage=pod_class.requests,
        constraints=constraints,
        gang=gang,
    )


def started(draw: random.Random, pod: Pod, node: str) -> Pod:
    """The same pod where it runs on a node, for 1 to 50 hours, and has an owner of its own."""
    return msgspec.structs.replace(
        pod, node_name=node, started=NOW - 3600.0 * draw.randint(1, 50), owner=f"owner of {pod.name}"
    )
