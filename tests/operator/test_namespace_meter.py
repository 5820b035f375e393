"""What a round costs is put down to the namespaces of the pods that it works for."""

import pytest
from support.model import node, pod, snapshot
from thalweg_operator.planning.worker.meter import NamespaceMeter

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.pod_index import PodSignature
from flowcore.planning.round import Round


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def of(namespace: str, name: str, cpu: int = 100) -> PendingPod:
    found = pod(name, cpu, kind=PodSignature(namespace))
    return PendingPod(f"{namespace}/{name}", name, found.pod_class, found.policy, 0.0, found.signature)


def test_equal_pods_of_several_namespaces_share_and_the_rest_goes_by_groups() -> None:
    """Work for a group is theirs; what is for all is shared by the number of groups."""
    clock = Clock()
    meter = NamespaceMeter(clock)
    mine, both = [of("a", "p0"), of("a", "p1")], [of("a", "q0"), of("b", "q1"), of("b", "q2"), of("b", "q3")]
    clock.now = 1.0
    meter(mine)
    clock.now = 5.0
    meter(both)
    clock.now = 6.0
    meter(())
    clock.now = 7.0
    found = meter.seconds([mine, both])
    assert found == {"a": pytest.approx(1.0 + 1.0 + 1.0 + 0.25), "b": pytest.approx(3.0 + 0.75)}


def test_each_group_of_a_round_is_charged_with_the_work_for_it() -> None:
    """Pods that fit, pods that fit nowhere: their filters, prices and reasons; and the charge changes no plan."""
    waiting = [of("fits", "p"), of("dear", "q", 64_000), of("dear", "r", 65_000)]
    found = snapshot([node("n0")], waiting)
    charged: list[str] = []
    this = Round(found, charge=lambda pods: charged.extend({each.key for each in pods}))
    this.step()
    result = this.result()
    assert {"fits/p", "dear/q", "dear/r"} == set(charged)
    assert charged.count("dear/q") >= 2, "for its filters and for its reason"
    assert sorted(pods[0].key for pods in this.groups) == ["dear/q", "dear/r", "fits/p"]
    plain = Round(found)
    plain.step()
    assert plain.result().placements == result.placements


def test_improving_a_plan_counts_beyond_its_budget_only() -> None:
    """A round where a pod has no node is improved for as long as it may: no namespace is dear for that."""
    clock = Clock()
    meter = NamespaceMeter(clock)
    mine = [of("a", "p")]
    clock.now = 0.01
    meter(mine)
    clock.now = 0.31
    meter.improved(0.3)
    assert meter.seconds([mine]) == {"a": pytest.approx(0.01)}
    clock.now = 1.0
    meter.improved(0.3)
    assert meter.seconds([mine]) == {"a": pytest.approx(0.01 + 0.39)}
