"""Drawn flow networks."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from flowcore.cluster.snapshot import Int64s
from flowcore.solve.slots import FlowNetwork, build_network, slot_levels


@dataclass(frozen=True)
class DrawnNetwork:
    """What ``build_network`` is given."""

    candidates: list[Int64s]
    costs: list[Int64s]
    capacities: list[Int64s]
    prices: list[Int64s]
    slot_costs: Int64s
    widths: Int64s
    limits: Int64s

    @property
    def pods(self) -> int:
        return sum(len(prices) for prices in self.prices)

    def network(self) -> FlowNetwork:
        return build_network(
            node_count=len(self.limits),
            candidates=self.candidates,
            arc_costs=self.costs,
            arc_capacities=self.capacities,
            unscheduled=self.prices,
            slots_of=lambda nodes: self.slot_costs[nodes],
            slot_widths=self.widths,
            slot_limits=self.limits,
        )


def ints(values: list[int]) -> Int64s:
    return np.array(values, dtype=np.int64)


@st.composite
def networks(draw: st.DrawFn) -> DrawnNetwork:
    nodes = draw(st.integers(1, 5))
    classes = draw(st.integers(1, 4))
    levels, widths = slot_levels(draw(st.integers(1, 40)))
    candidates = [ints(sorted(draw(st.sets(st.integers(0, nodes - 1), max_size=nodes)))) for _ in range(classes)]
    numbers = st.integers(0, 50)
    steps = draw(
        st.lists(st.lists(numbers, min_size=len(levels), max_size=len(levels)), min_size=nodes, max_size=nodes)
    )
    return DrawnNetwork(
        candidates=candidates,
        costs=[ints([draw(numbers) for _ in found]) for found in candidates],
        capacities=[ints([draw(st.integers(1, 8)) for _ in found]) for found in candidates],
        prices=[
            ints(sorted(draw(st.lists(st.integers(1_000, 1_005), min_size=1, max_size=6)), reverse=True))
            for _ in range(classes)
        ],
        slot_costs=np.maximum.accumulate(np.array(steps, dtype=np.int64).reshape(nodes, len(levels)), axis=1),
        widths=widths,
        limits=ints([draw(st.integers(0, 10)) for _ in range(nodes)]),
    )
