"""What a pod asks for, all containers together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowcore.model.errors import ModelError
from flowcore.model.resources import NanoList, is_counted, pod_total, read_list, to_amounts

_lists = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/x"]), st.integers(0, 5), max_size=3)


def cpu(*amounts: int) -> list[NanoList]:
    return [{"cpu": amount} for amount in amounts]


def total(containers: list[int], init: list[tuple[int, bool]] | None = None, **more: NanoList) -> int:
    parts = [({"cpu": amount}, sidecar) for amount, sidecar in init or []]
    return pod_total(cpu(*containers), parts, more.get("pod_level", {}), more.get("overhead", {})).get("cpu", 0)


def test_app_containers_run_together() -> None:
    """Their requests add up."""
    assert total([1, 2, 3]) == 6


def test_init_containers_run_one_after_the_other() -> None:
    """The largest counts, and only beyond what the app containers need anyway."""
    assert total([1, 2], [(2, False), (3, False)]) == 3
    assert total([1, 2], [(2, False), (7, False), (1, False)]) == 7


def test_sidecars_run_beside_everything_after_them() -> None:
    """KEP-753: a sidecar adds to the app containers and to each init container that starts after it."""
    assert total([1], [(2, True), (3, True)]) == 6
    assert total([1], [(2, True), (10, False)]) == 12
    assert total([1], [(10, False), (2, True)]) == 10, "the init container ran before the sidecar"
    assert total([1], [(2, True), (10, False), (4, True)]) == 12


def test_pod_level_requests_replace_the_sum() -> None:
    """KEP-2837: for cpu, memory and huge pages; other resources are still summed."""
    level = {"cpu": 9, "memory": 8, "hugepages-2Mi": 7, "example.com/x": 6}
    asked = pod_total([{"cpu": 1, "example.com/x": 1}, {"cpu": 20}], [], level, {})
    assert asked == {"cpu": 9, "memory": 8, "hugepages-2Mi": 7, "example.com/x": 1}


def test_overhead_comes_on_top() -> None:
    """Of the sum, of an init container's peak and of pod-level requests alike."""
    assert total([1], overhead={"cpu": 5}) == 6
    assert total([1], [(3, False)], overhead={"cpu": 5}) == 8
    assert total([1], pod_level={"cpu": 2}, overhead={"cpu": 5}) == 7


def test_a_pod_is_one_pod() -> None:
    """Whatever it asks for under that name."""
    assert pod_total([{"pods": 5 * 10**9}], [], {}, {"pods": 10**9}) == {}


def test_sums_are_rounded_once() -> None:
    """Two containers of half a millicore need one, not two."""
    halves = [{"cpu": 500_000}, {"cpu": 500_000}]
    assert to_amounts(pod_total(halves, [], {}, {})) == (("cpu", 1),)


@given(st.lists(_lists, max_size=4), st.lists(st.tuples(_lists, st.booleans()), max_size=4), _lists)
def test_no_moment_of_a_pods_life_needs_more(
    containers: list[NanoList], init: list[tuple[NanoList, bool]], overhead: NanoList
) -> None:
    """At each step, what runs then with the sidecars started before it stays within the total; one step reaches it."""
    asked = pod_total(containers, init, {}, overhead)
    for name in ("cpu", "memory", "example.com/x"):
        sidecars, moments = 0, []
        for requests, is_sidecar in init:
            moments.append(requests.get(name, 0) + sidecars)
            sidecars += requests.get(name, 0) if is_sidecar else 0
        moments.append(sum(c.get(name, 0) for c in containers) + sidecars)
        assert asked.get(name, 0) == max(moments) + overhead.get(name, 0)


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("cpu", True), ("memory", True), ("ephemeral-storage", True), ("pods", True), ("hugepages-1Gi", True),
        ("attachable-volumes-csi-x", True), ("nvidia.com/gpu", True), ("example.com/a_b.c", True), ("gpu", False),
        ("storage", False), ("requests.nvidia.com/gpu", False), ("example.com/", False), ("/gpu", False), ("", False),
        ("kubernetes.io/thing", True),
    ],
)  # fmt: skip
def test_which_names_are_scheduled_by(name: str, counted: bool) -> None:  # noqa: FBT001
    """Those that NodeResourcesFit counts."""
    assert is_counted(name) is counted


@pytest.mark.parametrize(("quantity", "problem"), [("abc", "is not a quantity"), ("-1", "is negative"), ("", "is not")])
def test_an_unreadable_amount_names_its_field(quantity: str, problem: str) -> None:
    """The field as kubectl explain writes it, and what is wrong there."""
    with pytest.raises(ModelError) as caught:
        read_list({"cpu": "1", "memory": quantity}, "spec.containers[0].resources.requests")
    assert caught.value.field == "spec.containers[0].resources.requests.memory"
    assert problem in caught.value.problem
