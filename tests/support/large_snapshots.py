"""Drawn crowds: many plain pods of few sizes on few nodes."""

from dataclasses import replace

import msgspec
from hypothesis import strategies as st
from support.model import GI, node, pod, snapshot

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.gangs import Gang


@st.composite
def large_snapshots(draw: st.DrawFn) -> Snapshot:
    """A few plain nodes and many plain pods of a few sizes: here flows decide, and room is short."""
    nodes = [
        node(f"n{at}", cores * 1000, gi * GI, pods=pods, gpu=gpus, labels=(("zone", zone),))
        for at, (cores, gi, pods, gpus, zone) in enumerate(
            draw(
                st.lists(
                    st.tuples(
                        st.integers(1, 8), st.integers(1, 8), st.sampled_from((110, 3)), st.sampled_from((0, 0, 2)),
                        st.sampled_from("ab"),
                    ),
                    min_size=1, max_size=8,
                )
            )
        )
    ]  # fmt: skip
    wishes = draw(
        st.lists(
            st.tuples(
                st.sampled_from((0, 250, 500, 1000, 1500, 2000, 3000)),
                st.sampled_from((0, 1, 2, 4)), st.sampled_from((0, 0, 1)),
                st.sampled_from(("", "", "a", "b")), st.sampled_from((0, 0, 100)), st.integers(1, 20),
            ),
            min_size=1, max_size=6,
        )
    )  # fmt: skip
    pending = [
        pod(f"w{at}-{i}", cpu, gi * GI, gpu=gpu, node_selector=(("zone", zone),) if zone else (), priority=priority)
        for at, (cpu, gi, gpu, zone, priority, count) in enumerate(wishes)
        for i in range(count)
    ]
    return snapshot(nodes, pending)


@st.composite
def with_gangs(draw: st.DrawFn, crowd: st.SearchStrategy[Snapshot] | None = None) -> Snapshot:
    """A crowd, or another snapshot, some of whose pods are in gangs: overlapping, in units, in one zone, with flaws."""
    found = draw(crowd if crowd is not None else large_snapshots())
    names = [f"g{at}" for at in range(draw(st.integers(1, 6)))]
    strangers = draw(st.sampled_from(((), (), (), ("stranger",))))
    choices = [(), (), *((name,) for name in names for _ in range(2)), tuple(names[:2]), strangers]
    picks = draw(st.lists(st.sampled_from(choices), min_size=len(found.pending), max_size=len(found.pending)))
    pending = tuple(msgspec.structs.replace(pod, gangs=gangs) for pod, gangs in zip(found.pending, picks, strict=True))
    gangs = {}
    for name in names:
        waiting = sum(name in pod.gangs for pod in pending)
        gangs[name] = Gang(
            name,
            min_placed=max(-1, waiting - draw(st.sampled_from((0, 0, 0, 1, 2, 5, 99, -1)))),
            atomic_group=draw(st.sampled_from(("", "", "", "u"))),
            topology_key=draw(st.sampled_from(("", "", "", "zone"))),
            domain=draw(st.sampled_from(("", "", "a", "nowhere"))),
            unschedulable_reason=draw(st.sampled_from(("", "", "", "", "", "it is flawed"))),
            partially_placed=draw(st.booleans()),
        )
    return replace(found, pending=pending, gangs=gangs, now=100.0)
