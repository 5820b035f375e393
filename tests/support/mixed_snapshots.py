"""Drawn clusters at any load: pods of mixed sizes and ages on unequal nodes."""

import numpy as np
from hypothesis import strategies as st
from support.model import GI, node, pod, snapshot

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import HostPort
from flowcore.model.selectors import LabelSelector, Requirement


@st.composite
def mixed_snapshots(draw: st.DrawFn, *, rules: bool = False) -> Snapshot:
    """Up to 150 pods at a load between a quarter and one and a half; with rules, many have some or a host port."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    pods, classes, nodes = draw(st.integers(2, 150)), draw(st.integers(1, 10)), draw(st.integers(1, 12))
    load = draw(st.sampled_from((0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)))
    sizes = np.column_stack([random.choice((250, 500, 1000, 3000, 8000), classes), random.integers(1, 24, classes)])
    of = random.integers(0, classes, pods)
    shape = random.uniform(0.5, 1.5, (nodes, 2))
    capacity = np.maximum(shape / shape.sum(axis=0) * sizes[of].sum(axis=0) / load, 1).astype(np.int64)
    selects = random.random(classes) < 0.3
    ages = random.integers(0, 600, pods) if draw(st.booleans()) else np.zeros(pods)
    fields = [_rules(f"app{at}", int(random.integers(0, 8)) if rules else 7) for at in range(classes)]
    return snapshot(
        [node(f"n{at}", int(cpu), int(gi) * GI, labels=(("host", f"n{at}"), ("zone", "ab"[at % 2])))
         for at, (cpu, gi) in enumerate(capacity.tolist())],
        [
            pod(f"p{at}", *(int(sizes[of[at], 0]), int(sizes[of[at], 1]) * GI), created=1000.0 - age,
                node_selector=(("zone", "a"),) if selects[of[at]] else (), **fields[of[at]])
            for at, age in enumerate(ages.tolist())
        ],
        now=1000.0,
    )  # fmt: skip


def _rules(app: str, which: int) -> dict[str, object]:
    own = LabelSelector((Requirement("app", "In", (app,)),))
    labels = (("app", app),)
    near = AffinityTerm("zone", own, ("default",))
    apart = AffinityTerm("host", own, ("default",))
    found = {
        0: InterPodConstraints(spread=(SpreadConstraint("zone", 1, own),)),
        1: InterPodConstraints(anti_affinity=(apart,)),
        2: InterPodConstraints(affinity=(near,)),
        3: InterPodConstraints(spread=(SpreadConstraint("host", 2, own),), anti_affinity=(near,)),
    }.get(which)
    if found is not None:
        return {"kind": PodSignature("default", labels, constraints=found)}
    return {"host_ports": (HostPort("TCP", "10.0.0.1", 80),)} if which == 4 else {}
