"""Reasons are written on pods, whose authors may not know what runs in other namespaces: they name nothing of those."""

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.cluster.assembly import to_snapshot
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.running import running_pods
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.planning.round import run_round
from flowcore.planning.round.unplaced_reasons import _as_told_to


def waits(key: str, cpu: int, priority: int = 0) -> PendingPod:
    """A pod that waits."""
    pod_class = PodClass(requests=(("cpu", cpu),), priority=priority)
    return PendingPod(key, f"uid-{key}", pod_class, BUILT_IN.name, 0.0, PodSignature(key.partition("/")[0]))


def runs(key: str, cpu: int, priority: int, node: str) -> Pod:
    """A pod that runs, with a controller that replaces it."""
    namespace, _, name = key.partition("/")
    pod_class = PodClass(requests=(("cpu", cpu),), priority=priority, node_name=node)
    return Pod(namespace, name, f"uid-{key}", pod_class, node_name=node, usage=pod_class.requests, owner="set")


def test_room_that_goes_to_a_pod_of_a_higher_priority() -> None:
    """A pod runs and two small ones are planned; all of them give room to a large one, which one knows by name."""
    cluster = Cluster()
    cluster.put_node(Node("n0", allocatable=(("cpu", 1000), ("pods", 10))))
    cluster.put_pod(runs("a/low", 100, -10, "n0"))
    pending = (waits("a/small", 450), waits("b/small", 450), waits("b/urgent", 950, 1000))
    running = running_pods(cluster, lambda _pod: BUILT_IN, 0.0)
    result = run_round(to_snapshot(cluster, now=0.0, pending=pending, running=running))
    assert [each.pod.key for each in result.evictions] == ["a/low"]
    assert {each.pod.key: each.reason for each in result.unplaced} == {
        "a/small": "Its room on n0 goes to a pod of another namespace of a higher priority.",
        "b/small": "Its room on n0 goes to b/urgent of a higher priority.",
    }


def test_room_that_is_held_for_a_gang() -> None:
    """Pods of its namespace know the gang by name; a policy's constraint is of no namespace."""
    own, foreign = waits("ml/worker", 1), waits("shop/web", 1)
    assert _as_told_to([own], "gang ml/train") == "gang ml/train"
    assert _as_told_to([own, foreign], "gang ml/train") == "a gang of another namespace"
    assert _as_told_to([foreign], "PodGroup ml/train of volcano") == "a gang of another namespace"
    assert _as_told_to([foreign], "gang ml/train, gang shop/train") == "gang ml/train, gang shop/train"
    assert _as_told_to([foreign], "constraint one-zone of policy web") == "constraint one-zone of policy web"
