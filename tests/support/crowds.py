"""Drawn crowds: many plain pods of few sizes on few nodes."""

from hypothesis import strategies as st
from support.model import GI, node, pod, snapshot

from flowcore.model.snapshot import Snapshot


@st.composite
def crowds(draw: st.DrawFn) -> Snapshot:
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
