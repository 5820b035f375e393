"""Drawn flow networks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.solvers.slots import FlowNetwork, build_network, slot_widths
from flowcore.rules.topology.round_constraints.capacities import DomainCapacities


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
    domains: Sequence[DomainCapacities | None] = ()

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
            domains=self.domains,
        )


def ints(values: list[int]) -> Int64s:
    return np.array(values, dtype=np.int64)


@st.composite
def networks(draw: st.DrawFn) -> DrawnNetwork:
    nodes = draw(st.integers(1, 5))
    classes = draw(st.integers(1, 4))
    widths = slot_widths(draw(st.integers(1, 40)))
    candidates = [ints(sorted(draw(st.sets(st.integers(0, nodes - 1), max_size=nodes)))) for _ in range(classes)]
    numbers = st.integers(0, 50)
    steps = draw(
        st.lists(st.lists(numbers, min_size=len(widths), max_size=len(widths)), min_size=nodes, max_size=nodes)
    )
    return DrawnNetwork(
        candidates=candidates,
        costs=[ints([draw(numbers) for _ in found]) for found in candidates],
        capacities=[ints([draw(st.integers(1, 8)) for _ in found]) for found in candidates],
        prices=[
            ints(sorted(draw(st.lists(st.integers(1_000, 1_005), min_size=1, max_size=6)), reverse=True))
            for _ in range(classes)
        ],
        slot_costs=np.maximum.accumulate(np.array(steps, dtype=np.int64).reshape(nodes, len(widths)), axis=1),
        widths=widths,
        limits=ints([draw(st.integers(0, 10)) for _ in range(nodes)]),
    )


@st.composite
def networks_with_domains(draw: st.DrawFn) -> DrawnNetwork:
    """Some classes have domains; none need more pods than there are."""
    case, domains = draw(networks()), []
    for nodes, capacities, prices in zip(case.candidates, case.capacities, case.prices, strict=True):
        tree = draw(st.none() | trees(len(case.limits)))
        if tree is not None:
            tree.by_node[nodes] = capacities
            if tree.minimums.sum() > len(prices):
                tree.minimums[:] = 0
        domains.append(tree)
    return replace(case, domains=domains)


@st.composite
def trees(draw: st.DrawFn, nodes: int = 4, most: int = 3) -> DomainCapacities:
    """Zones and racks in them, each node in one of them or in none; outer ones may need pods."""
    zones = draw(st.integers(0, 2))
    racks = draw(st.lists(st.integers(0, zones - 1), max_size=2)) if zones else []
    count = zones + len(racks)
    outer = [draw(st.integers(1, most)) for _ in range(zones)]
    needed = [draw(st.integers(0, capacity)) if at not in racks else 0 for at, capacity in enumerate(outer)]
    return DomainCapacities(
        by_node=ints([draw(st.integers(0, 3)) for _ in range(nodes)]),
        domain_of=ints([draw(st.integers(-1, count - 1)) for _ in range(nodes)]),
        parents=ints([-1] * zones + racks),
        capacities=ints([*outer, *(draw(st.integers(1, most)) for _ in racks)]),
        minimums=ints([*needed, *[0] * len(racks)]),
        rise=0,
    )
