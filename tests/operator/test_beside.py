"""Two schedulers on the same nodes: what each does not know of the other yet is not given away twice."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.reservations.ledger.records.in_flight import InFlight
from thalweg_operator.reservations.ledger.reservation import Owner

from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.selectors import LabelSelector, Requirement

NODES = ("a", "b")


def state() -> DrivenLedger:
    """Two nodes with one core each."""
    made = DrivenLedger()
    made.set_namespace("ns", ())
    for name in NODES:
        made.upsert_node(Node(name, labels=(("zone", name),), allocatable=(("cpu", 1000), ("pods", 10))))
    return made


def pod(name: str, cpu: int = 600, priority: int = 0, **changes: object) -> Pod:
    """One that waits."""
    pod_class = PodClass(requests=(("cpu", cpu),), priority=priority)
    return msgspec.structs.replace(Pod("ns", name, f"u-{name}", pod_class), **changes)


def apart(app: str) -> InterPodConstraints:
    """Never in a zone with pods of this app."""
    selector = LabelSelector((Requirement("app", "In", (app,)),))
    return InterPodConstraints(anti_affinity=(AffinityTerm("zone", selector, ("ns",)),))


def test_kube_scheduler_is_kept_from_what_the_binder_takes() -> None:
    """From the reservation on, and for a while after we saw the binding: its watch may be behind ours."""
    made = state()
    ours, other = pod("ours"), pod("other")
    made.upsert_pod(ours)
    assert made.infeasible_nodes(other, NODES) == []
    assert made.reserve(ours, "a")
    assert made.infeasible_nodes(other, NODES) == ["a"]
    made.upsert_pod(msgspec.structs.replace(ours, node_name="a", usage=ours.pod_class.requests))
    made.in_flight.settle(0.0)
    assert made.infeasible_nodes(other, NODES) == ["a"]
    made.in_flight.settle(0.0)
    assert made.infeasible_nodes(other, NODES) == []


def test_nominations_yield_to_higher_priority() -> None:
    """As with kube-scheduler itself; the binder's reservations do not, since nobody checks after it."""
    made = state()
    for name, by, node in (("n", Owner.STEERING, "a"), ("b", Owner.BINDER, "b")):
        made.upsert_pod(pod(name, priority=5))
        assert made.reserve(made.waiting[f"ns/{name}"], node, by)
    assert sorted(made.infeasible_nodes(pod("same", priority=5), NODES)) == ["a", "b"]
    assert made.infeasible_nodes(pod("higher", priority=6), NODES) == ["b"]
    assert made.infeasible_nodes(made.waiting["ns/n"], NODES) == ["b"]  # its own does not stand in its way


def test_the_binder_waits_for_what_kube_scheduler_may_be_placing() -> None:
    """On any node that it may have chosen, until its binding is seen, it is gone, or the time is up."""
    for end in ("bound", "gone", "another", "late"):
        made = state()
        passing, ours = pod("passing"), pod("ours")
        made.upsert_pod(passing)
        made.upsert_pod(ours)
        made.in_flight.let_through(passing, frozenset({"a"}), 10.0)
        assert made.conflicts_in_flight(ours, "a")
        assert not made.conflicts_in_flight(ours, "b")
        match end:
            case "bound":
                made.upsert_pod(msgspec.structs.replace(passing, node_name="b"))
            case "gone":
                made.delete_pod(passing.key)
            case "another":
                made.upsert_pod(msgspec.structs.replace(passing, uid="new"))
            case "late":
                made.in_flight.settle(9.0)
                assert made.conflicts_in_flight(ours, "a")
                made.in_flight.settle(11.0)
        assert not made.conflicts_in_flight(ours, "a"), end


def test_rules_between_pods_hold_on_both_sides() -> None:
    """Anti-affinity of the binder's pod against one of kube-scheduler's, and the other way round."""
    web = (("app", "web"),)
    for ours_has_it in (True, False):
        made = state()
        ours = pod("ours", 10, labels=() if ours_has_it else web, constraints=apart("web") if ours_has_it else None)
        theirs = pod("theirs", 10, labels=web if ours_has_it else (), constraints=None if ours_has_it else apart("web"))
        made.upsert_pod(ours)
        made.upsert_pod(theirs)
        made.in_flight.let_through(theirs, frozenset({"a"}), 10.0)
        assert made.conflicts_in_flight(ours, "a")
        assert not made.conflicts_in_flight(ours, "b")
        assert made.reserve(ours, "b")
        assert made.infeasible_nodes(theirs, NODES) == ["b"]
        assert made.infeasible_nodes(pod("stranger", 10), NODES) == []


@given(
    st.lists(st.tuples(st.sampled_from(["pass", "seen", "late"]), st.integers(0, 4), st.sets(st.sampled_from("abc"))))
)
def test_who_passes_is_known_by_node(events: list[tuple[str, int, set[str]]]) -> None:
    """The same as looking at each pod that passes; when none does, nothing is left of them."""
    beside, passing = InFlight(), dict[str, set[str]]()
    for at, (what, number, nodes) in enumerate(events):
        each = pod(f"p{number}")
        match what:
            case "pass":
                beside.let_through(each, frozenset(nodes), at + 3.0)
                passing[each.key] = nodes
            case "seen":
                beside.seen(each.key)
                passing.pop(each.key, None)
            case _:
                beside.settle(1e9)
                passing.clear()
        for node in "abc":
            assert {found.key for found in beside.let_through_to(node)} == {
                key for key, there in passing.items() if node in there
            }
    beside.settle(1e9)
    assert not beside._passing
    assert not beside._passing_to


def test_rules_are_weighed_against_pods_that_pass_now() -> None:
    """What was put together for one question is not used for the next when pods or namespaces changed."""
    made = state()
    web = (("app", "web"),)
    theirs, ours = pod("theirs", 10, labels=web), pod("ours", 10, constraints=apart("web"))
    made.upsert_pod(theirs)
    made.upsert_pod(ours)
    assert not made.conflicts_in_flight(ours, "a")
    made.in_flight.let_through(theirs, frozenset({"a"}), 10.0)
    assert made.conflicts_in_flight(ours, "a")
    made.in_flight.let_through(theirs, frozenset({"b"}), 10.0)
    assert (made.conflicts_in_flight(ours, "a"), made.conflicts_in_flight(ours, "b")) == (False, True)
    made.in_flight.let_through(pod("other", 10), frozenset({"b"}), 10.0)
    assert made.conflicts_in_flight(ours, "b")
    made.in_flight.seen(theirs.key)
    assert not made.conflicts_in_flight(ours, "b")
