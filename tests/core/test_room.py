"""Room: two ways to count what a node takes agree, and nothing is taken that was not counted."""

from hypothesis import given, settings
from support.draw import Case, busy_cases
from support.verdicts import snapshot_of

from flowcore.filters import judge
from flowcore.model.policies import BUILT_IN
from flowcore.rounds.demands import demands_of
from flowcore.rounds.room import Room


@settings(max_examples=200)
@given(busy_cases())
def test_a_node_takes_as_many_as_are_counted(case: Case) -> None:
    """For one node or for all at once, one at most where host ports are held, and none where a filter rejects."""
    snapshot = snapshot_of(case, place_blocked=False)
    start = Room(snapshot)
    demands = demands_of(snapshot, start.load(), {BUILT_IN.name: BUILT_IN})
    for demand in demands:
        pod_class = demand.group.pod_class
        counts = start.counts(demand)
        assert (demand.counts == start.space(demand)).all()
        fits = judge(pod_class, snapshot, demand.group.kind).fits
        for at, count in enumerate(counts):
            assert count == start.count_on(demand, at)
            assert (count > 0) == fits[at]
            assert count <= 1 or not pod_class.host_ports
            room = start.copy()
            assert room.take(demand, at, int(count) + 3) == count
            assert room.count_on(demand, at) == 0
    assert (start.free == Room(snapshot).free).all(), "copies are independent"
