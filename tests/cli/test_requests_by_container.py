"""A container without a request counts for a default, whatever its neighbours and its pod request."""

from typing import Any

import msgspec
import pytest
from support.cli import Manifest, node, plan_of, pod

from flowcore.api import Interner
from flowcore.api.pod_objects import WirePod
from flowcore.api.pods import to_pod

MI = 2**20


def container(name: str, *, always: bool = False, **requests: str) -> Manifest:
    found: Manifest = {"name": name, "image": "example.invalid/main", "resources": {"requests": requests}}
    return {**found, "restartPolicy": "Always"} if always else found


def counted(**spec: Any) -> tuple[int, int]:
    """What a pod of this spec counts for."""
    manifest = pod("p", **spec)
    return to_pod(msgspec.convert(manifest, WirePod), Interner()).pod_class.non_zero_requests


@pytest.mark.parametrize(
    ("spec", "cpu", "memory"),
    [
        ({"containers": [container("a")]}, 100, 200 * MI),
        ({"containers": [container("a"), container("b"), container("c")]}, 300, 600 * MI),
        ({"containers": [container("a", cpu="1"), container("b", memory="1Gi")]}, 1100, 1224 * MI),
        ({"containers": [container("a", cpu="0", memory="0")]}, 0, 0),
        ({"containers": [container("a", cpu="0"), container("b", memory="1Gi")]}, 100, 1224 * MI),
        ({"containers": [container("a", cpu="10m")], "initContainers": [container("i")]}, 100, 200 * MI),
        (
            {
                "containers": [container("a", cpu="1", memory="1Gi")],
                "initContainers": [container("s", always=True), container("i", cpu="2")],
            },
            2100,
            1224 * MI,
        ),
        ({"containers": [container("a")], "overhead": {"cpu": "250m", "memory": "100Mi"}}, 350, 300 * MI),
        (
            {"containers": [container("a")] * 3, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
            1000,
            1024 * MI,
        ),
        ({"containers": [container("a")] * 3, "resources": {"requests": {"cpu": "1"}}}, 1000, 600 * MI),
        (
            {"containers": [container("a", memory="1Gi"), container("b")], "resources": {"requests": {"cpu": "1"}}},
            1000,
            1024 * MI,
        ),
        ({"containers": [container("a")] * 3, "resources": {"limits": {"cpu": "1"}}}, 300, 600 * MI),
    ],
    ids=[
        "none", "three without", "each lacks one", "zeros", "a zero beside one without", "an init container without",
        "a sidecar before an init container", "overhead", "as a whole", "cpu as a whole", "cpu as a whole, memory once",
        "limits as a whole",
    ],
)  # fmt: skip
def test_what_pods_count_for(spec: dict[str, Any], cpu: int, memory: int) -> None:
    """As kube-scheduler counts them (framework/types.go calculateResource); their requests are the same as ever."""
    assert counted(**spec) == (cpu, memory)


def running(name: str, where: str, *containers: Manifest, **more: Any) -> Manifest:
    return pod(name, containers=list(containers), nodeName=where, status={"phase": "Running", **more})


def waiting(*containers: Manifest) -> Manifest:
    return pod("new", containers=list(containers))


TEN = [container(f"c{number}") for number in range(10)]
HALF = container("main", cpu="500m", memory="500Mi")


@pytest.mark.parametrize(
    ("on_a", "on_b"),
    [
        ([running("many", "a", *TEN)], [running("one", "b", HALF)]),
        ([running("side", "a", container("main", cpu="100m", memory="100Mi"), *TEN)], [running("one", "b", HALF)]),
        (
            [running("resized", "a", container("main", cpu="100m"), *TEN, containerStatuses=[
                {"name": "main", "resources": {"requests": {"cpu": "200m"}}},
            ])],
            [running("one", "b", HALF)],
        ),
        ([running("one", "a", HALF)], [running("zero", "b", container("main", cpu="0", memory="0"))]),
    ],
    ids=["ten containers", "beside one with requests", "resized", "zero"],
)  # fmt: skip
def test_running_pods_count_by_container(on_a: list[Manifest], on_b: list[Manifest]) -> None:
    """A new pod goes to the node that is emptier so."""
    new = waiting(container("main", cpu="100m", memory="100Mi"))
    assert plan_of(node("a"), node("b"), *on_a, *on_b, new)["placements"] == {"default/new": "b"}


def test_pods_of_a_round_count_by_container() -> None:
    """Two pods of five containers without requests fill a node as one of half a core and 1,000 MB does."""
    large = pod("large", containers=[container("main", cpu="500m", memory="1000Mi")], priority=10)
    pods = [pod(f"many{number}", containers=TEN[:5], priority=9 - number) for number in range(3)]
    placed = plan_of(node("a"), node("b"), large, *pods)["placements"]
    assert sorted(list(placed.values()).count(name) for name in ("a", "b")) == [2, 2]


def test_defaults_take_no_room() -> None:
    """They count in costs alone: filters read requests."""
    assert plan_of(node("a", cpu="1"), waiting(container("main", cpu="1"), *TEN))["placements"] == {"default/new": "a"}
