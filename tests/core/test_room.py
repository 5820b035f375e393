"""Room: two ways to count what a node takes agree, and nothing is taken that was not counted."""

from hypothesis import given, settings
from support.draw import Case, crowded_cases
from support.profiles import examples
from support.verdicts import snapshot_of

from flowcore.model.policies import BUILT_IN
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.filters import run_filters


@settings(max_examples=examples(100))
@given(crowded_cases())
def test_a_node_takes_as_many_as_are_counted(case: Case) -> None:
    """For one node or for all at once, one at most where host ports are held, and none where a filter rejects."""
    snapshot = snapshot_of(case, place_blocked=False)
    start = Plan(snapshot)
    demands = demands_of(snapshot, start.load(), {BUILT_IN.name: BUILT_IN})
    for demand in demands:
        pod_class = demand.group.pod_class
        counts = start.max_pods(demand)
        assert (demand.counts == start.fit_counts(demand)).all()
        fits = run_filters(pod_class, snapshot, demand.group.signature).fits
        for at, count in enumerate(counts):
            assert count == start.max_pods_at(demand, at)
            assert (count > 0) == fits[at]
            assert count <= 1 or not pod_class.host_ports
            room = start.copy()
            assert room.place(demand, at, int(count) + 3) == count
            assert room.max_pods_at(demand, at) == 0
    assert (start.free == Plan(snapshot).free).all(), "copies are independent"
