"""What bench/place_openb.py sets live placement beside, and when its pods come and end."""

from collections.abc import Callable
from functools import partial

import pytest
from harness import openb_live
from openb import GPU
from thalweg_controlplane.client.objects import Manifest, node, pod

NODES = [node(f"n{number}", cpu="8", memory="16Gi", extended={GPU: "1"}) for number in range(2)]


def gpu_pods(count: int, *, finishes: bool = False) -> list[Manifest]:
    """Pods of one GPU each."""
    labels = {openb_live.FINISHES: "true"} if finishes else None
    return [pod(f"p{number}", "1", "1Gi", labels=labels, extended={GPU: "1"}) for number in range(count)]


def placed(plan: openb_live.EnginePlan) -> int:
    """How many pods have a node."""
    return sum(bool(each["spec"].get("nodeName")) for each in plan.pods)


@pytest.mark.parametrize("plan", [openb_live.plan_at_once, partial(openb_live.plan_in_rounds, arrivals=2)])
def test_pods_that_end_make_room(plan: Callable[[list[Manifest], list[Manifest]], openb_live.EnginePlan]) -> None:
    """Two GPUs hold two pods that stay; five that end have had a node when all is over, and say that they ended."""
    assert placed(plan(NODES, gpu_pods(5))) == 2
    ended = plan(NODES, gpu_pods(5, finishes=True))
    assert placed(ended) == 5
    assert {each["status"]["phase"] for each in ended.pods} == {openb_live.SUCCEEDED}


def test_all_pods_come_once_within_the_time() -> None:
    """In order, the first at once and the last before the end, also where there are fewer than turns."""
    for count in (0, 3, 8152):
        pods = gpu_pods(count)
        turns = list(openb_live.paced(pods, 60.0))
        assert [each for _, part in turns for each in part] == pods
        assert all(0.0 <= due < 60.0 for due, _ in turns)
        assert max((len(part) for _, part in turns), default=0) <= 1 + count // 600


def test_the_same_tenth_ends_each_time() -> None:
    """Whoever places them: about a tenth, and the pods are as they were otherwise."""
    pods = gpu_pods(2000)
    chosen = openb_live.with_ends(pods)
    assert chosen == openb_live.with_ends(pods)
    assert 150 < sum(openb_live.is_finishing(each) for each in chosen) < 250
    assert [each["spec"] for each in chosen] == [each["spec"] for each in pods]
    assert not any(openb_live.is_finishing(each) for each in pods)
