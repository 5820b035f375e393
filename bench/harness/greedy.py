"""One pod after the other, in plain loops that share nothing with the engine: what it is compared with.

Scores are kube-scheduler's (plugins/noderesources least_allocated.go and most_allocated.go): of cpu and memory, as its
defaults have it, weight 1 each, in its integers. GPUs are room to be had, not part of the score. Among equal scores
the first node wins, where kube-scheduler draws one. FGD's cost is that of the paper (``harness.whole_fragments``).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import numpy as np
from openb import GPU

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.pods import PodClass
from harness.rechecks import Checker, Int64s, Placed
from harness.whole_fragments import Float64s, WholeFragments

_MOST = 100


class Taste(Enum):
    """Which of the nodes that fit a pod gets."""

    PREFERENCE = "greedy by preference"  #: the first in its class's own ranking of the nodes, drawn at random
    LEAST = "least allocated"
    MOST = "most allocated"
    FGD = "FGD"  #: where the fragments of GPUs rise least, by the waiting pods of the snapshot


def place(
    checker: Checker, pods: Iterable[PendingPod], taste: Taste, seed: int = 0, free: Int64s | None = None
) -> list[Placed]:
    """Places pods in the order given; those that fit nowhere at their turn are left out.

    Args:
        free: int64[N, R], what is free as they come; None: what the snapshot says.
    """
    snapshot = checker.snapshot
    columns = [snapshot.resources.index(name) for name in ("cpu", "memory")]
    capacity = np.maximum(snapshot.allocatable[:, columns], 1)
    free = checker.free() if free is None else free.copy()
    draw = np.random.default_rng(seed)
    fragments = WholeFragments(checker, GPU) if taste is Taste.FGD else None
    rankings: dict[PodClass, Int64s] = {}
    hopeless: set[PodClass] = set()
    placed: list[Placed] = []
    for pod in pods:
        asked = pod.pod_class
        if asked in hopeless:
            continue
        nodes = np.nonzero(checker.fits(asked, free))[0]
        if not len(nodes):
            hopeless.add(asked)  # room only shrinks
            continue
        if taste is Taste.PREFERENCE:
            if asked not in rankings:
                rankings[asked] = draw.permutation(len(free))
            score: Int64s | Float64s = -rankings[asked][nodes]
        elif fragments is not None:
            score = -fragments.rise(asked, nodes, free)
        else:
            left = free[np.ix_(nodes, columns)] - checker.wanted(asked)[columns]
            share = left if taste is Taste.LEAST else capacity[nodes] - left
            score = (share * _MOST // capacity[nodes]).sum(axis=1) // len(columns)
        at = int(nodes[score.argmax()])
        free[at] -= checker.wanted(asked)
        placed.append((pod, at))
    return placed
